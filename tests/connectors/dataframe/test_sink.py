"""The sink of a DataFrame: batches of a good size, everything out with the flush."""

import pickle

import pyarrow as pa

from headgate.connectors.arrow.columns import RowShape
from headgate.connectors.dataframe.border import Border
from headgate.connectors.dataframe.sink import BATCH_BYTES, MOST_ROWS, DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from tests.connectors.kit import task_context


def sizes_of(values: list[object], bundle: int, kind: pa.DataType) -> list[int]:
    sink = DataFrameSink("v")
    sink.shape = RowShape(pa.schema([("v", kind)]), (str(kind),), "UTC")
    with Border([], sink.token, room_bytes=1 << 40) as border:
        writer = pickle.loads(pickle.dumps(sink)).create_writer(task_context())
        for start in range(0, len(values), bundle):
            writer.write(values[start : start + bundle])
        writer.flush()
        writer.close()
        border.end()
        batches = list(border.outgoing())
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == values
    return [batch.num_rows for batch in batches]


def test_batches_have_as_many_rows_as_spark_likes() -> None:
    sizes = sizes_of(list(range(35_000)), 4096, pa.int64())
    assert max(sizes) == MOST_ROWS
    assert len(sizes) <= 6


def test_large_bundles_are_cut() -> None:
    assert max(sizes_of(list(range(50_000)), 50_000, pa.int64())) == MOST_ROWS


def test_large_rows_make_small_batches() -> None:
    sizes = sizes_of(["x" * 100_000] * 300, 32, pa.string())
    assert max(sizes) * 100_000 < 2 * BATCH_BYTES + 64 * 100_000


def test_no_row_waits_for_others_if_only_some_are_wanted() -> None:
    sink = DataFrameSink("v")
    sink.shape = RowShape(pa.schema([("v", pa.int64())]), ("long",), "UTC")
    counts: list[int] = []
    with Border([], sink.token) as border:
        border.limited(100, counts.append)
        writer = sink.create_writer(task_context())
        writer.write([1])
        writer.write([2, 3])
        assert counts == [1, 3]
        writer.close()


def test_source_leaves_its_dataframe_in_the_driver() -> None:
    source = DataFrameSource(lambda: "cannot be pickled", ["a"])
    copy = pickle.loads(pickle.dumps(source))
    assert (copy.dataframe, copy.names, copy.token) == (None, ("a",), source.token)
    assert list(copy.splits(3)) == [0, 1, 2]
