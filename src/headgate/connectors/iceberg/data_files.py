"""Data files of an Iceberg table, written before anybody reads them.

The library writes them, with field ids, partitions and statistics. What it says of a file is kept
in checkpoints as plain values, and made a file of the library again for the commit, so that another
version of the library can go on. Law: a write that fails leaves no file behind.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from headgate.base.errors import ConnectorError, PathUnusable
from headgate.connectors.iceberg.catalog import OpenTable, table_id
from headgate.connectors.libraries import library, reason, words

_PLAIN: Final = (
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)
"""What Iceberg's specification says of a data file, beside its path, format and partition."""


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A file as a checkpoint keeps it."""

    path: str
    size: int
    spec: int = 0
    """The partition spec that it was written for."""
    file_format: str = "PARQUET"
    partition: tuple[Any, ...] = ()
    about: tuple[tuple[str, Any], ...] = ()
    """The rest of what the library has said of it."""
    content: int = 0
    """0: rows, 1: positions of deleted rows, 2: deleted rows."""


def plain_file(file: Any, spec: int) -> IcebergFile:
    """What the library says of a file, in plain values."""
    return IcebergFile(
        str(file.file_path),
        int(file.file_size_in_bytes),
        spec,
        str(getattr(file.file_format, "value", file.file_format)),
        tuple(file.partition[place] for place in range(len(file.partition))),
        tuple((name, getattr(file, name, None)) for name in _PLAIN),
        int(getattr(file.content, "value", file.content)),
    )


def library_file(file: IcebergFile) -> Any:
    """The library's own ``DataFile``."""
    manifest = library("pyiceberg.manifest", "iceberg", "an Iceberg table")
    record = library("pyiceberg.typedef", "iceberg", "an Iceberg table").Record
    made = manifest.DataFile.from_args(
        content=manifest.DataFileContent(file.content),
        file_path=file.path,
        file_format=manifest.FileFormat(file.file_format),
        partition=record(*file.partition),
        **dict(file.about),
    )
    made.spec_id = file.spec
    return made


class IcebergStage:
    """Writes data files where the table will read them; changes, where its readers do not look."""

    def __init__(self, table: OpenTable, are_changes: bool) -> None:
        self.table = table_id(table)
        self._table = table
        self._stem = f"{table.location().rstrip('/')}/headgate/changes-{secrets.token_hex(8)}"
        self._count = 0
        self._write = self._write_changes if are_changes else self._write_rows

    def write(self, rows: pa.Table) -> list[IcebergFile]:
        output = _NotedOutput(self._table.io)
        try:
            return self._write(rows, output)
        except BaseException as error:
            output.remove_all()
            raise _unwritten(self._table, error) from error

    def discard(self, files: Sequence[IcebergFile]) -> None:
        remove_files(self._table, files)

    def _write_rows(self, rows: pa.Table, output: "_NotedOutput") -> list[IcebergFile]:
        write = library("pyiceberg.io.pyarrow", "iceberg", "IcebergSink")._dataframe_to_data_files
        metadata = self._table.metadata
        found = write(table_metadata=metadata, df=rows, io=output)
        return [plain_file(file, metadata.default_spec_id) for file in found]

    def _write_changes(self, rows: pa.Table, output: "_NotedOutput") -> list[IcebergFile]:
        path = f"{self._stem}-{self._count}.parquet"
        self._count += 1
        with output.new_output(path).create(overwrite=True) as file:
            parquet.write_table(rows, file)
        return [IcebergFile(path, file_size(self._table, path) or 0)]


class _NotedOutput:
    """The table's files, with a list of those that were begun."""

    def __init__(self, io: Any) -> None:
        self._io = io
        self._begun: list[str] = []

    def new_output(self, location: str) -> Any:
        self._begun.append(location)
        return self._io.new_output(location)

    def remove_all(self) -> None:
        for path in self._begun:
            with suppress(Exception):
                self._io.delete(path)


def file_size(table: OpenTable, path: str) -> int | None:
    """In bytes; None: it is not there."""
    try:
        file = table.io.new_input(path)
        return len(file) if file.exists() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PathUnusable(
            path,
            f"cannot be read: {reason(error, 'every worker needs to see the files of the table')}",
        ) from error


def read_changes(table: OpenTable, files: Sequence[IcebergFile]) -> pa.Table:
    """Staged changes."""
    found = []
    for file in files:
        with table.io.new_input(file.path).open() as stream:
            found.append(parquet.read_table(stream))
    return pa.concat_tables(found)


def remove_files(table: OpenTable, files: Sequence[IcebergFile]) -> None:
    """As far as that is possible: nobody reads them."""
    for file in files:
        with suppress(Exception):
            table.io.delete(file.path)


def _unwritten(table: OpenTable, error: BaseException) -> BaseException:
    if isinstance(error, OSError):
        return PathUnusable(
            table.location(),
            f"cannot be written: {reason(error, 'check its rights and space')}",
        )
    if isinstance(error, Exception):
        return ConnectorError(
            f"rows of the Iceberg table {'.'.join(table.name())} cannot be written: {words(error)}"
        )
    return error
