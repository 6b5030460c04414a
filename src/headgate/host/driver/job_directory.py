"""Which jobs of this user run on this machine, and how to reach their drivers.

The driver writes one file for each job; whoever can read it has the job's secret and may ask and
tell the job what its user may. Law: folder and files belong to the user alone, or they are not
used; a file goes with its job, and what a driver that died has left is removed by the next reader.
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

log = logging.getLogger(__name__)

_ENDING: Final = ".job"
_LARGEST: Final = 64 * 1024


class JobEntry(msgspec.Struct, frozen=True):
    """A job, as its driver has written it down."""

    job: str
    name: str
    since_ms: int
    """When it was started, in milliseconds since 1970."""
    pid: int
    """Of the driver, as processes of ``host`` know it."""
    host: str
    address: Address
    secret: bytes
    version: int = 0
    """Of the control connection."""
    tls: tuple[str, str, str] | None = None
    """Files of the certificate, its key and the authority, if the control connection has TLS."""

    def __repr__(self) -> str:
        """The secret is not shown, so that no log gets it."""
        return f"JobEntry({self.job!r}, {self.name!r}, process {self.pid})"


class DirectoryUnsafe(HeadgateError):
    """The folder is not the user's own."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(
            f"running jobs are listed in {folder}, which {problem}; remove it, or set "
            f"XDG_RUNTIME_DIR to a folder that is yours alone"
        )


def job_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """Where the files of this user's jobs stand; it may not be there yet."""
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return Path(runtime, "headgate")
    return Path(tempfile.gettempdir(), f"headgate-{os.getuid()}")


def here() -> str:
    """What process ids count for: this machine, and this container of it."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def announce(entry: JobEntry, folder: Path | None = None) -> "Announcement":
    """Write a job down, so that commands find it; a folder that does not work is only logged."""
    folder = folder or job_folder()
    name = f"{quote(entry.job, safe='')}-{entry.pid}"
    path = folder / f"{name}{_ENDING}"
    temporary = folder / f".{name}-{secrets.token_hex(4)}"
    try:
        _make_private(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(entry))
        os.replace(temporary, path)
    except (OSError, DirectoryUnsafe) as error:
        log.warning("job %s will not be found by `headgate list`: %s", entry.job, error)
        with suppress(OSError):
            temporary.unlink()
    return Announcement(path)


class Announcement:
    """The file of a job; it stands until ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Idempotent; never raises."""
        with suppress(OSError):
            self.path.unlink()


def entries(folder: Path | None = None) -> list[tuple[JobEntry, Announcement]]:
    """The jobs whose drivers live, the oldest first; files of dead ones are removed.

    Raises DirectoryUnsafe. Jobs of other machines or containers that share the folder are left
    alone, and out.
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
    """None: it went just now, or is none of ours."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            return msgspec.json.decode(file.read(_LARGEST), type=JobEntry)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
    """In a temporary folder anybody may have made it first."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryUnsafe(folder, "is no folder")
    if found.st_uid != os.getuid():
        raise DirectoryUnsafe(folder, "belongs to somebody else")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise DirectoryUnsafe(folder, "others may use")
