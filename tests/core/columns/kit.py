"""Random tables for tests of columns, and an output that keeps what comes."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Record, Watermark

KEYS = st.sampled_from(["a", "b", "ä", "", "long word of a key"])
VALUES = st.none() | st.integers(-1000, 1000)
TIMES = st.integers(-5_000, 20_000)
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 3), VALUES, TIMES), max_size=60)
SCHEMA = pa.schema(
    [("word", pa.string()), ("number", pa.int64()), ("amount", pa.int64()), ("at", pa.int64())]
)

KEY_COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=8)),
    "large_string": (pa.large_string(), st.text(max_size=8)),
    "binary": (pa.binary(), st.binary(max_size=8)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "decimal": (pa.decimal128(9, 2), st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 100)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=3)),
}
"""Types that keys may have, and values of them."""


def table_of(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[] for _ in schema]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def batch_of(rows: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    (batch,) = table_of(rows, schema).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema)
    ]
    return batch


def batches_of(rows: list[tuple[Any, ...]], size: int) -> list[pa.RecordBatch]:
    """The same rows in batches of this size."""
    return [batch_of(rows[start : start + size]) for start in range(0, len(rows), size)]


class KeptOutput:
    """Keeps records, times and watermarks, in order."""

    def __init__(self) -> None:
        self.watermark_ms = 0
        self.bundles: list[Bundle] = []
        self.log: list[Record] = []

    def collect(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)
        self.log += bundle.records

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self.log += [(tag, record) for record in bundle.records]

    def emit_watermark(self, watermark: Watermark) -> None:
        self.log.append(watermark)

    def emit_status(self, status: object) -> None:
        self.log.append(status)

    def emit_marker(self, marker: object) -> None:
        self.log.append(marker)
