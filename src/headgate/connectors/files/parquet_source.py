"""Parquet files as a source: rows, or Arrow batches, one row group after the other.

A split owns the row groups that begin in its bytes. Only the columns that are wanted are read; a
row filter leaves out row groups by their statistics, and rows by their values. Law: a position is a
row group and a row in it, counted before the filter, so that a job may go on with another filter or
with other columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, dataset, parquet

from headgate.api.row import Row
from headgate.base.elements import Record
from headgate.base.errors import FileGone, PathUnusable, PlanInvalid
from headgate.connectors.arrow.columns import RowMaker
from headgate.connectors.arrow.types import arrow_schema
from headgate.connectors.files.file_access import FileAccess, ListedFile, printable
from headgate.connectors.files.source import DISCOVER_MS, SPLIT_BYTES, FilesSource
from headgate.connectors.files.splits import FileSplit, find_split, skip_missing_file
from headgate.connectors.paths import AnyPath
from headgate.functions.context import ConnectorContext
from headgate.functions.source import SplitLag, SplitReader

BATCH_ROWS: Final = 16 * 1024
"""Rows that are decoded at a time."""
FEWEST_ROWS: Final = 256
"""Rows made at a time, even if the task takes fewer: each slice costs several calls."""

_MAGIC: Final = b"PAR1"
_KEPT: Final = "__headgate_kept__"
_ERRORS: Final = (pa.ArrowException, OSError, ValueError)


@dataclass(unsafe_hash=True, init=False)
class ParquetSource(FilesSource):
    """Rows with the names of the columns; ``as_batches``: Arrow record batches instead."""

    columns: tuple[str, ...] | None
    row_filter: Any = field(compare=False)
    schema: pa.Schema | None
    as_batches: bool

    kind = "Parquet files"
    by_lines = False
    can_cut = True

    def __init__(
        self,
        *paths: AnyPath,
        columns: Sequence[str] | None = None,
        row_filter: object = None,
        schema: object = None,
        as_batches: bool = False,
        follow: bool = False,
        discover_ms: int = DISCOVER_MS,
        split_bytes: int | None = SPLIT_BYTES,
        skip_missing: bool = False,
    ) -> None:
        """``row_filter``: an expression of pyarrow, or ``[("age", ">", 30), …]``, of which all
        count. ``schema``: ``Types.ROW_NAMED(...)`` or an Arrow schema: its columns are read, and
        cast to its types; None: all columns, or ``columns``, as the files have them.
        """
        self._set_files(paths, follow, discover_ms, split_bytes, skip_missing)
        wanted = None if schema is None else arrow_schema(schema, "ParquetSource")
        if columns is not None and not (columns := list(columns)):
            raise PlanInvalid("ParquetSource: columns is empty; name at least one, or give None")
        if wanted is not None:
            if columns is not None:
                wanted = pa.schema([_field(wanted, name) for name in columns])
            columns = wanted.names
        self.columns = None if columns is None else tuple(columns)
        self.row_filter = _expression(row_filter)
        self.schema = wanted
        self.as_batches = bool(as_batches)

    def is_finished(self, access: FileAccess, file: ListedFile) -> bool:
        """A file gets its last bytes when it is closed."""
        if file.size < 3 * len(_MAGIC):
            return False
        raw = access.open_raw(file.path)
        try:
            raw.seek(file.size - len(_MAGIC))
            return bool(raw.read(len(_MAGIC)) == _MAGIC)
        finally:
            raw.close()

    def open_file(
        self, split: FileSplit, position: object, context: ConnectorContext
    ) -> "ParquetReader":
        return ParquetReader(self, split, position, context)


def _field(schema: pa.Schema, name: str) -> pa.Field:
    if name not in schema.names:
        raise PlanInvalid(
            f"ParquetSource: column {name!r} is not in the schema, which has "
            f"{', '.join(schema.names)}; name it there"
        )
    return schema.field(name)


def _expression(row_filter: object) -> Any:
    if row_filter is None or isinstance(row_filter, compute.Expression):
        return row_filter
    try:
        return parquet.filters_to_expression(row_filter)
    except (*_ERRORS, TypeError) as error:
        raise PlanInvalid(
            f"ParquetSource: the row filter {row_filter!r} cannot be read ({error}); give an "
            f"expression of pyarrow.compute, or tuples such as ('age', '>', 30)"
        ) from None


class ParquetReader(SplitReader):
    """The row groups of one split, from a row on."""

    gives_away = True

    def __init__(
        self,
        source: ParquetSource,
        split: FileSplit,
        position: object,
        context: ConnectorContext,
    ) -> None:
        self._source = source
        self._split = split
        self._context = context
        self._access = FileAccess(source.paths)
        self._path = printable(split.path)
        self._file: Any = None
        """Open from the first poll to the end of the split, for a task may have many readers."""
        self._scanned: Any = None
        """The file, opened once more for the row filter."""
        self._fragment: Any = None
        self._ended = False
        self._groups: list[int] = []
        """Row groups that are not begun."""
        assert position is None or isinstance(position, tuple), position
        self._group, self._row = position or (-1, 0)
        """The row group that is being read, and the row that its batch begins with."""
        self._skip = self._row
        """Rows of the group that an earlier reader has given."""
        self._batches: Iterator[Any] | None = None
        self._batch: Any = None
        self._length = 0
        """The length of the batch in rows of the file."""
        self._kept: Any = None
        """Which rows of the file the rows of the batch are; None: all."""
        self._made = 0
        """Rows of the batch that are records, or were."""
        self._records: list[Record] = []
        self._taken = 0
        self._maker: RowMaker | None = None

    def poll(self, limit: int) -> Sequence[Record] | None:
        while self._taken == len(self._records):
            if not self._make(limit):
                return None
        records = self._records[self._taken : self._taken + limit]
        self._taken += len(records)
        return records

    def wait_ms(self) -> float:
        return 0.0

    def position(self) -> tuple[int, int] | None:
        if self._group < 0:
            return None
        if self._batch is None:
            return self._group, max(self._row, self._skip)
        if self._source.as_batches:
            given = self._made
        else:
            given = self._made - len(self._records) + self._taken
        if given and self._kept is not None:
            given = self._kept[given - 1].as_py() + 1
        return self._group, self._row + given

    def lag(self) -> SplitLag | None:
        """The bytes of row groups that were not begun, and the rest of this one."""
        if self._ended:
            return SplitLag(bytes=0)
        if self._file is None:
            found = self._access.stat(self._split.path)
            size = 0 if found is None else found.size
            end = size if self._split.end is None else min(size, self._split.end)
            return SplitLag(bytes=max(0, end - self._split.start))
        metadata = self._file.metadata
        left = sum(_bytes(metadata.row_group(group)) for group in self._groups)
        if self._group >= 0:
            group = metadata.row_group(self._group)
            rows = max(1, group.num_rows)
            left += _bytes(group) * max(0, rows - self._row - self._made) // rows
        return SplitLag(bytes=left)

    def close(self) -> None:
        self._ended = True
        self._batches = self._batch = self._fragment = None
        self._close_files()

    def _close_files(self) -> None:
        if self._file is not None:
            self._file.close(force=True)
        if self._scanned is not None:
            self._scanned.close()
        self._file = self._scanned = None

    # Records.

    def _make(self, limit: int) -> bool:
        """Make the next records; False: there are none."""
        while self._batch is None or self._made == self._batch.num_rows:
            if not self._next_batch():
                return False
        # A task counts batches as records, so that its limit says nothing about rows.
        rows = BATCH_ROWS if self._source.as_batches else max(limit, FEWEST_ROWS)
        part = self._batch.slice(self._made, rows)
        self._made += part.num_rows
        self._taken = 0
        if self._source.as_batches:
            self._records = [part]
        else:
            assert self._maker is not None
            self._records = list[Row](self._maker.rows(part))
        return True

    def _next_batch(self) -> bool:
        """False: the split has ended."""
        if self._ended or (self._file is None and not self._open()):
            self.close()
            return False
        self._row += self._length
        self._length, self._batch, self._kept, self._made = 0, None, None, 0
        self._records, self._taken = [], 0
        if self._batches is None:
            if not self._groups:
                self.close()
                return False
            group = self._groups.pop(0)
            if group != self._group:
                self._group, self._skip = group, 0
            self._row = 0
            self._batches = self._read_group(group)
        try:
            batch = next(self._batches, None)
            if batch is None:
                self._batches = None
                self._row = self._skip = self._file.metadata.row_group(self._group).num_rows
            else:
                self._take(batch)
        except _ERRORS as error:
            raise self._broken(error) from error
        return True

    def _take(self, batch: Any) -> None:
        """A batch as the file has it: without rows that were read, or that nobody wants."""
        self._length = batch.num_rows
        before = max(0, min(self._length, self._skip - self._row))
        if before:
            self._row += before
            self._length -= before
            batch = batch.slice(before)
        if self._source.row_filter is not None:
            mask = compute.fill_null(batch.column(_KEPT), False)
            self._kept = compute.indices_nonzero(mask)
            batch = batch.select([name for name in batch.schema.names if name != _KEPT])
            batch = batch.filter(mask)
        if (schema := self._source.schema) is not None:
            columns = [
                column if column.type == wanted.type else column.cast(wanted.type)
                for column, wanted in zip(batch.columns, schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        self._batch = batch
        if self._maker is None:
            self._maker = RowMaker(batch.schema.names)

    # The file.

    def _open(self) -> bool:
        """False: the file is gone, which is no error here."""
        try:
            self._open_found()
        except FileGone as error:
            if not self._source.skip_missing:
                raise
            skip_missing_file(self._context, error)
            return False
        self._check_columns(self._file.schema_arrow.names)
        owned = self._owned()
        if self._source.row_filter is not None:
            self._fragment = dataset.ParquetFileFormat().make_fragment(self._scanned)
            try:
                some = self._fragment.subset(self._source.row_filter)
            except _ERRORS as error:
                raise self._broken(error) from error
            matching = {group.id for group in some.row_groups}
            owned = [group for group in owned if group in matching or group == self._group]
        self._groups = [group for group in owned if group >= self._group]
        return True

    def _open_found(self) -> None:
        """Its file may be renamed at any moment, and another one take the name."""
        while True:
            path = find_split(self._access, self._split)
            self._path = printable(path)
            problem: Exception | None = None
            try:
                self._file = self._open_parquet(path)
                if self._source.row_filter is not None:
                    self._scanned = self._open_raw(path)
            except (FileGone, *_ERRORS) as error:
                problem = error
            if find_split(self._access, self._split) == path:
                break
            self._close_files()
        if isinstance(problem, FileGone):
            raise problem
        if problem is not None:
            raise self._broken(problem) from problem

    def _open_parquet(self, path: str) -> Any:
        raw = self._open_raw(path)
        try:
            return parquet.ParquetFile(raw)
        except BaseException:
            raw.close()
            raise

    def _open_raw(self, path: str) -> Any:
        try:
            return self._access.open_arrow(path)
        except FileNotFoundError as error:
            raise FileGone(self._path, "is not here; every worker needs to see the file") from error

    def _owned(self) -> list[int]:
        metadata, split = self._file.metadata, self._split
        groups = []
        for number in range(metadata.num_row_groups):
            begin = _begin(metadata.row_group(number))
            if split.start <= begin and (split.end is None or begin < split.end):
                groups.append(number)
        return groups

    def _read_group(self, group: int) -> Iterator[Any]:
        columns = None if self._source.columns is None else list(self._source.columns)
        row_filter = self._source.row_filter
        if row_filter is None:
            batches = self._file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
            )
            return (batch if columns is None else batch.select(columns) for batch in batches)
        names = columns or self._file.schema_arrow.names
        wanted = {**{name: compute.field(name) for name in names}, _KEPT: row_filter}
        part = self._fragment.subset(row_group_ids=[group])
        scan = part.scanner(columns=wanted, batch_size=BATCH_ROWS, use_threads=False)
        return iter(scan.to_batches())

    def _check_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in self._source.columns or () if name not in names]
        if missing:
            raise PathUnusable(
                self._path,
                f"has no column {missing[0]!r}, it has {', '.join(names)}; write it, or do not "
                f"ask for it",
            )

    def _broken(self, error: Exception) -> PathUnusable:
        problem = str(error).partition("\n")[0].rstrip(".")
        return PathUnusable(self._path, f"cannot be read as Parquet: {problem}")


def _begin(group: Any) -> int:
    """Where the first page of a row group is."""
    column = group.column(0)
    places = (column.dictionary_page_offset, column.data_page_offset)
    return int(min(place for place in places if place is not None))


def _bytes(group: Any) -> int:
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))


class ParquetColumnarRowInputFormat:
    """The format of ``FileSource.for_bulk_file_format``, where PyFlink has it."""

    def __init__(
        self,
        row_type: object,
        hadoop_config: object = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        """``row_type`` is ``Types.ROW_NAMED(...)``; the others are taken for PyFlink's sake."""
        self._schema = arrow_schema(row_type, "ParquetColumnarRowInputFormat")

    def make_source(self, *paths: AnyPath, follow: bool, discover_ms: int) -> ParquetSource:
        return ParquetSource(*paths, schema=self._schema, follow=follow, discover_ms=discover_ms)
