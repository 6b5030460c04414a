"""Which jobs of this user run on this machine, and how to reach their drivers.

The driver writes a file per job; whoever can read it has the job's secret and may control the job
as its user does. Law: folder and files are accessible to the user alone, or they are not used; a
file goes with its job, the folder with the last file, and the next reader or driver removes what a
dead one has left.
"""

import logging
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from headgate.base.errors import HeadgateError
from headgate.base.messages import Address
from headgate.host.files.private_files import private_opener

log = logging.getLogger(__name__)

_ENDING: Final = ".job"
_LARGEST: Final = 64 * 1024
_TRIES: Final = 10


class JobEntry(msgspec.Struct, frozen=True):
    """A job, as its driver has announced it."""

    job: str
    name: str
    since_ms: int
    """When it was started, in milliseconds since the epoch."""
    pid: int
    """The driver's, valid on ``host``."""
    host: str
    address: Address
    secret: bytes
    version: int = 0
    """Version of the control connection."""
    tls: tuple[str, str, str] | None = None
    """Files of certificate, key and authority, if the control connection uses TLS."""
    web: str = ""
    """The URL of the driver's web page and REST API; empty: it has none."""
    token: str = ""
    """What the page asks for; empty: nothing."""
    streams: tuple[tuple[str, str, str], ...] = ()
    """Its named inputs and outputs: ``input`` or ``output``, name, folder."""

    def __repr__(self) -> str:
        """Without the secret and the token, so that no log gets them."""
        return f"JobEntry({self.job!r}, {self.name!r}, process {self.pid})"


class DirectoryUnsafe(HeadgateError):
    """The folder is not the user's own."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(
            f"running jobs are listed in {folder}, which {problem}; remove it, or set "
            f"XDG_RUNTIME_DIR to a folder that is yours alone"
        )


def job_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """Where the files of this user's jobs are; it may not exist yet."""
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return Path(runtime, "headgate")
    return Path(tempfile.gettempdir(), f"headgate-{os.getuid()}")


def here() -> str:
    """Where process ids are valid: this machine, and this container of it."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def announce(entry: JobEntry, folder: Path | None = None) -> "Announcement":
    """Write the file of a job, so that commands find it; an unusable folder is only logged."""
    folder = folder or job_folder()
    name = f"{quote(entry.job, safe='')}-{entry.pid}"
    path = folder / f"{name}{_ENDING}"
    temporary = folder / f".{name}-{secrets.token_hex(4)}"
    try:
        for tries_left in range(_TRIES)[::-1]:
            try:
                entries(folder)  # removes files of dead drivers: perhaps nobody ever lists jobs
                _make_private(folder)
                with open(temporary, "xb", opener=private_opener) as file:
                    file.write(msgspec.json.encode(entry))
                os.replace(temporary, path)
                break
            except (FileNotFoundError, FileExistsError):
                if not tries_left:  # else the last job of another driver may just have ended
                    raise
    except (OSError, DirectoryUnsafe) as error:
        log.warning("`headgate list` will not show job %s: %s", entry.job, error)
        with suppress(OSError):
            temporary.unlink()
    return Announcement(path)


class Announcement:
    """The file of a job, until ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Idempotent; never raises."""
        with suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()  # fails if other jobs are listed in it


def entries(folder: Path | None = None) -> list[tuple[JobEntry, Announcement]]:
    """The jobs with a live driver, the oldest first; files of dead drivers are removed.

    Raises DirectoryUnsafe. Jobs of other machines or containers that share the folder are skipped.
    """
    folder = folder or job_folder()
    found = []
    for path in _files(folder):
        entry, announcement = _read(path), Announcement(path)
        if entry is not None and entry.host == here():
            if _lives(entry.pid):
                found.append((entry, announcement))
            else:
                announcement.close()
    return sorted(found, key=lambda pair: (pair[0].since_ms, pair[0].job))


def _files(folder: Path) -> Iterator[Path]:
    try:
        _check_private(folder)
        yield from sorted(folder.glob(f"*{_ENDING}"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise DirectoryUnsafe(folder, f"cannot be read ({error.strerror})") from error


def _read(path: Path) -> JobEntry | None:
    """None: it has just been removed, or is not a job's file."""
    try:
        with open(path, "rb", opener=_open_job_file) as file:
            return msgspec.json.decode(file.read(_LARGEST), type=JobEntry)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _open_job_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)


def _check_private(folder: Path) -> None:
    """In a temporary folder, another user may have created it first."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryUnsafe(folder, "is no folder")
    if found.st_uid != os.getuid():
        raise DirectoryUnsafe(folder, "belongs to somebody else")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise DirectoryUnsafe(folder, "others may use")
