"""Arrow batches as records: how they travel, and whether they have the columns that are wanted.

A batch is one large record, so that all that holds for records holds for it: order, barriers,
credits, side outputs. Law: a batch that was read shares no memory with the bytes that it was read
from. Whatever does not fit is refused with the column, what came and what was expected.
"""

import pickle
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit

PLAIN, TIMED, PICKLED = b"batches\x00", b"batches\x01", b"batches\x02"
"""What a body begins with: 8 bytes, so that the columns after it are aligned."""


class BatchSerializer:
    """Writes the batches of a bundle as an Arrow stream; other records are pickled."""

    def dumps(self, records: Sequence[Record]) -> memoryview | bytes:
        """A bundle's batches, or (as a tuple) its batches and timestamps."""
        batches: Sequence[Record] = records[0] if type(records) is tuple else records
        if not batches or not all(_is_like(batches[0], batch) for batch in batches):
            return PICKLED + pickle.dumps(_packed(records), 5)
        sink = pa.BufferOutputStream()
        sink.write(PLAIN if batches is records else TIMED)
        with pa.ipc.new_stream(sink, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        if batches is not records:
            sink.write(pickle.dumps(records[1], 5))
        return memoryview(sink.getvalue())

    def loads(self, data: memoryview) -> Record:
        how = bytes(data[: len(PLAIN)])
        if how == PICKLED:
            return _unpacked(pickle.loads(data[len(PLAIN) :]))
        if how not in (PLAIN, TIMED):
            raise ValueError(f"a body begins with {how!r}")
        source = pa.BufferReader(bytes(data))
        source.seek(len(PLAIN))
        with pa.ipc.open_stream(source) as stream:
            batches = list(stream)
        return batches if how == PLAIN else (batches, pickle.loads(source.read()))

    def __reduce__(self) -> tuple[type["BatchSerializer"], tuple[()]]:
        return BatchSerializer, ()


class PackedBatch(NamedTuple):
    """A batch among other records, by itself: pickle would write all of what it is a slice of."""

    data: bytes


def _packed(records: Sequence[Record]) -> Record:
    if type(records) is tuple:
        return _packed(records[0]), records[1]
    return [
        PackedBatch(written(record)) if isinstance(record, pa.RecordBatch) else record
        for record in records
    ]


def _unpacked(records: Record) -> Record:
    if type(records) is tuple:
        return _unpacked(records[0]), records[1]
    return [read(record.data) if type(record) is PackedBatch else record for record in records]


def written(batch: pa.RecordBatch) -> bytes:
    """A batch, or the slice of one, with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def read(data: bytes) -> pa.RecordBatch:
    """Reads what ``written`` returned."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_next_batch()


def _is_like(first: Record, batch: Record) -> bool:
    if not isinstance(batch, pa.RecordBatch):
        return False
    return bool(batch.schema.equals(first.schema, check_metadata=True))


UNFIT: Final = b"headgate.unfit"
"""In the metadata of a batch that an operator could not use and passes on to the one it is for."""


def marked_unfit(batch: pa.RecordBatch) -> pa.RecordBatch:
    """For an operator with a part before the exchange: that after it has the error policy."""
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), UNFIT: b""})


def is_unfit(batch: Record) -> bool:
    """Whether a batch was marked."""
    metadata = batch.schema.metadata if isinstance(batch, pa.RecordBatch) else None
    return metadata is not None and UNFIT in metadata


def unmarked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it was before it was marked."""
    metadata = {name: text for name, text in batch.schema.metadata.items() if name != UNFIT}
    return batch.replace_schema_metadata(metadata or None)


class SchemaCheck:
    """Whether the batches of a stream have one schema: the declared one, or that of the first.

    Names and their order must be equal; types that differ are cast where nothing is lost.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema
        self._is_declared = schema is not None

    @property
    def schema(self) -> pa.Schema | None:
        """None: not declared, and no batch has come."""
        return self._schema

    def fit(self, batch: pa.RecordBatch, who: str) -> pa.RecordBatch:
        """The batch with the types of the schema; raises BatchUnfit. ``who`` has made it."""
        schema = self._schema
        if schema is None:
            self._schema = batch.schema
            return batch
        if batch.schema is schema or batch.schema.equals(schema):
            return batch
        if batch.schema.names != schema.names:
            advice = "name them in schema=…" if self._is_declared else "all batches need the same"
            raise BatchUnfit(
                f"{who} a batch with the columns {listed(batch.schema)}, and "
                f"{listed(schema)} were expected; {advice}"
            )
        columns = [
            _cast(column, field, who) for column, field in zip(batch.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, who: str) -> pa.Array:
    if column.null_count and not field.nullable:
        raise BatchUnfit(f"{who} nulls in column {field.name!r}, which the schema calls not null")
    if column.type == field.type:
        return column
    try:
        return _without_loss(column, field.type)
    except (pa.ArrowException, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise BatchUnfit(
            f"{who} column {field.name!r} of type {column.type}, and {field.type} was expected "
            f"({problem}); cast it, or declare its type in schema=…"
        ) from None


def _without_loss(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast; raises ValueError if a value would be another one then."""
    types, before = pa.types, column.type
    texts = [types.is_string(each) or types.is_large_string(each) for each in (before, kind)]
    if types.is_boolean(kind) != types.is_boolean(before) and not types.is_null(before):
        raise ValueError("one of them is a truth value")
    if texts[0] != texts[1] and not (types.is_null(before) or types.is_dictionary(before)):
        raise ValueError("one of them is a text")
    cast = column.cast(kind)
    if types.is_floating(before) and types.is_floating(kind):
        back = cast.cast(before)
        same = compute.or_(compute.equal(back, column), compute.is_nan(column))
        if not compute.all(same, skip_nulls=True).as_py():
            raise ValueError("it has fewer digits")
    return cast


def batch_in(record: Record) -> pa.RecordBatch:
    """The record, if it is a batch; raises BatchUnfit."""
    if not isinstance(record, pa.RecordBatch):
        raise BatchUnfit(
            f"a {type(record).__name__} came, and an Arrow batch was expected; make batches with "
            f"to_arrow(schema) first"
        )
    return record


def column_of(batch: Record, name: str) -> pa.Array:
    """A column by name; raises BatchUnfit."""
    batch = batch_in(batch)
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        problem = "is there more than once" if places else "is not there"
        raise BatchUnfit(
            f"column {name!r} {problem} in a batch with the columns {listed(batch.schema)}"
        )
    return batch.column(places[0])


def check_names(schema: pa.Schema | None, names: Sequence[str]) -> str:
    """Why these columns cannot be taken; nothing: they can, or the schema is not known."""
    if schema is None:
        return ""
    for name in names:
        count = len(schema.get_all_field_indices(name))
        if count != 1:
            problem = "more than one" if count else "no"
            return f"there is {problem} column {name!r}; there are {listed(schema)}"
    return ""


def listed(schema: pa.Schema, most: int = 12) -> str:
    """Columns with their types, for errors."""
    shown = [f"{field.name} {field.type}" for field in schema][:most]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "nothing"


def as_batches(made: Record) -> list[pa.RecordBatch] | None:
    """What a function has made, as batches; None: it is no table."""
    if isinstance(made, pa.RecordBatch):
        return [made]
    if isinstance(made, pa.Table):
        return list(made.combine_chunks().to_batches())
    kind = type(made)
    if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame":
        return [pa.RecordBatch.from_pandas(made, preserve_index=False)]
    if kind.__module__.partition(".")[0] == "polars" and kind.__name__ == "DataFrame":
        return list(made.to_arrow().combine_chunks().to_batches())
    return None
