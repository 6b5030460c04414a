"""``spark.read.format("headgate-state").load(path)``: the state of a checkpoint as a DataFrame.

Spark asks this class in processes of its own: for the schema and the partitions once, beside the
driver, and in its workers for the rows of each partition, as Arrow batches. Law: the metadata is
read and its signature checked once; workers get pieces with their digests, and neither key nor
metadata. Options: ``uid``, ``state``, ``kind`` (keyed, timers, operator), ``secretFile``,
``loadClasses``, ``partitionBytes``.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headgate.base.errors import SettingsInvalid
from headgate.core.state.snapshot import Entry, Load
from headgate.host.saved_state.loading import SafeLoader, load_classes
from headgate.host.saved_state.pieces import KeyedPart, PlainPart
from headgate.host.saved_state.reader import PART_BYTES, SavedOperator, open_state
from headgate.spark.dataframe.schema import arrow_schema
from headgate.spark.state_table.tables import (
    KEYED_TABLE,
    OPERATOR_TABLE,
    ArrowColumns,
    StateTable,
    find_table,
)

FORMAT: Final = "headgate-state"
BATCH_ROWS: Final = 4_000
"""What is decoded at a time: more does not stay in the caches of a core."""


class StateDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Raises CheckpointError, StateBroken or SettingsInvalid."""
        return _Request(self.options).table()[1].ddl

    def reader(self, schema: StructType) -> "StateTableReader":
        return StateTableReader(_Request(self.options), schema)


class _Request:
    """What the options ask for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        path = options.get("path")
        if not path:
            raise SettingsInvalid("path", "is not given; name a checkpoint: load('/…/chk-7')")
        self.path = path
        self.uid = options.get("uid") or ""
        self.state = options.get("state") or ""
        self.kind = options.get("kind") or KEYED_TABLE
        self.secret_file = options.get("secretFile") or ""
        loads_classes = (options.get("loadClasses") or "false").lower()
        if loads_classes not in ("true", "false"):
            raise SettingsInvalid("loadClasses", f"is {loads_classes!r}; give true or false")
        self.loads_classes = loads_classes == "true"
        part_bytes = options.get("partitionBytes") or str(PART_BYTES)
        if not part_bytes.isdecimal() or part_bytes == "0":
            raise SettingsInvalid("partitionBytes", f"is {part_bytes!r}; give a number of bytes")
        self.part_bytes = int(part_bytes)

    def table(self) -> tuple[SavedOperator, StateTable]:
        saved = open_state(
            self.path, loads_classes=self.loads_classes, secret_file=self.secret_file
        )
        operator = saved.operator(self.uid, self.state)
        return operator, find_table(operator, self.kind, self.state)


@dataclass(frozen=True, slots=True)
class _Share(InputPartition):
    """What one task of Spark reads."""

    table: StateTable
    operator: str
    part: KeyedPart | PlainPart


class StateTableReader(DataSourceReader):
    """Reads one table of an operator."""

    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        operator, table = self._request.table()
        if table.kind == OPERATOR_TABLE:
            return [_Share(table, operator.uid, part) for part in operator.plain_parts()]
        parts = operator.parts(self._request.part_bytes)
        return [_Share(table, operator.uid, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Share):  # Spark's own, where there are no partitions
            return
        load: Load = load_classes if self._request.loads_classes else SafeLoader(saves_rows=True)
        yield from _without_gc(self._batches(partition, load))

    def _batches(self, share: _Share, load: Load) -> Iterator[pa.RecordBatch]:
        columns = ArrowColumns(arrow_schema(self._schema), share.operator)
        table, part = share.table, share.part
        if isinstance(part, PlainPart):
            rows = part.rows(load)
            while held := list(islice(rows, BATCH_ROWS)):
                yield columns.batch(self._chosen(table, table.operator_values(held)))
            return
        gathered: list[Entry] = []
        for _, _, entries in part.pieces(load):
            gathered += entries
            if len(gathered) >= BATCH_ROWS:
                batch = columns.batch(self._chosen(table, table.values(gathered)))
                gathered, entries = [], []  # freed before garbage is collected again
                yield batch
        yield columns.batch(self._chosen(table, table.values(gathered)))

    def _chosen(self, table: StateTable, values: list[Sequence[Any]]) -> list[Sequence[Any]]:
        """In the order of the schema, which may be the user's, and have fewer columns."""
        by_name = {name: column for (name, _), column in zip(table.columns, values, strict=True)}
        unknown = [name for name in self._schema.names if name not in by_name]
        if unknown:
            there = ", ".join(by_name)
            raise SettingsInvalid("schema", f"has the column {unknown[0]!r}; there are {there}")
        return [by_name[name] for name in self._schema.names]


def _without_gc(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decoding makes many objects and no cycles: looking for those took half of the time."""
    while True:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            batch = next(batches, None)
        finally:
            if was_enabled:
                gc.enable()
        if batch is None:
            return
        yield batch
