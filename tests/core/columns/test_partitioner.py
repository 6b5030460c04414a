"""Rows of batches find the channel that their records would find."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import BatchUnfit
from headgate.core.columns.keys import ColumnPartitioner
from headgate.core.egress.router import KeyGroupPartitioner
from tests.core.columns.kit import ROWS, batches_of


@given(
    rows=ROWS,
    size=st.integers(1, 20),
    channels=st.sampled_from([1, 2, 3, 7, 128]),
    names=st.sampled_from([("word",), ("number",), ("word", "number")]),
)
def test_each_row_goes_where_its_record_goes_and_order_is_kept(
    rows: list[tuple[Any, ...]], size: int, channels: int, names: tuple[str, ...]
) -> None:
    places = [("word", "number").index(name) for name in names]

    def key_of(row: tuple[Any, ...]) -> Any:
        key = tuple(row[place] for place in places)
        return key if len(key) > 1 else key[0]

    records = KeyGroupPartitioner(key_of, 128)
    columns = ColumnPartitioner(names, 128)
    records.set_up(channels)
    columns.set_up(channels)
    expected = {channel: part for channel, part, _ in records.split(rows, None)} if rows else {}
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for channel, parts, times in columns.split(batches_of(rows, size), None):
        assert times is None
        for part in parts:
            found[channel] += [tuple(row.values()) for row in part.to_pylist()]
    assert found == expected


def test_times_travel_with_the_parts_of_their_batch() -> None:
    columns = ColumnPartitioner(["k"], 128)
    columns.set_up(2)
    batches = [pa.record_batch({"k": [n, n + 1, n + 2]}) for n in range(8)]
    for _, parts, times in columns.split(batches, list(range(8))):
        assert times is not None
        assert len(parts) == len(times)
        for part, time_ms in zip(parts, times, strict=True):
            assert {key - time_ms for key in part.column(0).to_pylist()} <= {0, 1, 2}


def test_a_batch_for_one_channel_is_not_copied() -> None:
    columns = ColumnPartitioner(["k"], 128)
    columns.set_up(2)
    batch = pa.record_batch({"k": ["same", "same"]})
    ((_, (part,), _),) = columns.split([batch], None)
    assert part is batch


def test_an_empty_batch_goes_nowhere() -> None:
    columns = ColumnPartitioner(["k"], 128)
    columns.set_up(2)
    assert columns.split([pa.record_batch({"k": pa.array([], pa.string())})], None) == []


def test_errors_name_the_reader() -> None:
    columns = ColumnPartitioner(["k"], 128, "sums")
    columns.set_up(2)
    with pytest.raises(BatchUnfit, match="operator 'sums': column 'k' is not there in a batch"):
        columns.split([pa.record_batch({"other": [1]})], None)
    with pytest.raises(BatchUnfit, match="a dict came, and an Arrow batch was expected"):
        columns.split([{"k": 1}], None)


def test_one_channel_wants_keys_as_well() -> None:
    columns = ColumnPartitioner(["k"], 128, "sums")
    columns.set_up(1)
    with pytest.raises(BatchUnfit, match="operator 'sums': column 'k' has 1 nulls"):
        columns.split([pa.record_batch({"k": ["a", None]})], None)


def test_batches_without_keys_go_to_the_first_channel_if_the_reader_has_a_policy() -> None:
    nulls = pa.record_batch({"k": pa.array([None, 1])})
    good = pa.record_batch({"k": [5]})
    for channels in (1, 3):
        router = ColumnPartitioner(["k"], reader="join", reader_takes_all=True)
        router.set_up(channels)
        sent = {channel: batches for channel, batches, _ in router.split([nulls, good], None)}
        assert sent[0][0] is nulls
        assert sum(len(batches) for batches in sent.values()) == 2
