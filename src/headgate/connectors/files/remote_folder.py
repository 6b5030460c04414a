"""Folders of remote file systems, by pyarrow: HDFS, S3, GCS, Azure.

A file cannot be appended to after it was settled, so parts end with each checkpoint. Object stores
cannot rename: a file is copied and then removed, and its new name appears when the copy is whole.
Law: see ``part_folder``; a closed file is settled.
"""

import io
import posixpath
from collections.abc import Iterator
from typing import Any, Final, cast

from pyarrow import fs

from headgate.base.errors import PathUnusable
from headgate.base.object_store import is_s3, open_s3
from headgate.base.redaction import plain_url, shown_cause
from headgate.connectors.files.part_folder import PartFile

_BUFFER_BYTES: Final = 1 << 20
_FLAT: Final = frozenset({"abfs", "gcs", "s3"})


def open_remote(uri: str) -> "ArrowFolder":
    """Raises PathUnusable if no file system is known for it, or it cannot be reached."""
    system, path = open_system(uri)
    return ArrowFolder(system, path.rstrip("/"), uri)


def open_system(uri: str) -> tuple[Any, str]:
    """The file system of an address, and the path within it; raises PathUnusable."""
    try:
        system, path = open_s3(uri) if is_s3(uri) else fs.FileSystem.from_uri(uri)
    except (ValueError, ImportError, OSError) as error:
        shown = plain_url(uri)
        problem = str(error).partition("\n")[0].rstrip(".").replace(uri, shown)
        raise PathUnusable(
            shown,
            f"{problem}; give a path of this machine, or hdfs://, s3://, gs:// or abfs://",
        ) from shown_cause(error)
    return system, path


class ArrowFolder:
    """A folder of a file system of pyarrow."""

    grows = False

    def __init__(self, system: Any, root: str, uri: str) -> None:
        self._system = system
        self._root = root
        self._shown = plain_url(uri).rstrip("/")

    def shown(self, name: str) -> str:
        return posixpath.join(self._shown, name) if name else self._shown

    def make(self) -> None:
        """Object stores need no folder; it is checked that the bucket can be reached."""
        self._make(self._root)
        if self._system.type_name == "s3":
            # The listing first: its answer says why it is refused, that about a bucket does not.
            self._system.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
            bucket = self._root.partition("/")[0]
            if self._system.get_file_info(bucket).type == fs.FileType.NotFound:
                raise OSError(f"there is no bucket {bucket}")

    def create(self, name: str, replace: bool = False) -> PartFile:
        path = self._at(name)
        self._make(posixpath.dirname(path))
        stream = self._system.open_output_stream(path, buffer_size=_BUFFER_BYTES)
        return cast(PartFile, stream)

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read())

    def settle(self, file: PartFile) -> None:
        """Closing it does; there is nothing else."""

    def settle_names(self, folder: str) -> None:
        """The file system has done it."""

    def has(self, name: str) -> bool:
        return bool(self._system.get_file_info(self._at(name)).type != fs.FileType.NotFound)

    def size(self, name: str) -> int:
        found = self._system.get_file_info(self._at(name))
        if found.type == fs.FileType.NotFound:
            raise FileNotFoundError(2, "No such file or directory", self.shown(name))
        return int(found.size)

    def rename(self, name: str, new: str) -> None:
        if not self.has(name):
            raise FileNotFoundError(2, "No such file or directory", self.shown(name))
        self._system.move(self._at(name), self._at(new))

    def copy(self, name: str, new: str, length: int) -> None:
        raise io.UnsupportedOperation(f"{self.shown(name)} was never written on")

    def remove(self, name: str) -> None:
        if self.has(name):
            self._system.delete_file(self._at(name))

    def names(self, deep: bool) -> Iterator[str]:
        found = self._system.get_file_info(
            fs.FileSelector(self._root, allow_not_found=True, recursive=deep)
        )
        for entry in found:
            if entry.type == fs.FileType.File:
                yield posixpath.relpath(entry.path, self._root)

    def is_removed(self) -> bool:
        """Nobody knows: its names are then those of an empty one."""
        return False

    def _at(self, name: str) -> str:
        return posixpath.join(self._root, name)

    def _make(self, path: str) -> None:
        if self._system.type_name not in _FLAT:
            self._system.create_dir(path, recursive=True)
