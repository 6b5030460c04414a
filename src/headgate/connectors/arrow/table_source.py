"""An Arrow table as a source of batches; its rows travel with the job.

Law: each task has a range of rows, and a position is the next row of it, so that a job that goes on
with another parallelism reads the ranges of before to their ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from headgate.base.errors import PlanInvalid
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitLag, SplitReader

BATCH_ROWS: Final = 65_536


@dataclass(frozen=True)
class ArrowTableSource(Source):
    """See ``StreamExecutionEnvironment.from_arrow``."""

    untimed = True
    finds_more = False

    table: pa.Table = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Its own rows, not those of a table that it may be a slice of."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _revive, (bytes(sink.getvalue()),)

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        rows = self.table.num_rows
        ends = [rows * number // parallelism for number in range(parallelism + 1)]
        return list(pairwise(ends))

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "TableReader":
        start, end = split
        return TableReader(self.table, start if position is None else position, end)


class TableReader(SplitReader):
    """Slices of the table, without copies."""

    gives_away = True

    def __init__(self, table: pa.Table, first: int, end: int) -> None:
        self._table = table
        self._next = first
        self._end = end

    def poll(self, limit: int) -> list[pa.RecordBatch] | None:
        if self._next >= self._end:
            return None
        rows = min(BATCH_ROWS, self._end - self._next)
        batches = self._table.slice(self._next, rows).to_batches()
        self._next += rows
        return list(batches)

    def position(self) -> int:
        return self._next

    def lag(self) -> SplitLag:
        return SplitLag(records=self._end - self._next)


def arrow_source(table: object) -> ArrowTableSource:
    """The source of a table, a batch, or several batches; raises PlanInvalid."""
    if isinstance(table, pa.RecordBatch):
        table = [table]
    if isinstance(table, list | tuple) and table:
        try:
            table = pa.Table.from_batches(table)
        except (pa.ArrowException, TypeError) as error:
            problem = str(error).partition("\n")[0].rstrip(": ")
            raise PlanInvalid(
                f"from_arrow() was given batches that do not fit together: {problem}"
            ) from None
    if not isinstance(table, pa.Table):
        raise PlanInvalid(
            f"from_arrow() was given a {type(table).__name__}; give a Table or RecordBatch of "
            f"pyarrow, or a list of batches"
        )
    return ArrowTableSource(table)


def _revive(data: bytes) -> ArrowTableSource:
    with pa.ipc.open_stream(data) as stream:
        return ArrowTableSource(stream.read_all())
