"""What became of a worker process: its exit code or signal, if whoever started it has noted that.

Law: asking takes at most a moment, and an unknown end is nothing to tell. A note is a small file
named after the process, in a folder of the driver's own; it is read once.
"""

import atexit
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Final

from headgate.host.files.owned_folder import OwnedFolder
from headgate.host.worker.stuck import STUCK_EXIT

EXITS: Final = "HEADGATE_WORKER_EXITS"
"""The variable of the environment that names the folder."""
AWAITED_S: Final = 0.5
"""A connection ends a moment before its process has."""
MOST_NOTES: Final = 1_000


_folders: list[str] = []
"""That of this process, as soon as somebody is to note something in it."""


def exits_folder() -> str:
    """Where exits of the workers of this driver are noted; gone with it."""
    if not _folders:
        folder = OwnedFolder("exits")
        atexit.register(folder.close)
        _folders.append(str(folder.path))
    return _folders[0]


def note_exit(folder: str, pid: int, code: int) -> None:
    """A process has ended with this code, or by this signal if it is below zero.

    Called by a signal handler that may interrupt itself: nothing here imports, not even a codec.
    """
    with suppress(OSError):
        if code and len(os.listdir(folder)) < MOST_NOTES:
            part = os.path.join(folder, f"{pid}.part")
            with open(part, "wb", buffering=0) as file:
                file.write(b"%d" % code)
            os.rename(part, os.path.join(folder, str(pid)))


def exit_words(pid: int, host: str) -> str:
    """How a process of this machine has ended, in words; nothing: it is not known."""
    if not _folders or host != socket.gethostname():
        return ""
    deadline = time.monotonic() + AWAITED_S
    while (code := _noted(_folders[0], pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return "" if code is None else words_of(code)


def words_of(code: int) -> str:
    """An exit code, or a signal that is below zero, for people."""
    if code == STUCK_EXIT:
        return f"it ended itself with exit code {code}: a function did not come back"
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"it was killed by {name}, perhaps by the kernel because memory was short"
    if -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE):
        return f"it crashed with {name}, in native code of a package"
    return f"it was ended by {name}"


def _noted(folder: str, pid: int) -> int | None:
    path = os.path.join(folder, str(pid))
    try:
        with open(path, encoding="ascii") as file:
            code = int(file.read())
        os.unlink(path)
        return code
    except (OSError, ValueError):
        return None
