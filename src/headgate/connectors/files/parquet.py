"""Records as Parquet files; a part ends with each checkpoint, as its end holds where all is.

The schema is given, or is the declared type of the stream. Law: a record that does not fit the
schema is refused with its column; rows stand in the order in which they were written.
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.arrow.columns import ColumnMaker, RowShape
from headgate.connectors.arrow.types import arrow_schema
from headgate.connectors.checks import check_settings, one_of
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.part_folder import PartFile
from headgate.connectors.files.sink import PartSink
from headgate.connectors.paths import AnyPath
from headgate.functions.context import ConnectorContext

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
GROUP_ROWS: Final = 64 * 1024
"""Rows of a row group; so many are kept in memory for each open part."""
GROUP_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 1024
"""Rows are made columns in lots of this size, whose bytes are known then."""


@dataclass(unsafe_hash=True)
class ParquetSink(PartSink):
    """Rows, tuples, lists or dicts with a value for each column of the schema."""

    suffix: str = ".parquet"
    _: KW_ONLY
    schema: Any = None
    """``Types.ROW_NAMED(...)`` or an Arrow schema; None: the stream's own type."""
    compression: str = "snappy"

    kind = "Parquet files"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(self, {"compression": one_of(*COMPRESSIONS)})
        if self.schema is not None:
            self.schema = arrow_schema(self.schema, "ParquetSink")

    def for_type(self, type_info: TypeInformation | None) -> "ParquetSink":
        """The sink for a stream of this type; called by ``sink_to``."""
        if self.schema is not None:
            return self
        if type_info is None:
            raise PlanInvalid(
                "ParquetSink has no schema, and the stream declares no type; give schema=..., or "
                "an output_type to the operator before it"
            )
        typed = copy.copy(self)
        typed.schema = arrow_schema(type_info, "ParquetSink")
        return typed

    def make_format(self, context: ConnectorContext) -> "ParquetFormat":
        assert self.schema is not None, "a sink without a schema was launched"
        types = tuple(str(field.type) for field in self.schema)
        maker = ColumnMaker(RowShape(self.schema, types, "UTC"), context.operator)
        return ParquetFormat(self.schema, self.compression, maker)


class ParquetFormat:
    """Parts that are whole only when they are closed."""

    grows = False

    def __init__(self, schema: pa.Schema, compression: str, maker: ColumnMaker) -> None:
        self._schema = schema
        self._compression = compression
        self._maker = maker

    def begin(self, file: PartFile) -> "ParquetEncoder":
        writer = parquet.ParquetWriter(file, self._schema, compression=self._compression)
        return ParquetEncoder(writer, self._maker, len(self._schema))


class ParquetEncoder:
    """Gathers rows to row groups."""

    def __init__(self, writer: Any, maker: ColumnMaker, width: int) -> None:
        self._writer = writer
        self._maker = maker
        self._columns: list[list[Any]] = [[] for _ in range(width)]
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, records: list[Record]) -> None:
        for column, values in zip(self._columns, self._maker.columns(records), strict=True):
            column.extend(values)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._make_batch()
            if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._write_group()

    def end(self) -> None:
        self._make_batch()
        self._write_group()
        self._writer.close()

    def close(self) -> None:
        self._columns, self._batches = [], []
        if self._writer.is_open:
            self._writer.close()

    def _make_batch(self) -> None:
        columns: Sequence[list[Any]] = self._columns
        if not columns[0]:
            return
        batch = self._maker.batch(columns)
        for column in columns:
            column.clear()
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def _write_group(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._batches, self._rows, self._bytes = [], 0, 0


class ParquetBulkWriters:
    """The factory of ``FileSink.for_bulk_format``, where PyFlink has it."""

    @staticmethod
    def for_row_type(
        row_type: object, hadoop_config: object = None, utc_timestamp: bool = False
    ) -> "ParquetBulkWriter":
        """``row_type`` is ``Types.ROW_NAMED(...)``; the other two are taken for PyFlink's sake."""
        return ParquetBulkWriter(arrow_schema(row_type, "ParquetBulkWriters"))


@dataclass(frozen=True)
class ParquetBulkWriter:
    """Says that a file sink writes Parquet with this schema."""

    schema: pa.Schema

    def make_sink(
        self, folder: AnyPath, prefix: str, suffix: str, rolling_policy: RollingPolicy, **more: Any
    ) -> ParquetSink:
        rolling = replace(rolling_policy, each_checkpoint=True)
        return ParquetSink(
            folder, prefix, suffix, schema=self.schema, rolling_policy=rolling, **more
        )
