"""Photograph the web page anew: python docs/make_screenshots.py [FOLDER [OPTIONS OF headgate demo]]

Both pictures show a real run: `headgate demo` on the embedded Spark, in Debian's Chromium.
The light one is taken when the page has named what limits the job; the dark one shows where the
time of that vertex goes. Needs Chromium (`make tools`).
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

FOLDER = Path(__file__).parent
ADDRESS = re.compile(r"headgate: job \S+: (http://\S+)")
DEMO = ("--orders", "60000", "--seconds", "90")
WIDTH = 1320
HEIGHTS = {"page-light.png": 790, "page-dark.png": 874}
SHARPNESS = 1.25
WAIT_MS = 60_000
SETTLED_MS = 12_000
"""Rates are taken over ten seconds."""


@contextmanager
def running_demo(options: tuple[str, ...]) -> Iterator[str]:
    """The address of its page; the job ends with the block."""
    environment = {**os.environ, "HEADGATE__REST__ENABLED": "true"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as written:
        command = [sys.executable, "-m", "headgate", "demo", "--folder", folder, *options]
        demo = subprocess.Popen(
            command, stdout=written, stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            yield find_address(demo)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()


def find_address(demo: "subprocess.Popen[str]") -> str:
    assert demo.stderr is not None
    for line in demo.stderr:
        if found := ADDRESS.search(line):
            return found[1]
    sys.exit("headgate demo has printed no address of a page")


def open_page(browser: Browser, address: str, theme: str, height: int) -> Page:
    """When it has named what limits the job, and its rates have settled."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": height},
        device_scale_factor=SHARPNESS,
        color_scheme="dark" if theme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(address)
    expect(page.locator("a.limits")).to_be_visible(timeout=WAIT_MS)
    page.wait_for_timeout(SETTLED_MS)
    return page


def show_flame_graph(page: Page) -> None:
    page.get_by_role("link", name="Show the vertex").click()
    page.get_by_role("link", name="Flame graph").click()
    page.get_by_role("button", name="Sample").click()
    expect(page.get_by_role("treeitem").first).to_be_visible(timeout=WAIT_MS)
    page.mouse.move(0, 0)
    page.evaluate(
        "document.activeElement.blur(); scrollTo(0, document.querySelector('.tabs').offsetTop - 60)"
    )


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else FOLDER
    options = tuple(arguments[1:]) or DEMO
    chromium = shutil.which("chromium") or sys.exit("Chromium is missing; make tools installs it")
    light, dark = HEIGHTS
    with running_demo(options) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = open_page(browser, address, "light", HEIGHTS[light])
        page.screenshot(path=folder / light)
        page = open_page(browser, address, "dark", HEIGHTS[dark])
        show_flame_graph(page)
        page.screenshot(path=folder / dark)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
