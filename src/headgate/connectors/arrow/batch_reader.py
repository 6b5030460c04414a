"""Rows of one data file of a lake's table, as a split of a source.

The files of a table never change, so that a position is a number of rows. Law: ``position`` rows
were given, in the order of the file. A split may be a refusal instead of a file: an enumerator in
the driver that finds what its source cannot read lets the task that gets the split say so, because
its own errors are taken for ones that pass.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from headgate.base.elements import Record
from headgate.base.errors import TableUnfit
from headgate.connectors.arrow.columns import RowMaker
from headgate.functions.source import SplitLag, SplitReader

BATCH_ROWS: Final = 16 * 1024
"""Rows that are decoded at a time."""

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]
OpenBatches: TypeAlias = Callable[[int], Batches]
"""The batches of a file behind so many rows."""


class DataFileReader(SplitReader):
    """Makes rows of batches."""

    gives_away = True

    def __init__(
        self, open_batches: OpenBatches, names: Sequence[str], position: object, total: int | None
    ) -> None:
        """``total``: rows of the file; None: not known."""
        assert position is None or isinstance(position, int), position
        self._open = open_batches
        self._batches: Batches | None = None
        """Begun with the first poll, for a task may have many readers."""
        self._batch: pa.RecordBatch | None = None
        self._taken = 0
        """Rows of the batch that were given."""
        self._given = position or 0
        self._total = total
        self._maker = RowMaker(names)
        self._ended = False

    def poll(self, limit: int) -> Sequence[Record] | None:
        if self._ended:
            return None
        if self._batches is None:
            self._batches = self._open(self._given)
        while self._batch is None or self._taken == self._batch.num_rows:
            self._batch, self._taken = next(self._batches, None), 0
            if self._batch is None:
                self.close()
                return None
        rows = self._maker.rows(self._batch.slice(self._taken, limit))
        self._taken += len(rows)
        self._given += len(rows)
        return rows

    def wait_ms(self) -> float:
        return 0.0

    def position(self) -> int:
        return self._given

    def lag(self) -> SplitLag | None:
        return None if self._total is None else SplitLag(max(0, self._total - self._given))

    def close(self) -> None:
        self._ended, self._batch = True, None
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


class RefusingReader(SplitReader):
    """Of a split that says why its source cannot go on."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def poll(self, limit: int) -> Sequence[Record] | None:
        raise TableUnfit(self._problem)


def without_rows(batch: pa.RecordBatch, skipped: int) -> tuple[pa.RecordBatch, int]:
    """The batch without its first rows, and how many of the next one are to be left out."""
    here = min(skipped, batch.num_rows)
    return batch.slice(here), skipped - here
