"""Real servers for tests of connectors: started once per test process, on free loopback ports.

A server that is not installed is skipped with a word on a developer's machine and fails in CI,
where `.ci/tools` has installed it.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

START_S = 180.0

ROOT = Path(__file__).parent.parent


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(name: str, *places: str) -> str:
    """The path of a program, also if it is in a folder that PATH leaves out."""
    found = shutil.which(name) or shutil.which(name, path=":".join((*places, "/usr/sbin")))
    if found is None:
        text = f"{name} is not installed; make tools installs it"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    return found


class ServerProcess:
    """A server in a process of its own: it can be killed, stopped and started again."""

    def __init__(
        self, command: Sequence[str], is_ready: Callable[[], bool], log: Path, user: str = ""
    ) -> None:
        """``user``: who runs it if the tests run as root, which some servers refuse."""
        self._command = command
        self._is_ready = is_ready
        self._log = log
        self._user = user if user and os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        assert self._process is None, "it runs already"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=ROOT,  # whatever folder the test is in: some servers are modules of the tests
            )
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                tail = self._log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"{self._command[0]} does not start ({code}):\n{tail}")
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it; it writes what it has to write first."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """End it as a power cut does."""
        self.stop(signal.SIGKILL)

    def signal(self, number: int) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()


def accepts(port: int) -> bool:
    """Whether somebody listens on a loopback port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
