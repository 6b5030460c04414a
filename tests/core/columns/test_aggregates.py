"""Partial aggregates, merged in any order, are the aggregates of all rows."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import BatchUnfit
from headgate.core.columns.aggregates import (
    ColumnAggregate,
    PartialAggregation,
    PartialRecords,
    Slices,
    result_type,
)
from tests.core.columns.kit import ROWS, SCHEMA, batches_of

ALL = (
    ColumnAggregate("rows", "count"),
    ColumnAggregate("amounts", "count", "amount"),
    ColumnAggregate("total", "sum", "amount"),
    ColumnAggregate("least", "min", "amount"),
    ColumnAggregate("most", "max", "amount"),
    ColumnAggregate("mean", "mean", "amount"),
)
KEYS = st.sampled_from([("word",), ("word", "number"), ("number",)])


def expected_of(rows: list[tuple[Any, ...]]) -> list[Any]:
    amounts = [row[2] for row in rows if row[2] is not None]
    if not amounts:
        return [len(rows), 0, None, None, None, None]
    total = sum(amounts)
    return [len(rows), len(amounts), total, min(amounts), max(amounts), total / len(amounts)]


def key_of(row: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    key = tuple(row[SCHEMA.get_field_index(name)] for name in names)
    return key if len(key) > 1 else key[0]


@given(rows=ROWS, size=st.integers(1, 20), keys=KEYS, shuffled=st.randoms(use_true_random=False))
def test_partials_merge_to_the_aggregates_of_all_rows(
    rows: list[tuple[Any, ...]], size: int, keys: tuple[str, ...], shuffled: Any
) -> None:
    aggregation = PartialAggregation(keys, ALL)
    partials = PartialRecords(aggregation)
    found = [
        record
        for batch in batches_of(rows, size)
        for record in partials.records(aggregation.partial(batch))
    ]
    shuffled.shuffle(found)
    merged: dict[Any, Any] = {}
    for record in found:
        key = partials.key_of(record)
        merged[key] = partials.merge(merged[key], record) if key in merged else record
    groups: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        groups[key_of(row, keys)].append(row)
    assert merged.keys() == groups.keys()
    if not rows:
        return
    columns, results = partials.results(list(merged.values()))
    assert len(columns) == len(keys)
    for place, key in enumerate(merged):
        assert tuple(column[place] for column in columns) == (
            key if isinstance(key, tuple) else (key,)
        )
        assert [column[place] for column in results] == expected_of(groups[key])


@given(rows=ROWS, size=st.integers(1, 10), sliced=st.booleans())
def test_partials_of_several_batches_fold_to_those_of_one(
    rows: list[tuple[Any, ...]], size: int, sliced: bool
) -> None:
    aggregation = PartialAggregation(("word",), ALL, Slices("at", 500) if sliced else None)
    if not rows:
        return
    (whole,) = batches_of(rows, len(rows))
    (folded,) = aggregation.folded([aggregation.partial(b) for b in batches_of(rows, size)])
    assert folded.schema == aggregation.partial(whole).schema
    assert sorted(map(repr, folded.to_pylist())) == sorted(
        map(repr, aggregation.partial(whole).to_pylist())
    )


def test_partials_that_cannot_be_folded_stay_as_they_are() -> None:
    sessions = PartialAggregation(("word",), ALL[:1], Slices("at", gap_ms=5))
    partials = [sessions.partial(batch) for batch in batches_of([("a", 1, 2, 3)] * 2, 1)]
    assert sessions.folded(partials) == partials
    sums = PartialAggregation(("k",), (ColumnAggregate("s", "sum", "n"),))
    other = [
        pa.record_batch({"k": ["a"], "n": pa.array([1], kind)})
        for kind in (pa.int8(), pa.float32())
    ]
    mixed = [sums.partial(batch) for batch in other]
    assert sums.folded(mixed) == mixed


@given(rows=ROWS, size=st.integers(1, 20), offset=st.integers(0, 99))
def test_rows_are_folded_by_key_and_slice(
    rows: list[tuple[Any, ...]], size: int, offset: int
) -> None:
    slices = Slices("at", 100, offset)
    aggregation = PartialAggregation(("word",), ALL[:1], slices)
    found: dict[tuple[str, int], int] = defaultdict(int)
    for batch in batches_of(rows, size):
        for key, start, count in PartialRecords(aggregation).records(aggregation.partial(batch)):
            found[key, start] += count
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        expected[row[0], (row[3] - offset) // 100 * 100 + offset] += 1
    assert found == expected


@given(rows=ROWS, gap=st.integers(1, 3_000))
def test_a_session_within_a_batch_has_its_first_and_last_time(
    rows: list[tuple[Any, ...]], gap: int
) -> None:
    aggregation = PartialAggregation(("word",), ALL[:1], Slices("at", gap_ms=gap))
    partials = PartialRecords(aggregation)
    for batch in batches_of(rows, 60):
        found = partials.records(aggregation.partial(batch))
        assert sum(record[3] for record in found) == batch.num_rows
        for word, first, last, count in found:
            times = sorted(row[3] for row in rows if row[0] == word and first <= row[3] <= last)
            assert (times[0], times[-1], len(times)) == (first, last, count)
            assert all(b - a <= gap for a, b in pairwise(times))


def test_names_of_the_user_do_not_matter() -> None:
    batch = pa.record_batch({"count_all": ["a", "a"], "key0": [1, 2], "start": [5, 5]})
    aggregates = (ColumnAggregate("n", "count"), ColumnAggregate("s", "sum", "key0"))
    aggregation = PartialAggregation(("count_all",), aggregates, Slices("start", 10))
    assert PartialRecords(aggregation).records(aggregation.partial(batch)) == [("a", 0, 2, 3)]


def test_a_key_may_be_aggregated_too() -> None:
    aggregation = PartialAggregation(("n",), (ColumnAggregate("s", "sum", "n"),))
    found = aggregation.partial(pa.record_batch({"n": [2, 2, 3]}))
    assert sorted(PartialRecords(aggregation).records(found)) == [(2, 4), (3, 3)]


def test_what_cannot_be_aggregated_is_refused() -> None:
    aggregation = PartialAggregation(("n",), (ColumnAggregate("s", "sum", "word"),))
    with pytest.raises(BatchUnfit, match=r"sum of 'word' \(string\); pyarrow says"):
        aggregation.partial(pa.record_batch({"n": [1], "word": ["x"]}))
    with pytest.raises(BatchUnfit, match="column 'word' is not there"):
        aggregation.partial(pa.record_batch({"n": [1]}))


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("count", None, pa.int64()),
        ("mean", "i", pa.float64()),
        ("sum", "i", pa.int64()),
        ("sum", "u", pa.uint64()),
        ("sum", "f", pa.float64()),
        ("sum", "d", pa.decimal128(9, 2)),
        ("min", "i", pa.int32()),
        ("max", "f", pa.float32()),
    ],
)
def test_types_of_results_are_known_beforehand(
    kind: Any, column: str | None, expected: pa.DataType
) -> None:
    schema = pa.schema(
        [("i", pa.int32()), ("u", pa.uint8()), ("f", pa.float32()), ("d", pa.decimal128(9, 2))]
    )
    assert result_type(ColumnAggregate("x", kind, column), schema) == expected
    if kind in ("sum", "min", "max"):
        assert result_type(ColumnAggregate("x", kind, column), None) is None
