"""The folder of a Delta table as its sink and source use it: on this machine or in a store.

Names are paths below the folder. Local files are flushed to disk before anybody may name them;
stores are reached with the table's own storage options. Law: I/O errors become PathUnusable with
the path.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyarrow import parquet

from headgate.base.errors import PathUnusable
from headgate.connectors.libraries import library, reason
from headgate.connectors.paths import settle_folder


class DeltaFolder:
    """Files of one table."""

    def __init__(self, uri: str, options: Mapping[str, str] | None) -> None:
        self.uri = uri
        self.is_local = "://" not in uri
        if self.is_local:
            self._files: Any = pa_fs.SubTreeFileSystem(uri, pa_fs.LocalFileSystem())
        else:
            handlers = library("deltalake.fs", "delta", "a Delta table")
            handler = handlers.DeltaStorageHandler(uri, dict(options or {}))
            self._files = pa_fs.PyFileSystem(handler)

    def shown(self, name: str) -> str:
        """The path in messages."""
        return f"{self.uri}/{name}" if name else self.uri

    def write(self, name: str, rows: pa.Table, compression: str) -> int:
        """A Parquet file, flushed to disk; its length. It is removed again if that fails."""
        with self._writing(name):
            try:
                if self.is_local:
                    os.makedirs(os.path.dirname(self.shown(name)), exist_ok=True)
                with self._files.open_output_stream(name) as file:
                    parquet.write_table(rows, file, compression=compression)
                if self.is_local:
                    self._settle(name)
                size = self._files.get_file_info(name).size
            except BaseException:
                self.remove(name)
                raise
        assert isinstance(size, int)
        return size

    def settle_log(self, version: int, with_files: bool) -> None:
        """Make versions from this one on durable, as far as this machine stores them.

        ``with_files``: the files that they add, too, because the library has written those.
        """
        while self.is_local and os.path.exists(self.shown(name := log_name(version))):
            with self._writing(name):
                for added in self._added(name) if with_files else ():
                    with contextlib.suppress(FileNotFoundError):  # removed since, by a later one
                        self._settle(added)
                self._settle(name)
            version += 1

    def first_version(self, newest: int, since_ms: int) -> int:
        """The first of the versions, without a gap up to the newest, written since then."""
        version = newest
        while self.is_local and (changed_ms := self._changed_ms(log_name(version))) is not None:
            if changed_ms < since_ms:
                break
            version -= 1
        return version + 1

    def settle_new(self) -> None:
        """Make a table durable that was just created."""
        self.settle_log(0, with_files=False)
        if self.is_local:
            settle_folder(os.path.dirname(self.uri))

    def _changed_ms(self, name: str) -> int | None:
        try:
            return os.stat(self.shown(name)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        """In bytes; None: it is not there."""
        with self._reading(name):
            info = self._files.get_file_info(name)
        return info.size if info.type == pa_fs.FileType.File else None

    def open(self, name: str) -> Any:
        """A file to read; whoever asks closes it."""
        with self._reading(name):
            return self._files.open_input_file(name)

    def read(self, name: str) -> bytes | None:
        """A small file; None: it is not there."""
        if self.size(name) is None:
            return None
        with self._reading(name), self._files.open_input_stream(name) as file:
            found: bytes = file.read()
        return found

    def remove(self, name: str) -> None:
        """A file, if it is there and can be removed."""
        with contextlib.suppress(OSError):
            self._files.delete_file(name)

    def files_in(self, folder: str) -> list[tuple[str, int]]:
        """Names and times of change, in milliseconds; none if the folder is not there."""
        with self._reading(folder):
            found = self._files.get_file_info(pa_fs.FileSelector(folder, allow_not_found=True))
        return [
            (f"{folder}/{info.base_name}", (info.mtime_ns or 0) // 1_000_000)
            for info in found
            if info.type == pa_fs.FileType.File
        ]

    def _added(self, log: str) -> list[str]:
        """Files of the folder that an entry of the log adds."""
        with open(self.shown(log), encoding="utf-8") as file:
            actions = [json.loads(line) for line in file if line.strip()]
        found = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        return [name for name in found if not os.path.isabs(name) and "://" not in name]

    def _settle(self, name: str) -> None:
        path = self.shown(name)
        while True:
            settle_folder(path)
            if path == self.uri:
                return
            path = os.path.dirname(path)  # a folder of partitions may be new, too

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PathUnusable(
                self.shown(name),
                f"cannot be written: {reason(error, 'check the rights and space of the folder')}",
            ) from error

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PathUnusable(
                self.shown(name),
                f"cannot be read here: {reason(error, 'every worker needs to see the table')}",
            ) from error


def log_name(version: int) -> str:
    """The file of one version in the table's log."""
    return f"_delta_log/{version:020}.json"
