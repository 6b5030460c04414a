"""The rows of a Spark DataFrame as a source; they come to each task through its process's border.

Law: each row is read once, by one task; their order is not kept. There is no position: Spark gives
the rows anew to a job that begins anew.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final

from headgate.api.row import Row
from headgate.api.source import Source, SplitReader
from headgate.connectors.arrow_rows import RowMaker
from headgate.connectors.border import Inlet, inlet_of
from headgate.core.chain.context import OperatorContext

WAIT_MS: Final = 1.0
FEWEST_ROWS: Final = 256
"""So many rows are made at a time, also for a task that takes fewer: a slice costs some calls."""


class DataFrameSource(Source):
    """What travels is the token and the names; the DataFrame itself stays in the driver."""

    untimed = True

    def __init__(self, dataframe: Any, names: Sequence[str]) -> None:
        self.dataframe = dataframe
        self.names = tuple(names)
        self.token = secrets.token_hex(8)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "dataframe": None}

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(parallelism)

    def open(self, split: object, position: object, context: OperatorContext) -> SplitReader:
        return RowReader(inlet_of(self.token), self.names)


class RowReader(SplitReader):
    """Takes batches from the inlet and makes rows of them."""

    gives_away = True

    def __init__(self, inlet: Inlet, names: Sequence[str]) -> None:
        self._inlet = inlet
        self._maker = RowMaker(names)
        self._batch: Any = None
        self._read = 0
        """Rows of the batch that were made."""
        self._rows: list[Row] = []
        self._given = 0

    def poll(self, limit: int) -> list[Row] | None:
        if self._given >= len(self._rows) and not self._make_rows(limit):
            return None if self._inlet.has_ended else []
        rows = self._rows[self._given : self._given + limit]
        self._given += len(rows)
        return rows

    def wait_ms(self) -> float:
        return WAIT_MS

    def close(self) -> None:
        self._batch = None
        self._inlet.close()

    def _make_rows(self, limit: int) -> bool:
        while self._batch is None or self._read >= self._batch.num_rows:
            self._batch, self._read = self._inlet.take(), 0
            if self._batch is None:
                return False
        part = self._batch.slice(self._read, max(limit, FEWEST_ROWS))
        self._read += part.num_rows
        self._rows, self._given = self._maker.rows(part), 0
        return True
