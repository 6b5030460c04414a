"""Files to read: which ones the paths of a source lead to, and how they are opened.

They are on this machine or on a file system of pyarrow (``s3://``, ``gs://``, ``hdfs://``). A path
of a source may hold credentials and options (``s3://key:secret@bucket/logs?region=eu``); the paths
of its files do not, so that checkpoints, logs and errors hold none: a ``FileAccess`` finds the file
system of a file by the source's own paths. Folders are read recursively; names that begin with
``.`` or ``_`` are hidden, and folders and patterns leave them out. Law: each file is listed once,
sorted within a folder or pattern; a file that vanishes meanwhile is not in the list, a folder that
cannot be listed is an error. Whoever opens a file closes it. pyarrow is loaded where it is needed.
"""

import bz2
import fnmatch
import glob
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, BinaryIO, Final, cast

from headgate.base.errors import FileGone, PathUnusable
from headgate.base.redaction import plain_url

MOST_ROOTS: Final = 32
UNREADABLE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading raises; all but the first come from a packed file that is cut short or no such."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was when it was listed."""

    path: str
    size: int
    mtime_ns: int
    inode: tuple[int, int] | None = None
    """Device and number, where the file system has such."""


@dataclass(frozen=True, slots=True)
class RemoteRoot:
    """A path of a source that is not of this machine, with its file system."""

    system: Any
    path: str
    """Within the file system, without a pattern."""
    prefix: str
    """Stands before all paths of the file system."""

    @property
    def bucket(self) -> str:
        return f"{self.prefix}{self.path.partition('/')[0]}/" if self.path else self.prefix


class FileAccess:
    """Opens what the paths of a source lead to; a task and the driver have one each."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._uris = [path for path in paths if is_remote(path)]

    def root(self, uri: str) -> RemoteRoot:
        """The root of one of the source's own paths; raises PathUnusable if out of reach."""
        return _root(uri)

    def stat(self, path: str) -> ListedFile | None:
        """The file that is at a path now; None: there is none, or it is no file."""
        if not is_remote(path):
            return local_file(path)
        root, inner = self._within(path)
        with remote_errors(path):
            info = root.system.get_file_info(inner)
        return listed(root, info) if info.is_file else None

    def open(self, path: str, position: int = 0) -> "OpenFile":
        """At a position in its (unpacked) bytes; refuses a file that is shorter than that."""
        try:
            file = OpenFile(path, self._open(path))
        except OSError as error:
            problem = error.strerror or str(error).partition("\n")[0]
            kind = FileGone if isinstance(error, FileNotFoundError) else PathUnusable
            raise kind(
                printable(path),
                f"cannot be read here: {problem}; every worker needs to see the file",
            ) from error
        try:
            file.go_to(position)
        except BaseException:
            file.close()
            raise
        return file

    def open_raw(self, path: str) -> Any:
        """The bytes of the file as they are, for formats that seek in it."""
        return self._open(path)

    def open_arrow(self, path: str) -> Any:
        """The bytes as a file of pyarrow, which reads local files by itself."""
        pa = import_module("pyarrow")
        if not is_remote(path) and printable(path) == path:
            return pa.OSFile(path)
        return pa.PythonFile(self._open(path), mode="r")

    def _open(self, path: str) -> Any:
        if is_remote(path):
            root, inner = self._within(path)
            return root.system.open_input_file(inner)
        return open(path, "rb", buffering=0)

    def _within(self, path: str) -> tuple[RemoteRoot, str]:
        roots = list(map(self.root, self._uris))
        fitting = [root for root in roots if path.startswith(root.bucket)]
        for root in fitting or [root for root in roots if path.startswith(root.prefix)]:
            return root, path.removeprefix(root.prefix)
        raise PathUnusable(
            path, "is on no file system of this source; give the source the path that it had"
        )


class OpenFile:
    """A file that is being read, unpacked if its name says that it is packed."""

    def __init__(self, path: str, raw: Any) -> None:
        self._path = path
        self._raw = raw
        self._unpacks = unpacker(path)
        try:
            self._stream: Any = raw if self._unpacks is None else self._unpacks(raw)
        except BaseException:
            raw.close()
            raise

    def read(self, count: int) -> bytes:
        """Nothing: the end. Raises PathUnusable."""
        try:
            return cast(bytes, self._stream.read(count))
        except UNREADABLE as error:
            raise PathUnusable(printable(self._path), f"cannot be read: {error}") from error

    def go_to(self, position: int) -> None:
        """Raises PathUnusable if the file has fewer bytes."""
        if position == 0:
            return
        reached = self._skip(position) if self._unpacks else min(position, self.size())
        if reached < position:
            raise PathUnusable(
                printable(self._path),
                f"was read up to byte {position} before, and now has only {reached}; put the old "
                f"file back, or start the job without its checkpoint",
            )
        if not self._unpacks:
            self._raw.seek(position)

    def size(self) -> int:
        """The size that the file has on the disk now."""
        if hasattr(self._raw, "size"):
            return int(self._raw.size())
        return os.fstat(self._raw.fileno()).st_size

    def close(self) -> None:
        try:
            if self._stream is not self._raw:
                self._stream.close()
        finally:
            self._raw.close()

    def _skip(self, count: int) -> int:
        passed = 0
        while passed < count and (data := self.read(min(count - passed, 1 << 20))):
            passed += len(data)
        return passed


def unpacker(path: str) -> "Callable[[BinaryIO], Any] | None":
    """What unpacks a file of this name; None: it is not packed."""
    return _UNPACKERS.get(path[path.rfind(".") :].lower())


def _unpack_zstd(raw: BinaryIO) -> Any:
    return import_module("pyarrow").CompressedInputStream(raw, "zstd")


_UNPACKERS: Final[dict[str, Callable[[BinaryIO], Any]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _unpack_zstd,
}


def is_remote(path: str) -> bool:
    """Whether pyarrow reads it."""
    return "://" in path


def printable(path: str) -> str:
    """A path for people: names need not be UTF-8, and errors are written as such."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def local_file(path: str) -> ListedFile | None:
    """None: there is none, or it is no regular file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    inode = (found.st_dev, found.st_ino) if found.st_ino else None
    return ListedFile(path, found.st_size, found.st_mtime_ns, inode)


def listed(root: RemoteRoot, info: Any) -> ListedFile:
    """What pyarrow says about a file."""
    return ListedFile(f"{root.prefix}{info.path}", int(info.size or 0), int(info.mtime_ns or 0))


@lru_cache(MOST_ROOTS)
def _root(uri: str) -> RemoteRoot:
    """Kept for all splits of a source: a client of an object store costs connections."""
    plain, _, query = uri.partition("?")
    scheme, _, rest = plain.partition("://")
    fixed = f"{scheme}://{fixed_part(rest)}"
    module = import_module("headgate.connectors.files.remote_folder")
    system, path = module.open_system(f"{fixed}?{query}" if query else fixed)
    host = rest.partition("/")[0].rpartition("@")[2] if path.startswith("/") else ""
    return RemoteRoot(system, path.rstrip("/"), f"{scheme}://{host}")


def fixed_part(path: str) -> str:
    """The folder above the first name that is a pattern; the path itself: no name is."""
    names = path.split("/")
    for number, name in enumerate(names):
        if "*" in name or "[" in name:
            return "/".join(names[:number])
    return path


@contextmanager
def remote_errors(path: str) -> Iterator[None]:
    """Trouble of a file system as an error that names the path."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, io.UnsupportedOperation):
            raise
        problem = str(error).partition("\n")[0].rstrip(".")
        raise PathUnusable(printable(path), f"cannot be reached: {problem}") from error


def list_files(
    paths: Sequence[str], access: FileAccess, may_miss: Collection[str] = ()
) -> list[ListedFile]:
    """All files that the paths lead to; those of ``may_miss`` need not lead to any."""
    found: dict[str, ListedFile] = {}
    for path in paths:
        remote = is_remote(path)
        files = _remote_files(path, access) if remote else _local_files(os.path.abspath(path))
        empty = True
        for file in files:
            empty = False
            found.setdefault(file.path, file)
        if empty and path not in may_miss and not is_folder(path, access):
            raise _missing(path)
    return list(found.values())


def check_local_paths(paths: Sequence[str]) -> None:
    """Refuse paths of this machine that lead nowhere; looks at names only."""
    for path in paths:
        if is_remote(path) or os.path.lexists(path):
            continue
        if not glob.has_magic(path) or not any(glob.iglob(path, recursive=True)):
            raise _missing(path)


def _missing(path: str) -> PathUnusable:
    shown = plain_url(path) if is_remote(path) else printable(os.path.abspath(path))
    return PathUnusable(shown, "does not exist; check the path, also on the driver's machine")


def is_folder(path: str, access: FileAccess) -> bool:
    """Whether a path leads to a folder, which may be empty."""
    if not is_remote(path):
        return os.path.isdir(path)
    if has_pattern(path):
        return False
    root = access.root(path)
    with remote_errors(plain_url(path)):
        return str(root.system.get_file_info(root.path).type) == "FileType.Directory"


def has_pattern(path: str) -> bool:
    """Whether a path names several files."""
    return fixed_part(path.partition("?")[0]) != path.partition("?")[0] or (
        not is_remote(path) and glob.has_magic(path)
    )


# On this machine.


def _local_files(path: str) -> Iterator[ListedFile]:
    if os.path.isdir(path):
        yield from _files_below(path, ())
    elif (file := local_file(path)) is not None:
        yield file
    elif os.path.exists(path):
        raise PathUnusable(
            printable(path), "is neither a file nor a folder; read pipes with a SourceFunction"
        )
    elif glob.has_magic(path):
        for match in sorted(glob.glob(path, recursive=True)):
            if not _hidden(match):
                yield from _local_files(match)


def _files_below(folder: str, above: tuple[str, ...]) -> Iterator[ListedFile]:
    real = os.path.realpath(folder)
    if real in above:  # a link that leads back up
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if above and isinstance(error, FileNotFoundError):
            return
        raise PathUnusable(printable(folder), f"cannot be listed: {error.strerror}") from error
    for name in names:
        path = os.path.join(folder, name)
        if _hidden(path):
            continue
        if os.path.isdir(path):
            yield from _files_below(path, (*above, real))
        elif (file := local_file(path)) is not None:
            yield file


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


# On a file system of pyarrow.


def _remote_files(uri: str, access: FileAccess) -> Iterator[ListedFile]:
    root = access.root(uri)
    plain = uri.partition("?")[0]
    pattern = plain.removeprefix(fixed_part(plain)).strip("/")
    parts = pattern.split("/") if pattern else []
    with remote_errors(plain_url(uri)):
        info = root.system.get_file_info(root.path)
        if info.is_file:
            yield listed(root, info)
            return
        selector = import_module("pyarrow.fs").FileSelector
        chosen = selector(root.path, allow_not_found=True, recursive=True)
        found = root.system.get_file_info(chosen)
    for entry in sorted(found, key=lambda entry: entry.path):
        names = entry.path.removeprefix(root.path).strip("/").split("/")
        if entry.is_file and not any(map(_hidden, names)) and _matches(names, parts):
            yield listed(root, entry)


def _matches(names: list[str], pattern: list[str]) -> bool:
    """As ``glob`` matches: ``*`` does not cross folders, ``**`` does; all below a match counts."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return _matches(names, pattern[1:]) or (bool(names) and _matches(names[1:], pattern))
    if not names or not fnmatch.fnmatchcase(names[0], pattern[0]):
        return False
    return _matches(names[1:], pattern[1:])
