"""A full screen and the signals that it waits for."""

import os
import pty
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from headgate.cli.full_screen import FullScreen

PATIENCE_S = 30


@pytest.fixture
def keyboard() -> Iterator[int]:
    screen, line = pty.openpty()
    yield line
    os.close(screen)
    os.close(line)


def test_a_signal_that_another_thread_receives_wakes_the_screen(keyboard: int) -> None:
    """As one does that arrives just before the main thread begins to wait."""
    done = threading.Event()
    other = threading.Thread(target=done.wait, daemon=True)
    other.start()
    assert other.ident is not None
    with open(os.devnull, "w") as nowhere, FullScreen(Console(file=nowhere), keyboard) as screen:
        resize = threading.Timer(0.2, signal.pthread_kill, (other.ident, signal.SIGWINCH))
        resize.start()
        began = time.monotonic()
        assert screen.keys(began + PATIENCE_S) == []
        assert time.monotonic() - began < PATIENCE_S / 2
    resize.join()
    done.set()
    other.join()


def test_a_screen_gives_handlers_and_the_wakeup_descriptor_back(keyboard: int) -> None:
    handler = signal.getsignal(signal.SIGWINCH)
    before = signal.set_wakeup_fd(-1)
    with open(os.devnull, "w") as nowhere, FullScreen(Console(file=nowhere), keyboard):
        assert signal.getsignal(signal.SIGWINCH) != handler
    assert signal.getsignal(signal.SIGWINCH) == handler
    assert signal.set_wakeup_fd(before) == -1
