"""A terminal whose whole screen is drawn anew again and again, and whose keys come one at a time.

Law: however the block ends, the terminal is as it was before: its modes, its screen, its cursor,
and the handlers of signals. Ctrl-Z gives the terminal back for as long as the command is stopped.
"""

import os
import select
import signal
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, Final, TypeAlias

from rich.console import Console, RenderableType


class SpecialKey(Enum):
    """A key that is no letter."""

    UP = "up"
    DOWN = "down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"


Key: TypeAlias = SpecialKey | str

_SEQUENCES: Final = {
    b"\x1b": SpecialKey.ESCAPE,
    b"\x1b[A": SpecialKey.UP,
    b"\x1bOA": SpecialKey.UP,
    b"\x1b[B": SpecialKey.DOWN,
    b"\x1bOB": SpecialKey.DOWN,
    b"\x1b[H": SpecialKey.HOME,
    b"\x1bOH": SpecialKey.HOME,
    b"\x1b[1~": SpecialKey.HOME,
    b"\x1b[F": SpecialKey.END,
    b"\x1bOF": SpecialKey.END,
    b"\x1b[4~": SpecialKey.END,
}
_WAKES: Final = (signal.SIGWINCH, signal.SIGTSTP)
ESCAPE_S: Final = 0.05
"""How long the rest of a sequence may take to come; after that it was the key Escape alone."""
_READ: Final = 1024


class FullScreen:
    """Use it as a context, on the main thread, with a console that is a terminal."""

    def __init__(self, console: Console, keyboard: int) -> None:
        """``keyboard``: the file descriptor of a terminal."""
        self._console = console
        self._keyboard = keyboard
        self._modes: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._waker, self._wakes = -1, -1
        self._wakeup_before = -1
        self._stops = False

    def __enter__(self) -> "FullScreen":
        self._waker, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._modes = termios.tcgetattr(self._keyboard)
        try:
            # The interpreter writes to the pipe when the signal arrives. A handler would write too
            # late: it runs between two instructions of the main thread, which may wait by then.
            self._wakeup_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
            for number in _WAKES:
                self._handlers[number] = signal.signal(number, self._on_signal)
            self._take()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def draw(self, picture: RenderableType) -> None:
        """The whole screen; what does not fit is cut."""
        self._console.update_screen(picture)

    def keys(self, until: float) -> list[Key]:
        """What was pressed; waits until this moment of ``time.monotonic`` or the first event.

        An empty list: the time is over, or the screen has another size and is to be drawn.
        """
        wait_s = max(0.0, until - time.monotonic())
        ready, _, _ = select.select([self._keyboard, self._waker], [], [], wait_s)
        if self._waker in ready:
            os.read(self._waker, _READ)
            if self._stops:
                self._stop()
        if self._keyboard not in ready:
            return []
        typed = os.read(self._keyboard, _READ)
        if not typed:
            raise EOFError("the terminal was closed")
        if typed.endswith(b"\x1b"):  # perhaps the first part of a sequence
            more, _, _ = select.select([self._keyboard], [], [], ESCAPE_S)
            typed += os.read(self._keyboard, _READ) if more else b""
        return list(decode_keys(typed))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stops = self._stops or number == signal.SIGTSTP

    def _stop(self) -> None:
        """Give the terminal back, stop as the shell wants it, and take the terminal again."""
        self._stops = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _take(self) -> None:
        tty.setcbreak(self._keyboard)
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def _give_back(self) -> None:
        with suppress(OSError):  # nobody reads it any more
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
        with suppress(OSError, termios.error):  # it was closed
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)

    def _release(self) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        signal.set_wakeup_fd(self._wakeup_before)
        for descriptor in (self._waker, self._wakes):
            os.close(descriptor)


def decode_keys(typed: bytes) -> Iterator[Key]:
    """The keys that a terminal has sent; unknown sequences are skipped."""
    at = 0
    while at < len(typed):
        if typed[at] != 0x1B:
            letter = typed[at : at + 1]
            at += 1
            yield SpecialKey.ENTER if letter in b"\r\n" else letter.decode("latin-1")
            continue
        end = at + 1
        if typed[end : end + 1] in (b"[", b"O"):
            end += 1
            while end < len(typed) and not 0x40 <= typed[end] <= 0x7E:
                end += 1
            end = min(end + 1, len(typed))
        sequence, at = typed[at:end], end
        if sequence in _SEQUENCES:
            yield _SEQUENCES[sequence]
