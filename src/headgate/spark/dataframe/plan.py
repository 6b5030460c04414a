"""The rows of all DataFrames of a job as one Spark plan with a partition for each slot.

Each row has the number of its DataFrame and its values in a struct; the structs of the other
DataFrames are null. Law: every row comes to a slot that runs a task of its source, once; there are
always as many partitions as slots. A marker row, which tasks leave out, sees to that: Spark turns
what it knows to be empty into a plan without partitions.

Where whole batches are wanted, a batch is packed into one binary value: Spark takes batches apart
into rows after each Python function, and copies rows one by one through a shuffle. Law: unpacking
gives the same rows in the same order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.core.columns.batches import written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DATA: Final = "data"
SOURCE: Final = "source"
INPUT_SCHEMA: Final = f"{SOURCE} int, {DATA} binary"
OUTPUT_SCHEMA: Final = f"{DATA} binary"
MOST_ROWS: Final = 65_536
MOST_BYTES: Final = 8 * 1024 * 1024
"""A value is closed when it has this many rows or bytes; a single row may be longer."""

TARGET: Final = "target"
MARKER: Final = -1
_SEED: Final = 42  # Spark's, for its hash partitioning


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


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A DataFrame and the slots that run a task of its source."""

    dataframe: Any
    slots: range
    order_by: tuple[int, ...] = ()
    """The places of columns; none: in any order."""
    partition_by: tuple[int, ...] = ()
    """Equal rows in these come to one slot; none: an ordered DataFrame comes to its first slot."""
    as_batches: bool = False
    """Its source wants whole batches."""


def input_plan(session: "SparkSession", inputs: Sequence[FrameInput], slots: int) -> "DataFrame":
    """A row for each row of the inputs; without inputs one for each slot, which says nothing."""
    if not inputs:
        return session.range(0, slots, 1, slots)
    from pyspark.sql import functions

    has_order = any(item.order_by for item in inputs)
    everywhere = not has_order and all(item.slots == range(slots) for item in inputs)
    if everywhere and all(item.as_batches for item in inputs):
        return _packed_plan(session, inputs).repartition(slots)
    keys = partition_keys(slots)
    parts, types = [], []
    for item in inputs:
        frame = by_position(item.dataframe)
        types.append(frame.schema)
        spread = not everywhere and not item.order_by
        parts.append(frame.repartition(len(item.slots)) if spread else frame)
    rows = session.range(1).select(*_columns(MARKER, types, _key_of_partition(keys[:1])))
    for number, part in enumerate(parts):
        target = _target(inputs[number], [keys[slot] for slot in inputs[number].slots])
        rows = rows.union(part.select(*_columns(number, types, target)))
    if everywhere:
        return rows.drop(TARGET).repartition(slots)
    rows = rows.repartition(slots, functions.col(TARGET))
    return rows.sortWithinPartitions(*_order(inputs, types)) if has_order else rows


def _packed_plan(session: "SparkSession", inputs: Sequence[FrameInput]) -> "DataFrame":
    """Values that hold whole batches, and a marker."""
    rows = session.range(1).selectExpr(f"{MARKER} AS {SOURCE}", f"CAST(NULL AS binary) AS {DATA}")
    for number, item in enumerate(inputs):
        rows = rows.union(packed_input(by_position(item.dataframe), number))
    return rows


def by_position(frame: "DataFrame") -> "DataFrame":
    """With names of our own: those of users may be odd or doubled; the source knows them."""
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))


def output_plan(rows: "DataFrame", slots: int) -> "DataFrame":
    """The rows of a barrier stage after a shuffle: Spark allows little directly after the stage.

    What one task has sent stays together and in order, so that nothing has to be sorted.
    """
    return rows.repartition(slots, _key_of_partition(partition_keys(slots)))


def sort_parts(number: int, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by input, for ``number`` inputs; markers are left out."""
    if is_packed(batch):
        yield from sort_packed(batch)
        return
    sources = batch.column(0)
    for source in range(number):
        is_own = pc.equal(sources, source)
        count = pc.sum(is_own).as_py() or 0
        if count:
            own = batch if count == batch.num_rows else batch.filter(is_own)
            rows = own.column(1 + source)
            columns = pa.schema(list(rows.type))
            yield source, pa.RecordBatch.from_arrays(rows.flatten(), schema=columns)


def partition_keys(slots: int) -> list[int]:
    """For each partition an int that Spark's hash partitioning sends there."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < slots:
        found.setdefault(spark_hash(key) % slots, key)
        key += 1
    return [found[slot] for slot in range(slots)]


def spark_hash(value: int) -> int:
    """What Spark's ``hash`` makes of an int: Murmur3, 32 bits."""
    mixed = _rotated(value * 0xCC9E2D51, 15) * 0x1B873593 & _MASK
    state = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    state ^= 4  # bytes
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


_MASK: Final = (1 << 32) - 1


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


def is_orderable(kind: Any) -> bool:
    """Whether Spark can sort by a column of this type."""
    from pyspark.sql import types

    match kind:
        case types.ArrayType():
            return is_orderable(kind.elementType)
        case types.StructType():
            return all(is_orderable(field.dataType) for field in kind.fields)
        case types.MapType():
            return False
        case _:
            return kind.typeName() not in ("variant", "void", "interval")


def _order(inputs: Sequence[FrameInput], types: Sequence[Any]) -> "Iterator[Column]":
    """By source; within an ordered one by its columns, then by all others.

    Rows that are still equal then are the same, or differ in what has no order (maps).
    """
    from pyspark.sql import functions

    yield functions.col(SOURCE)
    for number, item in enumerate(inputs):
        if item.order_by:
            fields = types[number].fields
            others = [place for place in range(len(fields)) if place not in item.order_by]
            for place in (*item.order_by, *others):
                if is_orderable(fields[place].dataType):
                    yield functions.col(f"d{number}.c{place}")


def _target(item: FrameInput, keys: list[int]) -> "Column":
    """The key of the slot that a row of this input is for."""
    from pyspark.sql import functions

    if not item.order_by:
        return _key_of_partition(keys)
    if not item.partition_by:
        return functions.lit(keys[0])
    columns = [functions.col(f"c{place}") for place in item.partition_by]
    return _key_at(functions.hash(*columns), keys)


def _columns(number: int, types: Sequence[Any], target: "Column") -> "Iterator[Column]":
    from pyspark.sql import functions

    yield functions.lit(number).cast("int").alias(SOURCE)
    for other, kind in enumerate(types):
        is_own = other == number
        values = functions.struct(*kind.names) if is_own else functions.lit(None).cast(kind)
        yield values.alias(f"d{other}")
    yield target.alias(TARGET)


def _key_of_partition(keys: list[int]) -> "Column":
    """For rows of partition i the i-th key."""
    from pyspark.sql import functions

    return _key_at(functions.spark_partition_id(), keys)


def _key_at(number: "Column", keys: list[int]) -> "Column":
    """The key with this number, counted round and round."""
    from pyspark.sql import functions

    place = functions.pmod(number, functions.lit(len(keys)))
    return functions.element_at(functions.array(*map(functions.lit, keys)), place + 1)
