"""The rows of a Spark DataFrame as a source; each task gets its own by the bridge of its process.

Law: each row is read once, by one task; their order is not kept unless one was requested. Spark
delivers all rows again to a restarted job, so a position is a number of rows to skip. That is sound
only if each partition has the same rows in the same order again; a fingerprint of the last row that
was read is compared.
"""

import pickle
import secrets
from collections.abc import Sequence
from hashlib import blake2b
from math import inf
from typing import Any, Final, TypeAlias

from headgate.api.row import Row
from headgate.base.errors import StateBroken
from headgate.base.moved import first_bytes
from headgate.connectors.arrow.columns import RowMaker
from headgate.connectors.dataframe.bridge import Inlet, inlet_of
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

FEWEST_ROWS: Final = 256
"""Rows converted at a time, even if the task takes fewer: each slice costs several calls."""

Read: TypeAlias = tuple[int, bytes, int]
"""How many rows were emitted, a fingerprint of the last of them, and the number of tasks."""


class DataFrameSource(Source):
    """Only the token and the names are pickled; the DataFrame itself stays in the driver."""

    untimed = True
    finds_more = False

    def __init__(
        self,
        dataframe: Any,
        names: Sequence[str],
        order_by: Sequence[int] = (),
        partition_by: Sequence[int] = (),
    ) -> None:
        """Columns to order and to partition by are given by position."""
        self.dataframe = dataframe
        self.names = tuple(names)
        self.order_by = tuple(order_by)
        self.partition_by = tuple(partition_by)
        self.as_batches = False
        """Whether its records are Arrow batches instead of rows."""
        self.token = secrets.token_hex(8)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "dataframe": None}

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(parallelism)

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        assert position is None or isinstance(position, tuple), position
        parallelism = context.task.parallelism
        if position is not None and position[2] != parallelism:
            raise StateBroken(
                f"the rows of a DataFrame were read by {position[2]} tasks when the checkpoint was "
                f"taken, and Spark would share them out anew among {parallelism}; set the "
                f"parallelism of this source to {position[2]}"
            )
        inlet = inlet_of(self.token)
        inlet.wake = context.wake
        reader = FrameBatchReader if self.as_batches else RowReader
        return reader(inlet, self.names, position or (0, b"", parallelism))

    def passed_over(self, split: object) -> None:
        """Spark brings the rows nevertheless; they are dropped."""
        inlet_of(self.token).close()


class RowReader(SplitReader):
    """Takes batches from the inlet and makes rows of them."""

    gives_away = True

    def __init__(self, inlet: Inlet, names: Sequence[str], before: Read = (0, b"", 1)) -> None:
        """``before``: what an earlier run has read."""
        self._inlet = inlet
        self._names = names
        self._maker = RowMaker(names)
        self._batch: Any = None
        self._read = 0
        """Rows of the batch that were made."""
        self._rows: list[Row] = []
        self._given = 0
        self._before = before
        self._passed = 0
        """Rows that were skipped, and those of earlier ``_rows``."""
        self._last: Any = None
        """A batch whose last row is the last one of them."""

    def poll(self, limit: int) -> list[Row] | None:
        if self._passed < self._before[0] and not self._pass_over():
            return []
        if self._given >= len(self._rows) and not self._make_rows(limit):
            return None if self._inlet.has_ended else []
        rows = self._rows[self._given : self._given + limit]
        self._given += len(rows)
        return rows

    def wait_ms(self) -> float:
        return inf

    def position(self) -> Read | None:
        count, _, parallelism = self._before
        if self._passed + self._given <= count:
            return self._before if count else None
        # Converted again: the user's function may have changed the row.
        batch, place = self._batch, self._read - len(self._rows) + self._given - 1
        if not self._given:
            batch, place = self._last, self._last.num_rows - 1
        return self._passed + self._given, self._fingerprint(batch, place), parallelism

    def close(self) -> None:
        self._batch = self._last = None
        self._inlet.close()

    def _make_rows(self, limit: int) -> bool:
        if self._rows:
            self._passed += len(self._rows)
            self._last = self._batch.slice(0, self._read)
            self._rows, self._given = [], 0
        if not self._has_batch():
            return False
        part = self._batch.slice(self._read, max(limit, FEWEST_ROWS))
        self._read += part.num_rows
        self._rows = self._maker.rows(part)
        return True

    def _has_batch(self) -> bool:
        while self._batch is None or self._read >= self._batch.num_rows:
            self._batch, self._read = self._inlet.take(), 0
            if self._batch is None:
                return False
        return True

    def _pass_over(self) -> bool:
        """Skip the rows of an earlier run; False: not all of them have arrived yet."""
        count, word, _ = self._before
        while self._passed < count:
            if not self._has_batch():
                if self._inlet.has_ended:
                    raise _other_rows(f"there are only {self._passed} of {count}")
                return False
            some = min(self._batch.num_rows - self._read, count - self._passed)
            self._read += some
            self._passed += some
        if self._fingerprint(self._batch, self._read - 1) != word:
            raise _other_rows(f"row {count} of them is another one now")
        return True

    def _fingerprint(self, batch: Any, place: int) -> bytes:
        (row,) = self._maker.rows(batch.slice(place, 1))
        values = list(row)
        return blake2b(first_bytes(pickle.dumps(values, 5), values), digest_size=12).digest()


class FrameBatchReader(RowReader):
    """Gives the batches themselves; their rows are counted as those of ``RowReader``."""

    def poll(self, limit: int) -> list[Any] | None:
        if self._passed < self._before[0] and not self._pass_over():
            return []
        if not self._has_batch():
            return None if self._inlet.has_ended else []
        part = self._batch.slice(self._read)
        self._read = self._batch.num_rows
        self._passed += part.num_rows
        self._last = self._batch
        return [named(part, self._names)]


def named(batch: Any, names: Sequence[str]) -> Any:
    """With the names of the DataFrame: Spark's own may differ."""
    return batch if batch.schema.names == list(names) else batch.rename_columns(list(names))


def _other_rows(problem: str) -> StateBroken:
    return StateBroken(
        f"rows of a DataFrame were read before a checkpoint, and {problem}; a job can go on only "
        f"if the DataFrame gives the same rows in the same order again: read files or a table in "
        f"an order of its own, or write the rows to files and read these"
    )
