"""Sink and source of DataFrames: batches of a good size, everything out with the flush."""

import pickle

import pyarrow as pa
import pytest

from headgate.base.errors import BatchUnfit, StateBroken
from headgate.connectors.arrow.columns import RowShape
from headgate.connectors.dataframe.bridge import BatchBridge
from headgate.connectors.dataframe.sink import BATCH_BYTES, MOST_ROWS, DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from tests.connectors.kit import task_context


def sizes_of(values: list[object], bundle: int, kind: pa.DataType) -> list[int]:
    sink = DataFrameSink("v")
    sink.shape = RowShape(pa.schema([("v", kind)]), (str(kind),), "UTC")
    with BatchBridge([], sink.token, room_bytes=1 << 40) as bridge:
        writer = pickle.loads(pickle.dumps(sink)).create_writer(task_context())
        for start in range(0, len(values), bundle):
            writer.write(values[start : start + bundle])
        writer.flush()
        writer.close()
        bridge.end()
        batches = list(bridge.outgoing())
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
    with BatchBridge([], sink.token) as bridge:
        bridge.limited(100, counts.append)
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


def test_batches_are_handed_on_as_they_are_but_for_their_types() -> None:
    sink = DataFrameSink("v", as_batches=True)
    sink.shape = RowShape(pa.schema([("v", pa.int64())]), ("long",), "UTC")
    with BatchBridge([], sink.token) as bridge:
        writer = pickle.loads(pickle.dumps(sink)).create_writer(task_context())
        batch = pa.record_batch({"v": [1, 2]})
        small = pa.record_batch({"v": pa.array([3], pa.int8())})
        writer.write([batch, batch.slice(0, 0), small])
        with pytest.raises(BatchUnfit, match="it was given a batch with the columns w int64"):
            writer.write([pa.record_batch({"w": [1]})])
        writer.flush()
        writer.close()
        bridge.end()
        found = list(bridge.outgoing())
    assert found == [batch, pa.record_batch({"v": [3]})]


def read_on(position: object, batches: list[pa.RecordBatch]) -> tuple[list[int], object]:
    """What a task reads from there, and where it is then."""
    source = DataFrameSource(None, ["n"])
    source.as_batches = True
    with BatchBridge([source.token], None) as bridge:
        bridge.feed(iter(batches), lambda batch: [(0, batch)])
        reader = source.open(0, position, task_context())
        found: list[int] = []
        while (given := reader.poll(10)) is not None:
            found += [n for part in given for n in part.column("n").to_pylist()]
        where = reader.position()
        reader.close()
    return found, where


def test_batches_of_a_dataframe_are_read_on_from_a_row() -> None:
    batches = [pa.record_batch([[n, n + 1, n + 2]], names=["other"]) for n in (0, 3, 6)]
    found, end = read_on(None, batches)
    assert found == list(range(9))
    found, middle = read_on(None, batches[:1])
    assert found == [0, 1, 2]
    uneven = [pa.record_batch([part], names=["n"]) for part in ([0], [1, 2, 3, 4], [5, 6, 7, 8])]
    assert read_on(middle, uneven) == ([3, 4, 5, 6, 7, 8], end)
    with pytest.raises(StateBroken, match="row 3 of them is another one now"):
        read_on(middle, [pa.record_batch([[9, 9, 9, 9]], names=["n"])])
