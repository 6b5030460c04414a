"""Local files accessible to the user alone, opened and removed without following symbolic links.

A path can change between two uses, an open folder cannot. Law: what is opened in an open folder, or
removed with all below it, is the entry of that name in that folder, or LinkRefused is raised.

``PrivateFiles`` has pyarrow's interface, below a given root. New folders and files have mode 0700
or 0600, whatever the umask. Law: below the root nothing is read, written or deleted through a
symbolic link; the root itself, and what is above it, may be one. Errors are OSError, for an
impossible name ValueError.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EISDIR, ELOOP, ENOTDIR
from functools import cache
from typing import Any, BinaryIO, ClassVar, Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC

_SEARCH_ONLY: Final = getattr(os, "O_PATH", 0)


class LinkRefused(OSError):
    """A symbolic link or special file is where a file or folder must be."""


def private_opener(path: str, flags: int) -> int:
    """For ``open``: a new file is accessible to the user alone."""
    return os.open(path, flags, FILE_MODE)


def open_folder_in(folder: int, name: str) -> int:
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (ELOOP, ENOTDIR) and _is_link(folder, name):
            raise LinkRefused(ELOOP, "a symbolic link", name) from error
        raise


def open_file_in(folder: int, name: str, path: str) -> int:
    try:
        # Non-blocking: it may be a pipe.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno == ELOOP:
            raise LinkRefused(ELOOP, "a symbolic link", path) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        raise LinkRefused(ELOOP, "neither a file nor a folder", path)
    return descriptor


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def remove_tree(folder: int, name: str, keeping: str = "") -> None:
    """Delete a name in an open folder, with all below it; links are deleted, not followed.

    ``keeping`` names a file directly in it that goes last, if all others are gone. Concurrent
    deletions are no error. As much as possible is deleted, then the first OSError is raised.
    """
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except OSError as error:  # a folder: EISDIR or EPERM, depending on the system
        try:
            inner = open_folder_in(folder, name)
        except NotADirectoryError:
            raise error from None
    try:
        empty_folder(inner, keeping)
    finally:
        os.close(inner)
    with suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=folder)


def empty_folder(inner: int, keeping: str = "") -> None:
    """Delete all entries of an open folder, see ``remove_tree``."""
    trouble: OSError | None = None
    with suppress(OSError):  # an archive may contain read-only folders
        os.fchmod(inner, FOLDER_MODE)
    names = os.listdir(inner)
    for entry in sorted(names, key=lambda entry: entry == keeping):
        if entry == keeping and trouble is not None:
            break
        try:
            remove_tree(inner, entry)
        except OSError as error:
            trouble = trouble or error
        except RecursionError:
            trouble = trouble or OSError(ELOOP, "folders in folders, too deep", entry)
    if trouble is not None:
        raise trouble


@cache
def arrow_fs() -> Any:
    """``pyarrow.fs``, which takes longer to load than the rest of a job that uses no folder."""
    from pyarrow import fs  # noqa: PLC0415 - drivers and workers without checkpoints go without

    return fs


@dataclass(frozen=True, slots=True)
class PrivateFiles:
    """The part of ``pyarrow.fs.FileSystem`` that folders of checkpoints need."""

    root: str = field(compare=False)
    type_name: ClassVar[str] = "local"

    def rooted(self, path: str) -> "PrivateFiles":
        """Files below ``path``, which may be above the present root."""
        return self if self._is_below(path) else PrivateFiles(path)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """With all above it; it may exist."""
        _make_root(self.root)
        with self._opened(path, makes=True):
            pass

    def get_file_info(self, wanted: Any) -> Any:
        """What is at a path, or in a ``FileSelector``'s folder; links are not followed."""
        if isinstance(wanted, arrow_fs().FileSelector):
            return self._list(wanted.base_dir)
        try:
            if wanted == self.root:
                return _info(wanted, os.stat(wanted))
            with self._beside(wanted) as (folder, name):
                return _info(wanted, os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            fs = arrow_fs()
            return fs.FileInfo(wanted, fs.FileType.NotFound)

    def open_output_stream(self, path: str, *, buffer_size: int) -> BinaryIO:
        """A new file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
        with self._beside(path) as (folder, name):
            descriptor = os.open(name, flags, FILE_MODE, dir_fd=folder)
        return open(descriptor, "wb", buffering=buffer_size)

    def open_input_file(self, path: str) -> "PrivateFile":
        """A file for random access."""
        with self._beside(path) as (folder, name):
            return PrivateFile(open_file_in(folder, name, path))

    def delete_file(self, path: str) -> None:
        """Delete a file; of a link, the link itself."""
        with self._beside(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def delete_dir(self, path: str) -> None:
        """A folder with everything in it; links in it are not followed."""
        with self._beside(path) as (folder, name):
            remove_tree(folder, name)

    def delete_empty_dir(self, path: str) -> None:
        """Raises OSError if something is in it."""
        with self._beside(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def move(self, source: str, target: str) -> None:
        with self._beside(source) as (old, old_name), self._beside(target) as (new, new_name):
            os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)

    def link(self, source: str, target: str) -> None:
        """A hard link to a file; raises FileExistsError if the target exists."""
        with self._beside(source) as (old, old_name), self._beside(target) as (new, new_name):
            os.link(old_name, new_name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)

    def sync(self, path: str) -> None:
        """Make a closed file, or the entries of a folder, outlive a crash of the machine."""
        if path == self.root:  # which may be a link
            with self._opened(path) as folder:
                os.fsync(folder)
            return
        with self._beside(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                descriptor = open_folder_in(folder, name)
            else:
                descriptor = open_file_in(folder, name, path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _list(self, path: str) -> list[Any]:
        found = []
        try:
            with self._opened(path) as folder:
                for name in os.listdir(folder):
                    with suppress(FileNotFoundError):  # just removed
                        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        found.append(_info(os.path.join(path, name), info))
        except FileNotFoundError:
            return []
        return found

    def _is_below(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root.rstrip("/") + "/")

    @contextmanager
    def _opened(self, path: str, *, makes: bool = False) -> Iterator[int]:
        """Open the folder at a path below the root, step by step."""
        assert self._is_below(path), f"{path} is not below {self.root}"
        folder = os.open(self.root, FOLDER)
        try:
            for name in path[len(self.root) :].split("/"):
                if name:
                    if makes:
                        with suppress(FileExistsError):
                            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
                    below = open_folder_in(folder, name)
                    os.close(folder)
                    folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _beside(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that holds a path; yields it and the name there."""
        above, _, name = path.rstrip("/").rpartition("/")
        if path == self.root:
            folder = os.open(above or "/", FOLDER | _SEARCH_ONLY)  # others' may not be readable
            try:
                yield folder, name or "."
            finally:
                os.close(folder)
            return
        with self._opened(above or "/") as folder:
            yield folder, name


class PrivateFile:
    """A file for random access, with pyarrow's interface."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, count: int, offset: int) -> bytes:
        """Fewer bytes at the end of the file."""
        parts = []
        while count > 0:
            part = os.pread(self._descriptor, min(count, 1 << 30), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self) -> bytes:
        return self.read_at(self.size(), 0)

    def close(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "PrivateFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _info(path: str, found: os.stat_result) -> Any:
    fs = arrow_fs()
    kinds = {stat.S_IFREG: fs.FileType.File, stat.S_IFDIR: fs.FileType.Directory}
    kind = kinds.get(stat.S_IFMT(found.st_mode), fs.FileType.Unknown)
    return fs.FileInfo(path, kind, mtime_ns=found.st_mtime_ns, size=found.st_size)


def _make_root(path: str) -> None:
    """Make a folder that the user names, with what is missing above it."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if os.path.islink(path) or above == path:  # a link to nowhere
            raise
        _make_root(above)
        with suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
