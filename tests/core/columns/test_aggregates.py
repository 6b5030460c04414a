"""Partial aggregates, merged in any order, are the aggregates of all rows."""

import math
from collections import defaultdict
from decimal import Decimal
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
    from_python,
    result_type,
)
from headgate.core.columns.times import EventTime
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
    aggregation = PartialAggregation(
        ("word",), ALL, Slices(EventTime("at"), 500) if sliced else None
    )
    if not rows:
        return
    (whole,) = batches_of(rows, len(rows))
    (folded,) = aggregation.folded([aggregation.partial(b) for b in batches_of(rows, size)])
    assert folded.schema == aggregation.partial(whole).schema
    assert sorted(map(repr, folded.to_pylist())) == sorted(
        map(repr, aggregation.partial(whole).to_pylist())
    )


def test_partials_that_cannot_be_folded_stay_as_they_are() -> None:
    sessions = PartialAggregation(("word",), ALL[:1], Slices(EventTime("at"), gap_ms=5))
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
    slices = Slices(EventTime("at"), 100, offset)
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
    aggregation = PartialAggregation(("word",), ALL[:1], Slices(EventTime("at"), gap_ms=gap))
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
    aggregation = PartialAggregation(("count_all",), aggregates, Slices(EventTime("start"), 10))
    records = PartialRecords(aggregation)
    (found,) = records.records(aggregation.partial(batch))
    assert found[:2] == ("a", 0)
    assert records.results([found]) == ([["a"]], [[2], [3]])


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
        ("sum", "d", pa.decimal128(38, 2)),
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


def results_of(batches: list[pa.RecordBatch], fold: bool, *aggregates: ColumnAggregate) -> Any:
    aggregation = PartialAggregation(("k",), aggregates)
    records = PartialRecords(aggregation)
    partials = [aggregation.partial(batch) for batch in batches]
    if fold:
        partials = aggregation.folded(partials)
    merged: dict[Any, Any] = {}
    for record in [record for partial in partials for record in records.records(partial)]:
        merged[record[0]] = (
            records.merge(merged[record[0]], record) if record[0] in merged else record
        )
    return {key: [each[0] for each in records.results([merged[key]])[1]] for key in merged}


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**62, 2**62, 2**62], pa.int64()),
        ([-(2**63), -(2**63)], pa.int64()),
        ([2**64 - 1, 2**64 - 1, 1], pa.uint64()),
        ([1_700_000_000_000_000_000] * 9, pa.int64()),
    ],
)
def test_sums_of_whole_numbers_do_not_wrap_around(
    values: list[int], kind: pa.DataType, fold: bool
) -> None:
    both = (ColumnAggregate("s", "sum", "n"), ColumnAggregate("m", "mean", "n"))
    for size in (1, len(values)):
        batches = [
            pa.record_batch({"k": ["a"] * len(part), "n": pa.array(part, kind)})
            for part in (values[at : at + size] for at in range(0, len(values), size))
        ]
        expected = {"a": [sum(values), pytest.approx(sum(values) / len(values))]}
        assert results_of(batches, fold, *both) == expected


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize(
    ("values", "total", "kind"),
    [
        (["1", "2", "4"], "7", pa.decimal128(38, 0)),
        (["1", "2", "4"], "7", pa.decimal128(9, 0)),
        (["1" * 38, "1", "-2"], "1" * 37 + "0", pa.decimal128(38, 0)),
        (
            ["1" * 30 + ".01", "0.02", "1e27"],
            "1" * 2 + "2" + "1" * 27 + ".03",
            pa.decimal128(38, 2),
        ),
        (["6e37", "6e37", "-9e37"], "3e37", pa.decimal128(38, 0)),
        (["5e60", "1", "-7"], "4" + "9" * 59 + "4", pa.decimal256(76, 0)),
    ],
)
def test_aggregates_of_decimals_are_decimals_and_exact(
    values: list[str], total: str, kind: pa.DataType, fold: bool
) -> None:
    numbers = [Decimal(value) for value in values]
    aggregates = [
        ColumnAggregate("s", "sum", "n"),
        ColumnAggregate("lo", "min", "n"),
        ColumnAggregate("hi", "max", "n"),
    ]
    for size in (1, len(values)):
        batches = [
            pa.record_batch({"k": ["a"] * len(part), "n": pa.array(part, kind)})
            for part in (numbers[at : at + size] for at in range(0, len(numbers), size))
        ]
        found = results_of(batches, fold, *aggregates)["a"]
        assert found == [Decimal(total), min(numbers), max(numbers)]
        assert set(map(type, found)) == {Decimal}
        aggregation = PartialAggregation(("k",), tuple(aggregates))
        types = PartialRecords(aggregation).types(aggregation.partial(batches[0]).schema)
        widest = pa.decimal256(76, 0) if kind.bit_width == 256 else pa.decimal128(38, kind.scale)
        assert types == [pa.string(), widest, kind, kind]
        schema = batches[0].schema
        assert [result_type(each, schema) for each in aggregates] == [widest, kind, kind]
        for value, declared in zip(found, types[1:], strict=True):
            assert from_python([value], declared).to_pylist() == [value]


def test_sums_of_decimals_that_no_type_holds_are_refused() -> None:
    batch = pa.record_batch(
        {"k": ["a"] * 2, "n": pa.array([Decimal("9e37")] * 2, pa.decimal128(38, 0))}
    )
    sums = PartialAggregation(("k",), (ColumnAggregate("s", "sum", "n"),))
    with pytest.raises(
        BatchUnfit, match=r"sum of 'n' \(decimal128\(38, 0\)\); pyarrow says"
    ) as caught:
        sums.partial(batch)
    assert str(caught.value).endswith("cast the column that is aggregated to a wider type first")
    wider = pa.record_batch({"k": batch["k"], "n": batch["n"].cast(pa.decimal256(76, 0))})
    ((_, total),) = PartialRecords(sums).records(sums.partial(wider))
    assert total == Decimal("18e37")


def test_least_and_greatest_keep_their_type_beside_a_sum_that_needs_a_wider_one() -> None:
    batch = pa.record_batch({"k": ["a"] * 2, "n": [2**62, 2**62]})
    both = (ColumnAggregate("s", "sum", "n"), ColumnAggregate("lo", "min", "n"))
    aggregation = PartialAggregation(("k",), both)
    partial = aggregation.partial(batch)
    records = PartialRecords(aggregation)
    assert records.types(partial.schema) == [pa.string(), None, pa.int64()]
    assert records.results(records.records(partial)) == ([["a"]], [[2**63], [2**62]])


def test_a_decimal_key_stays_a_decimal() -> None:
    batch = pa.record_batch({"k": pa.array([Decimal(5)], pa.decimal128(38, 0))})
    aggregation = PartialAggregation(("k",), (ColumnAggregate("n", "count"),))
    ((key, count),) = PartialRecords(aggregation).records(aggregation.partial(batch))
    assert (type(key), key, count) == (Decimal, 5, 1)


@pytest.mark.parametrize("fold", [False, True])
def test_times_with_a_zone_are_compared_as_moments(fold: bool) -> None:
    kind = pa.timestamp("s", "Europe/Berlin")
    early, late = 1729989000, 1729991700  # 02:30 and 02:15 on the wall, as summer time ends
    batches = [
        pa.record_batch({"k": ["a"], "n": pa.array([at], pa.int64()).cast(kind)})
        for at in (late, early)
    ]
    both = (ColumnAggregate("lo", "min", "n"), ColumnAggregate("hi", "max", "n"))
    assert results_of(batches, fold, *both) == {"a": [early, late]}
    assert from_python([early], kind).cast(pa.int64()).to_pylist() == [early]


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, math.nan], [None, math.nan, 1.0]])
def test_nan_is_least_and_greatest_only_where_nothing_else_is(
    values: list[float | None], fold: bool
) -> None:
    batches = [pa.record_batch({"k": ["a"], "n": pa.array([v], pa.float64())}) for v in values]
    both = (ColumnAggregate("lo", "min", "n"), ColumnAggregate("hi", "max", "n"))
    assert results_of(batches, fold, *both) == {"a": [1.0, 1.0]}


def test_keys_with_dictionaries_fold_whatever_these_hold() -> None:
    def encoded(words: list[str]) -> pa.Array:
        return pa.array(words).dictionary_encode()

    batches = [pa.record_batch({"k": encoded(words)}) for words in (["a", "b"], ["b", "c", "b"])]
    found = results_of(batches, True, ColumnAggregate("n", "count"))
    assert found == {"a": [1], "b": [3], "c": [1]}
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    with pytest.raises(BatchUnfit, match="1 nulls in a batch of 2 rows"):
        results_of([pa.record_batch({"k": hidden})], False, ColumnAggregate("n", "count"))


def test_the_layout_of_records_depends_on_what_is_aggregated_not_on_the_order() -> None:
    def shape(*aggregates: ColumnAggregate) -> str:
        return str(PartialRecords(PartialAggregation(("k",), aggregates)).shape())

    count, total = ColumnAggregate("n", "count"), ColumnAggregate("s", "sum", "n")
    assert shape(count, total) == shape(total, count)
    assert shape(count, total) != shape(total)
    assert shape(total) != shape(ColumnAggregate("s", "max", "n"))


def test_types_of_results_are_learnt_from_partials() -> None:
    aggregation = PartialAggregation(
        ("k",),
        (
            ColumnAggregate("n", "count"),
            ColumnAggregate("s", "sum", "x"),
            ColumnAggregate("m", "mean", "x"),
            ColumnAggregate("t", "max", "x"),
        ),
    )
    partial = aggregation.partial(pa.record_batch({"k": ["a"], "x": pa.array([1], pa.int32())}))
    kinds = PartialRecords(aggregation).types(partial.schema)
    assert kinds == [pa.string(), pa.int64(), pa.int64(), pa.float64(), pa.int32()]
