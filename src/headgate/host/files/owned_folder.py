"""Temporary folders that go with their owner, or at the next start if the owner was killed.

A file in the folder is locked as long as its owner lives: the kernel releases the lock with the
process, however that ends. Law: nothing is removed but a folder of this user with a mark of this
machine whose lock is free; no link is followed, and of several processes that clean up at the same
time one removes each folder. A folder without a mark is left alone.
"""

import atexit
import fcntl
import logging
import os
import socket
import stat
import tempfile
import threading
import time
from contextlib import suppress
from errno import EACCES, EAGAIN
from functools import cache
from pathlib import Path
from typing import Final

from headgate.host.files.private_files import (
    FILE_MODE,
    FOLDER,
    NO_LINK,
    empty_folder,
    open_folder_in,
    remove_tree,
)

log = logging.getLogger(__name__)

PREFIX: Final = "headgate-"
MARK: Final = ".headgate-owner"
"""The locked file; its content names the owner, for people and other machines."""
_TRIES: Final = 10
_LOCK_TRIES: Final = 200
_LOCK_WAIT_S: Final = 0.005
_MARK_BYTES: Final = 1024

_swept: Final[set[str]] = set()
_sweeping: Final = threading.Lock()


class OwnedFolder:
    """A new folder with mode 0700, removed by ``close``. Raises OSError."""

    def __init__(self, kind: str, parent: str | None = None) -> None:
        """``kind``: its purpose, part of its name; ``parent``: by default the temporary folder."""
        parent = parent or tempfile.gettempdir()
        _sweep_once(parent)
        self._process = os.getpid()
        self._lock = -1
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent))
            if self._mark():
                return
        raise OSError(EAGAIN, "new folders are removed at once", parent)

    def _mark(self) -> bool:
        """Create and lock the mark; False: another process has removed the folder before."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self.path / MARK, flags, FILE_MODE)
        except FileNotFoundError:
            return False
        try:
            # Before the lock: if this process is killed now, another one may remove the folder.
            os.write(descriptor, _here().encode())
            if _is_locked(descriptor) and os.fstat(descriptor).st_nlink:
                self._lock = descriptor
                return True
        except OSError as error:
            # A file system without locks: nobody could tell whether the owner lives, so no mark.
            log.debug("%s stays if this process is killed: %s", self.path, error)
            with suppress(OSError):
                os.unlink(self.path / MARK)
            os.close(descriptor)
            return True
        os.close(descriptor)
        return False

    def close(self) -> None:
        """Remove it with everything in it. Idempotent; without effect in a forked child."""
        if os.getpid() != self._process:
            return
        _remove(self.path)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()


def process_folder(kind: str) -> str:
    """The path of a new folder that goes with this process."""
    folder = OwnedFolder(kind)
    atexit.register(folder.close)
    return str(folder.path)


@cache
def shared_folder(kind: str) -> str:
    """The path of the one folder that this process has for a purpose."""
    return process_folder(kind)


def _is_locked(descriptor: int) -> bool:
    """Lock a new mark; a process that cleans up may hold it briefly, and remove or release it."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_LOCK_WAIT_S)
    return False


def _sweep_once(parent: str) -> None:
    with _sweeping:
        if parent in _swept:
            return
        _swept.add(parent)
    sweep(parent)


def sweep(parent: str | None = None) -> list[str]:
    """Remove this user's folders whose owners are gone; returns their paths. Never raises."""
    parent = parent or tempfile.gettempdir()
    removed: list[str] = []
    try:
        above = os.open(parent, FOLDER)
    except OSError:
        return []
    try:
        for name in os.listdir(above):
            if name.startswith(PREFIX):
                with suppress(OSError):  # it is gone, or not accessible
                    if _sweep(above, name):
                        removed.append(os.path.join(parent, name))
                        log.info("%s is removed: its process is gone", removed[-1])
    except OSError as error:
        log.debug("%s cannot be read: %s", parent, error)
    finally:
        os.close(above)
    return removed


def _sweep(above: int, name: str) -> bool:
    """Remove one folder if its owner is gone."""
    folder = open_folder_in(above, name)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return False
        # Non-blocking: it may be a pipe.
        mark = os.open(MARK, os.O_RDWR | os.O_NONBLOCK | NO_LINK, dir_fd=folder)
        try:
            if not _is_abandoned(mark):
                return False
            # Under the lock, which goes last: if this process is killed, the next one continues.
            empty_folder(folder, keeping=MARK)  # the open folder, whatever its name is now
            with suppress(FileNotFoundError):
                os.rmdir(name, dir_fd=above)
            return True
        finally:
            os.close(mark)
    finally:
        os.close(folder)


def _is_abandoned(mark: int) -> bool:
    """Lock the mark; False: the owner lives, or that is unknown here."""
    found = os.fstat(mark)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return False
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (EAGAIN, EACCES):
            log.debug("a lock cannot be tried: %s", error)
        return False
    if not os.fstat(mark).st_nlink:
        return False  # another process has just removed it
    host, boot = _host_and_boot(os.pread(mark, _MARK_BYTES, 0).decode(errors="replace"))
    here, now = _host_and_boot(_here())
    # The lock is valid for all processes of this kernel, in containers too; from an earlier boot of
    # this host nobody is alive. Owners on other machines that share the folder are unknown here.
    return (bool(boot) and boot == now) or (bool(host) and host == here)


def _here() -> str:
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}\n{boot}\nprocess {os.getpid()}\n"


def _host_and_boot(text: str) -> tuple[str, str]:
    host, _, rest = text.partition("\n")
    return host, rest.partition("\n")[0]


def _remove(path: Path) -> None:
    try:
        above = os.open(path.parent, FOLDER)
    except OSError:
        return
    try:
        with suppress(OSError):  # a file that is still being written; the next start removes it
            remove_tree(above, path.name, keeping=MARK)
    finally:
        os.close(above)
