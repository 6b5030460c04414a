"""How worker processes end: user code that does not return, and what the driver learns of it.

A process whose user code does not return after its cancellation ends itself, if that is allowed;
where its threads stand is logged before. Whoever starts processes notes how each has ended, in a
small file named after the process in a folder of the driver, which reads it once. Law: asking takes
at most a moment, and an unknown end gives no text.
"""

import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Final

from headgate.host.checkpoints.snapshot_writer import WRITER_NAMES
from headgate.host.files.owned_folder import process_folder
from headgate.host.shipping.failures import where_is
from headgate.host.worker.stack_sampler import SAMPLER_THREAD

log = logging.getLogger(__name__)

STUCK_EXIT: Final = 70
"""The exit code of a process that ends because a user's function does not return."""

TASK_THREADS: Final = "headgate-"
SOURCE_THREADS: Final = "headgate-source "
"""How the name of a thread begins in which a user's source function runs."""

_SERVANTS: Final = (
    "headgate-control",
    "headgate-standby",
    "headgate-watchdog",
    SAMPLER_THREAD,
    *WRITER_NAMES,
)

EXITS: Final = "HEADGATE_WORKER_EXITS"
"""The variable of the environment that names the folder."""
AWAITED_S: Final = 0.5
"""A connection ends a moment before its process has."""
MOST_NOTES: Final = 1_000


_folders: list[str] = []
"""The folder of this process, once exits are to be noted in it."""


def threads_of(prefix: str) -> list[threading.Thread]:
    """Threads of tasks and sources whose names begin so, without those that serve them."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(prefix) and thread.name not in _SERVANTS
    ]


def abandon(what: str, threads: list[threading.Thread], may_exit: bool) -> None:
    """Log where the threads are, and end the process if that is allowed."""
    places = "\n".join(f"{thread.name}:\n{where_is(thread)}" for thread in threads)
    then = "this process ends" if may_exit else "its thread is left running"
    log.critical(
        "%s has not returned after it was cancelled; %s. It is here:\n%s", what, then, places
    )
    if may_exit:
        logging.shutdown()
        os._exit(STUCK_EXIT)


def exits_folder() -> str:
    """Where exits of the workers of this driver are noted; gone with it."""
    if not _folders:
        _folders.append(process_folder("exits"))
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
        return f"it ended itself with exit code {code}: a user function did not return"
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
