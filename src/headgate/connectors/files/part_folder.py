"""Folders that file sinks write to: of this machine, or of a remote file system.

Names are paths below the folder. Law: what was settled survives a crash of the machine; renaming is
atomic, so that a name stands for a whole file or for none. I/O errors become PathUnusable with the
path.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import BinaryIO, Protocol, TypeAlias

from headgate.base.errors import PartLost, PathUnusable
from headgate.base.object_store import s3_problem
from headgate.connectors.paths import settle_folder

PartFile: TypeAlias = BinaryIO


class PartFolder(Protocol):
    """A folder and all below it, as file sinks use it."""

    grows: bool
    """A part can be settled and then written on; if not, it must be closed."""

    def shown(self, name: str) -> str:
        """The path in messages."""

    def make(self) -> None:
        """The folder itself, with all above it, settled."""

    def create(self, name: str, replace: bool = False) -> PartFile:
        """A new file; ``replace``: in place of one that is there. Whoever asks closes it."""

    def read(self, name: str) -> bytes:
        """A small file; raises FileNotFoundError if it is not there."""

    def settle(self, file: PartFile) -> None:
        """Make what was written to the file durable."""

    def settle_names(self, folder: str) -> None:
        """Make the names in a subfolder durable."""

    def has(self, name: str) -> bool: ...

    def size(self, name: str) -> int:
        """In bytes; raises FileNotFoundError if it is not there."""

    def rename(self, name: str, new: str) -> None:
        """Takes the place of what is there; raises FileNotFoundError if there is none to rename."""

    def copy(self, name: str, new: str, length: int) -> None:
        """The beginning of a file as a new one, settled."""

    def remove(self, name: str) -> None:
        """A file, if it is there."""

    def names(self, deep: bool) -> Iterator[str]:
        """The names of all files in the folder; ``deep``: also in the folders below it."""

    def is_removed(self) -> bool:
        """Whether the folder is not there, while that which it was in is: no storage is away."""


def open_folder(uri: str) -> PartFolder:
    """The folder that ``folder_uri`` has named."""
    if "://" not in uri:
        return LocalFolder(uri)
    from headgate.connectors.files.remote_folder import open_remote  # noqa: PLC0415 - it loads pyarrow

    return open_remote(uri)


class LocalFolder:
    """A folder of this machine, or one that is mounted on it."""

    grows = True

    def __init__(self, root: str) -> None:
        self._root = root

    def shown(self, name: str) -> str:
        return os.path.join(self._root, name) if name else self._root

    def make(self) -> None:
        above: list[str] = []
        folder = self._root
        while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
            above.append(folder)
        os.makedirs(self._root, exist_ok=True)
        for folder in above:
            settle_folder(folder)

    def create(self, name: str, replace: bool = False) -> PartFile:
        path = self.shown(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb" if replace else "xb")

    def read(self, name: str) -> bytes:
        with open(self.shown(name), "rb") as file:
            return file.read()

    def settle(self, file: PartFile) -> None:
        file.flush()
        os.fsync(file.fileno())

    def settle_names(self, folder: str) -> None:
        while True:
            settle_folder(self.shown(folder))
            if not folder:
                return
            folder = os.path.dirname(folder)  # the folder itself may be new, too

    def has(self, name: str) -> bool:
        return os.path.lexists(self.shown(name))

    def size(self, name: str) -> int:
        return os.stat(self.shown(name)).st_size

    def rename(self, name: str, new: str) -> None:
        os.replace(self.shown(name), self.shown(new))

    def copy(self, name: str, new: str, length: int) -> None:
        # A task that was presumed dead may be copying the same file.
        half = f"{name}.copy-{secrets.token_hex(4)}"
        with open(self.shown(name), "rb") as old, self.create(half) as file:
            _copy(old, file, length, self.shown(name))
            self.settle(file)
        self.rename(half, new)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.shown(name))

    def names(self, deep: bool) -> Iterator[str]:
        if not deep:
            yield from os.listdir(self._root)
            return
        os.stat(self._root)  # a folder that is away is not an empty one
        for folder, _, files in os.walk(self._root):
            for file in files:
                yield os.path.relpath(os.path.join(folder, file), self._root)

    def is_removed(self) -> bool:
        return not os.path.lexists(self._root) and os.path.isdir(os.path.dirname(self._root))


def _copy(old: BinaryIO, new: BinaryIO, length: int, shown: str) -> None:
    left = length
    while left:
        data = old.read(min(left, shutil.COPY_BUFSIZE))  # type: ignore[attr-defined]
        if not data:
            raise PartLost(shown, too_short(length - left, length))
        new.write(data)
        left -= len(data)


def too_short(found: int, wanted: int) -> str:
    """Why a part with another length than its checkpoint says is refused."""
    return (
        f"has {found} bytes, and the checkpoint says {wanted}: it was changed from outside, or the "
        f"disk has lost what it had confirmed; go on from another checkpoint"
    )


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn I/O errors into PathUnusable with the path."""
    try:
        yield
    except OSError as error:
        problem, advice = s3_problem(str(error))
        if not problem:
            problem = error.strerror or str(error).partition("\n")[0]
            advice = "check the folder's rights and space"
        raise PathUnusable(path, f"cannot be written: {problem}; {advice}") from error
