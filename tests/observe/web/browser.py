"""Debian's Chromium, driven by Playwright, and a visitor that notices what a page must not do."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 30_000
FAILED_REQUEST = "Failed to load resource"
"""What Chromium itself writes to the console when a server refuses, or is not there."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is no Chromium, but never in CI."""
    path = shutil.which("chromium")
    if path is None and not os.environ.get("CI"):
        pytest.skip("Chromium is not installed; make tools does it")
    assert path is not None, "Chromium is missing; make tools installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """One page, and what it wrote to the console and asked for."""

    page: Page
    base: str
    written: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", lambda line: self.written.append(f"{line.type}: {line.text}"))
        self.page.on("pageerror", lambda error: self.written.append(f"uncaught: {error}"))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("dialog", self._dismiss)

    def open(self, fragment: str = "") -> Page:
        self.page.goto(f"{self.base}/{fragment}")
        return self.page

    def until(self, condition: str) -> None:
        """Wait for a JavaScript expression to be true; Playwright's own wait uses eval, which the
        page forbids."""
        deadline = time.monotonic() + WAIT_MS / 1000
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, condition
            self.page.wait_for_timeout(50)

    def behaved(self, *, may_fail: bool = False) -> None:
        """Nothing was written to the console, and no request has left this machine."""
        written = [line for line in self.written if not (may_fail and FAILED_REQUEST in line)]
        assert written == []
        assert [url for url in self.requested if not url.startswith(f"{self.base}/")] == []
        assert self.dialogs == []

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@contextmanager
def visiting(
    browser: Browser, base: str, *, width: int = 1440, dark: bool = False
) -> Iterator[Visitor]:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    try:
        yield Visitor(context.new_page(), base)
    finally:
        context.close()
