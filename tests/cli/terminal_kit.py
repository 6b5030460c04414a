"""A command on a real pseudo terminal, and a person in front of it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress

PATIENCE_S = 60
LAUNCH = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "headgate", *sys.argv[1:]])
"""


class Terminal:
    """A command on a pseudo terminal, and a person in front of it."""

    def __init__(self, *words: str, kind: str = "xterm-256color", **variables: str) -> None:
        self.screen, self._line = pty.openpty()
        self.written = ""
        self.resize(100, 30)
        self.modes = termios.tcgetattr(self._line)
        environment = {**os.environ, "TERM": kind, "PYTHONUNBUFFERED": "1"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            environment.pop(name, None)
        environment.update(variables)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *words],
            stdin=self._line,
            stdout=self._line,
            stderr=self._line,
            env=environment,
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.screen)
        os.close(self._line)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._line, termios.TIOCSWINSZ, size)

    def press(self, keys: bytes) -> None:
        self.written = ""
        os.write(self.screen, keys)

    def await_text(self, text: str) -> None:
        """Until the command has written it since the last key."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.written:
            ready, _, _ = select.select([self.screen], [], [], 0.1)
            if ready:
                self.written += os.read(self.screen, 65536).decode(errors="replace")
            assert time.monotonic() < deadline, f"{text!r} is not in {self.written!r}"

    def await_modes(self) -> None:
        """Until the terminal has the modes that it began with."""
        deadline = time.monotonic() + PATIENCE_S
        while termios.tcgetattr(self._line) != self.modes:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def await_end(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            ready, _, _ = select.select([self.screen], [], [], 0.02)
            if ready:
                self.written += os.read(self.screen, 65536).decode(errors="replace")
            assert time.monotonic() < deadline
        while select.select([self.screen], [], [], 0)[0]:
            self.written += os.read(self.screen, 65536).decode(errors="replace")
        return self.process.returncode
