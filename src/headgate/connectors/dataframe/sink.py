"""Records as rows of a Spark DataFrame; they leave each process through its bridge.

Law: when ``flush`` has returned, all rows were handed over. Batches have the size that suits Spark,
in rows and in bytes; if only some rows are wanted, none waits for others.
"""

import secrets
from typing import Any, Final

from headgate.connectors.arrow.columns import ColumnMaker, RowShape
from headgate.connectors.dataframe.bridge import BatchBridge, outlet_of
from headgate.core.columns.batches import SchemaCheck
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter

MOST_ROWS: Final = 10_000
FIRST_ROWS: Final = 64
"""Rows of the first batch, from which the size of the others follows."""
BATCH_BYTES: Final = 4 * 1024 * 1024


class DataFrameSink(Sink):
    """The shape is known when the DataFrame is made; ``schema`` is what the user has given."""

    def __init__(self, schema: object, as_batches: bool = False) -> None:
        """``as_batches``: its records are Arrow batches."""
        self.schema: object = schema
        self.as_batches = as_batches
        self.shape: RowShape | None = None
        self.token = secrets.token_hex(8)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "schema": None}

    def create_writer(self, context: ConnectorContext) -> SinkWriter:
        assert self.shape is not None, "the schema was not read before the job was launched"
        if self.as_batches:
            return FrameBatchWriter(outlet_of(self.token), SchemaCheck(self.shape.schema))
        maker = ColumnMaker(self.shape, context.operator)
        return RowWriter(outlet_of(self.token), maker, len(self.shape.names))


class RowWriter(SinkWriter):
    """Buffers values by column. ``write`` may block until Spark has taken earlier rows."""

    def __init__(self, bridge: BatchBridge, maker: ColumnMaker, width: int) -> None:
        self._bridge = bridge
        self._maker = maker
        self._columns: list[list[Any]] = [[] for _ in range(width)]
        self._target = FIRST_ROWS

    def write(self, records: list[Any]) -> None:
        start = 0
        while start < len(records):
            part = records[start : start + self._target - len(self._columns[0])]
            start += len(part)
            for column, values in zip(self._columns, self._maker.columns(part), strict=True):
                column.extend(values)
            if len(self._columns[0]) >= self._target:
                self.flush()
        if self._bridge.is_limited:
            self.flush()

    def flush(self) -> None:
        rows = len(self._columns[0])
        if not rows:
            return
        batch = self._maker.batch(self._columns)
        for column in self._columns:
            column.clear()
        fitting = rows * BATCH_BYTES // max(1, batch.nbytes)
        self._target = max(1, min(MOST_ROWS, fitting))
        self._bridge.send(batch)

    def close(self) -> None:
        self._columns = [[] for _ in self._columns]


class FrameBatchWriter(SinkWriter):
    """Hands batches on as they are, but for types that Spark would not take."""

    def __init__(self, bridge: BatchBridge, check: SchemaCheck) -> None:
        self._bridge = bridge
        self._check = check

    def write(self, records: list[Any]) -> None:
        for batch in records:
            if batch.num_rows:
                self._bridge.send(self._check.fit(batch, "it was given"))

    def flush(self) -> None:
        """Nothing waits here."""
