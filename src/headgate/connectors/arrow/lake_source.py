"""What sources of tables share: settings, an enumerator that follows a table, and data files.

The files of a table never change, so that a position is a number of rows. Law: ``position`` rows
were given, in the order of the file. A split may be a refusal instead of a file: if an enumerator
in the driver finds what its source cannot read, the task that gets the split raises the error,
because errors of enumerators are taken for ones that pass.
"""

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, TableUnfit
from headgate.connectors.arrow.columns import RowMaker
from headgate.connectors.checks import COUNT, check_settings
from headgate.functions.source import Position, Source, SplitEnumerator, SplitLag, SplitReader

BATCH_ROWS: Final = 16 * 1024
"""Rows that are decoded at a time."""
DISCOVER_MS: Final = 1000
BEGIN_ANEW: Final = "start the job anew, without its checkpoint"

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]
OpenBatches: TypeAlias = Callable[[int], Batches]
"""The batches of a file after so many rows."""


class LakeSource(Source):
    """Rows of a table as of a version, and with ``follow`` those that later versions append."""

    untimed = True
    finds_more = True
    splits_end = True

    def __init__(
        self,
        address: Any,
        columns: Sequence[str] | None,
        follow: bool,
        only_new: bool,
        skip_changes: bool,
        discover_ms: int,
    ) -> None:
        """``address``: where the table is; its ``where`` names it in messages."""
        if only_new and not follow:
            raise PlanInvalid(f"{address.user}: only_new=True reads nothing without follow=True")
        self.address = address
        self.columns = None if columns is None else tuple(columns)
        self.follow = bool(follow)
        self.only_new = bool(only_new)
        self.skip_changes = bool(skip_changes)
        self.discover_ms = discover_ms
        check_settings(self, {"discover_ms": COUNT})

    @property
    def bounded(self) -> bool:
        return not self.follow


class FollowingEnumerator(SplitEnumerator):
    """Finds splits until the source cannot read what is there: the last split says so."""

    unfit: type[ConnectorError] = TableUnfit
    """An error that every attempt would meet."""

    def __init__(self, position: Position) -> None:
        self.seen: Any = position
        """How far it has come, as checkpoints hold it; None: it has found nothing yet."""
        self._has_refused = False

    def discover(self) -> Sequence[object]:
        if self._has_refused:
            return []
        try:
            return self.find()
        except self.unfit as error:
            if self.seen is None:
                raise
            self._has_refused = True
            return [self.refusal(str(error))]

    def position(self) -> Position:
        seen: Position = self.seen
        return seen

    @abstractmethod
    def find(self) -> Sequence[object]:
        """The splits that are new; raises ``unfit``."""

    @abstractmethod
    def refusal(self, problem: str) -> object:
        """The split of which a reader raises ``problem``."""


class LakeEnumerator(FollowingEnumerator):
    """Reads what a table says of its versions, in the driver."""

    def __init__(self, source: LakeSource, position: Position) -> None:
        super().__init__(position)
        self.interval_ms = source.discover_ms if source.follow else None
        self._lake = source

    def find(self) -> Sequence[object]:
        if self.seen is None:
            return self.begin()
        found: list[object] = []
        try:
            for splits in self.later() if self._lake.follow else ():
                found += splits
        except TableUnfit:
            if not found:  # else these are read first; the next call finds the same
                raise
        return found

    @abstractmethod
    def begin(self) -> Sequence[object]:
        """The files of the version that is read as a whole, which is ``seen`` then."""

    @abstractmethod
    def later(self) -> Iterator[Sequence[object]]:
        """The files of each version after ``seen``, which moves on with each of them."""


class DataFileReader(SplitReader):
    """Makes rows of batches."""

    gives_away = True

    def __init__(
        self, open_batches: OpenBatches, names: Sequence[str], position: object, total: int | None
    ) -> None:
        """``total``: rows of the file; None: not known.

        A file that was read to its end is not opened again: it may be removed already.
        """
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
        self._ended = position is not None and position == total

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
    """Raises the error for which a split stands."""

    def __init__(self, error: ConnectorError) -> None:
        self._error = error

    def poll(self, limit: int) -> Sequence[Record] | None:
        raise self._error


def without_rows(batch: pa.RecordBatch, skipped: int) -> tuple[pa.RecordBatch, int]:
    """The batch without its first rows, and how many of the next one are to be left out."""
    here = min(skipped, batch.num_rows)
    return batch.slice(here), skipped - here
