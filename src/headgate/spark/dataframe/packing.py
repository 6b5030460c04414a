"""Arrow batches as single values in Spark's plans: a shuffle moves their bytes, not their rows.

Spark takes batches apart into rows behind each Python function, sorts rows before it spreads them
over partitions, and copies them one by one through a shuffle. A batch that is one binary value
passes through all of that as a whole. Law: unpacking gives the same rows in the same order.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.core.columns.batches import written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATA: Final = "data"
SOURCE: Final = "source"
INPUT_SCHEMA: Final = f"{SOURCE} int, {DATA} binary"
OUTPUT_SCHEMA: Final = f"{DATA} binary"
MOST_ROWS: Final = 65_536
MOST_BYTES: Final = 8 * 1024 * 1024
"""A value is closed when it has this many rows or bytes; a single row may be longer."""


def packed_input(frame: "DataFrame", number: int) -> "DataFrame":
    """The batches of a DataFrame as values, with the number of the input."""

    def headgate_pack(batches: Iterable[Any]) -> Iterator[Any]:  # its name stands in Spark's plan
        for data in pack(batches):
            source = pa.array([number], pa.int32())
            yield pa.RecordBatch.from_arrays(
                [source, pa.array([data], pa.binary())], names=[SOURCE, DATA]
            )

    return frame.mapInArrow(headgate_pack, INPUT_SCHEMA)


def unpacked_output(packed: "DataFrame", schema: Any) -> "DataFrame":
    """The rows of packed batches of this schema."""

    def headgate_unpack(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for data in batch.column(0):
                yield from unpack(data)

    return packed.mapInArrow(headgate_unpack, schema)


def packed_output(batches: Iterable[Any]) -> Iterator[Any]:
    """What a job sends, as batches of one value each."""
    for data in pack(batches):
        yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=[DATA])


def pack(batches: Iterable[Any]) -> Iterator[bytes]:
    """Batches of one schema as values of a good size, nothing held that could leave."""
    for batch in batches:
        rows = max(1, min(MOST_ROWS, batch.num_rows * MOST_BYTES // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            yield written(batch.slice(start, rows))


def unpack(data: Any) -> Iterator[Any]:
    """The batches of a value, without a copy of their columns."""
    with pa.ipc.open_stream(data.as_buffer()) as stream:
        yield from stream


def sort_packed(batch: Any) -> Iterator[tuple[int, Any]]:
    """The batches in the values of a packed input, each with the number of its input."""
    for source, data in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
        if data.is_valid:  # else it is a marker
            for part in unpack(data):
                yield source, part


def is_packed(batch: Any) -> bool:
    """Whether a batch of a job's input holds packed values."""
    schema = batch.schema
    return bool(schema.names == [SOURCE, DATA] and pa.types.is_binary(schema.field(1).type))
