"""Values, types and rolling results, a sentence at a time, in whole programs."""

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Row, Time, Types
from headgate.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    ErrorPolicy,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
)
from headgate.datastream.state import ValueStateDescriptor
from headgate.datastream.window import TumblingEventTimeWindows
from tests.semantics.lab import MAX, MIN, Lab, first

PAIR = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])


# What records are


def test_row_makes_rows_with_names_tuple_makes_tuples_and_no_type_keeps_the_object(
    lab: Lab,
) -> None:
    row = Types.ROW([Types.INT(), Types.STRING()])
    pair = Types.TUPLE([Types.INT(), Types.STRING()])
    rows, tuples, kept = lab.run(
        lab.env.from_collection([(1, "hi")], row).map(repr),
        lab.env.from_collection([[1, "hi"]], pair).map(repr),
        lab.env.from_collection([[1, "hi"]]).map(repr),
    )
    assert (rows, tuples, kept) == (["Row(f0=1, f1='hi')"], ["(1, 'hi')"], ["[1, 'hi']"])


def test_a_row_without_names_prints_its_values_equals_no_named_one_and_hashes_like_its_tuple(
    lab: Lab,
) -> None:
    assert repr(Row("a", 2)) == "<Row('a', 2)>"
    assert Row("a", 2) != Row(f0="a", f1=2)
    assert hash(Row("a", 2)) == hash(("a", 2))
    found = lab.run(lab.read(Row("a", 2), Row("a", 3)).key_by(lambda row: Row(row[0])).sum(1))
    assert found == [Row("a", 2), Row("a", 5)]


@pytest.mark.parametrize("chained", [True, False])
def test_a_declared_type_holds_in_the_next_operator_chained_or_not(lab: Lab, chained: bool) -> None:
    rows = lab.read("a").map(lambda word: (word, 1), PAIR)
    rows = rows if chained else rows.rebalance()
    assert lab.run(rows.map(lambda row: (type(row).__name__, row.word))) == [("Row", "a")]


@pytest.mark.parametrize(("value", "kind"), [("7", "INT"), (2**40, "INT"), (2**70, "LONG")])
def test_a_value_of_another_type_out_of_a_function_is_an_error(
    lab: Lab, value: Any, kind: str
) -> None:
    typed = lab.read(1).map(lambda record: value, getattr(Types, kind)()).name("typed")
    with pytest.raises(UserFunctionFailed, match=rf"'typed' failed: .*Types\.{kind}\(\)"):
        lab.run(typed)


def test_float_has_32_bits(lab: Lab) -> None:
    assert lab.run(lab.read(1.1).map(float, Types.FLOAT())) == [1.100000023841858]


# None


class Nothing(CoFlatMapFunction[Any, Any, Any]):
    def flat_map1(self, value: Any) -> Any:
        return None

    def flat_map2(self, value: Any) -> Any:
        yield value


class Even(CoMapFunction[int, int, Any]):
    def map1(self, value: int) -> Any:
        return value if value % 2 == 0 else None

    def map2(self, value: int) -> Any:
        return None


class Both(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield None
        yield value


def odd_or_none(value: Any) -> Any:
    return value if value % 2 else None


def test_none_is_a_record_like_any_other(lab: Lab) -> None:
    numbers = lab.read(1, 2, 3)
    mapped = numbers.map(odd_or_none)
    found = lab.run(
        mapped.filter(lambda value: value is not None),
        mapped.flat_map(lambda value: [] if value is None else [value]),
        mapped.key_by(lambda value: value is None).reduce(lambda total, value: (total, value)),
        mapped.rebalance().map(str),
        numbers.flat_map(lambda value: [None, value]),
        numbers.process(Both()),
        lab.read(1, None).map(repr),
        mapped.map(lambda value: value, Types.PICKLED_BYTE_ARRAY()),
    )
    assert [Counter(records) for records in found] == [
        Counter(records)
        for records in (
            [1, 3],
            [1, 3],
            [1, None, (1, 3)],
            ["1", "None", "3"],
            [None, 1, None, 2, None, 3],
            [None, 1, None, 2, None, 3],
            ["1", "None"],
            [1, None, 3],
        )
    ]


class Apart(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield None
        yield [*elements]


def even_or_none(value: int) -> int | None:
    return value if value % 2 == 0 else None


@pytest.mark.parametrize("kind", [Types.INT(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
def test_none_of_a_declared_type_reaches_the_next_chained_function(lab: Lab, kind: Any) -> None:
    numbers = lab.read(1, 2, 3, 4).map(even_or_none, kind)
    rows = lab.read(1, 2).map(
        lambda n: None if n == 1 else (n, 0.5), Types.ROW([Types.INT(), Types.DOUBLE()])
    )
    once, twice, texts, kept = lab.run(
        numbers.filter(lambda value: value is not None),
        numbers.filter(lambda value: True).filter(lambda value: value is not None),
        numbers.flat_map(lambda value: [repr(value)]),
        rows.filter(lambda row: row is not None),
    )
    assert sorted(once) == sorted(twice) == [2, 4]
    assert Counter(texts) == {"None": 2, "2": 1, "4": 1}
    assert kept == [Row(f0=2, f1=0.5)]


@pytest.mark.parametrize(
    "leave",
    [
        lambda numbers: numbers,
        lambda numbers: numbers.rebalance().map(str),
        lambda numbers: numbers.disable_chaining().filter(lambda value: value is not None),
        lambda numbers: numbers.filter(lambda value: True).rebalance().map(str),
        lambda numbers: numbers.filter(lambda value: True),
    ],
    ids=["sink", "exchange", "not chained", "filter, then exchange", "filter, then sink"],
)
def test_none_of_a_declared_type_is_refused_where_it_leaves_the_chain(lab: Lab, leave: Any) -> None:
    numbers = lab.read(1, 2, 3, 4).map(even_or_none, Types.INT())
    with pytest.raises(UserFunctionFailed, match=r"None does not fit .*Types\.INT\(\)"):
        lab.run(leave(numbers))


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Types.INT(), lambda n: n),
        (Types.TUPLE([Types.INT()]), lambda n: (n,)),
        (PAIR, lambda n: ("x", n)),
    ],
)
def test_none_of_a_declared_type_passes_key_by(lab: Lab, kind: Any, make: Any) -> None:
    records = lab.read(1, 2, 3, 4).map(lambda n: make(n) if n % 2 else None, kind)
    texts = records.key_by(lambda value: value is None).map(repr)
    assert Counter(lab.run(texts)) == {
        "None": 2,
        **{repr(kind.coerced(make(n))): 1 for n in (1, 3)},
    }


def test_wrong_value_beside_none_is_refused_in_the_chain_too(lab: Lab) -> None:
    mixed = lab.read(1, 2).map(lambda n: None if n == 1 else "two", Types.INT())
    with pytest.raises(UserFunctionFailed, match="'two' does not fit"):
        lab.run(mixed.filter(lambda value: value is not None))


def test_windows_and_joins_take_and_give_none(lab: Lab) -> None:
    timed = lab.timed([("a", 1), ("a", 2)])
    values = timed.map(lambda pair: pair if pair[1] == 1 else None)
    second = TumblingEventTimeWindows.of(Time.seconds(1))
    windows, joined = lab.run(
        values.key_by(lambda value: 0).window(second).process(Apart()),
        timed.join(timed)
        .where(first)
        .equal_to(first)
        .window(second)
        .apply(lambda left, right: None),
    )
    assert windows == [None, [("a", 1), None]]
    assert joined == [None] * 4


def test_two_streams_may_drop_records_by_none(lab: Lab) -> None:
    numbers = lab.env.from_collection(range(6))
    mapped, flat = lab.run(
        numbers.connect(numbers).map(Even()), numbers.connect(numbers).flat_map(Nothing())
    )
    assert (sorted(mapped), sorted(flat)) == ([0, 2, 4], [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("key_type", [None, Types.STRING()])
def test_none_is_a_key_like_any_other_typed_or_not(lab: Lab, key_type: Any) -> None:
    records = lab.read((None, 1), ("a", 2), (None, 3), ("a", 4))
    found = lab.run(records.key_by(first, key_type).sum(1))
    assert Counter(found) == Counter([(None, 1), (None, 4), ("a", 2), ("a", 6)])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    "method",
    [
        lambda keyed: keyed.sum(1),
        lambda keyed: keyed.reduce(lambda left, right: left),
        lambda keyed: keyed.map(Total()),
        lambda keyed: keyed.process(InlinedTotal()),
        lambda keyed: keyed.window(TumblingEventTimeWindows(1000)).sum(1),
        lambda keyed: keyed.connect(keyed).map(Kept()),
    ],
    ids=["sum", "reduce", "map", "process", "window", "connect"],
)
@pytest.mark.parametrize("key_of", [first, lambda record: (record, 0)[0][0]], ids=["part", "call"])
def test_a_key_that_does_not_fit_its_declared_type_is_refused(
    lab: Lab, method: Any, key_of: Any, parallelism: int, apart: bool
) -> None:
    lab.env.set_parallelism(parallelism)
    records = lab.timed([("a", 1), (None, 2), ("b", 3), (7, 4)])
    if apart:  # tuples of which the items travel, in front of a function that is inlined
        records = records.map(lambda pair: (pair[0], pair[1]))
    expected = r"the key 7 does not fit the declared type Types.STRING\(\): a str is needed"
    with pytest.raises(UserFunctionFailed, match=expected) as caught:
        lab.run(method(records.key_by(key_of, Types.STRING())).name("count"))
    assert "'count'" in str(caught.value)
    assert lab.run(method(records.key_by(key_of, Types.PICKLED_BYTE_ARRAY())))


@dataclass(frozen=True)
class Place:
    name: str
    height: float


class Word:
    """Says nothing about equality."""

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    "key_of",
    [
        lambda r: [r[0]],
        lambda r: {"k": r[0]},
        lambda r: {r[0]},
        lambda r: (1, [r[0]]),
        lambda r: bytearray(r[0], "ascii"),
        lambda r: float("nan") if r[0] == "a" else r[0],
        lambda r: Word(r[0]),
        lambda r: (Word(r[0]), 1),
        lambda r: np.float64("nan") if r[0] == "a" else r[0],
        lambda r: (r[0], float("nan")),
        lambda r: Place(r[0], float("nan")),
    ],
    ids=[
        *("list", "dict", "set", "tuple of list", "bytearray", "nan", "object", "tuple of object"),
        *("numpy's nan", "tuple of nan", "object of nan"),
    ],
)
def test_keys_need_not_be_hashable(lab: Lab, key_of: Any) -> None:
    keyed = lab.timed((word, n) for n in range(40) for word in "abc").rebalance().key_by(key_of)
    windows = keyed.window(TumblingEventTimeWindows(1000))
    for found in lab.run(keyed.sum(1), keyed.map(Total()), windows.sum(1)):
        totals = {word: max(n for key, n in found if key == word) for word in "abc"}
        assert totals == dict.fromkeys("abc", sum(range(40)))


@pytest.mark.parametrize(
    "keys",
    [
        [datetime.fromisoformat(f"2024-01-01T0{at}:00+0{at}:00") for at in range(4)],
        [1, np.True_, np.float32(1), Fraction(1)],
        [float("nan"), np.float32("nan"), -float("nan"), Decimal("nan")],
        [
            ("a", float("nan")),
            ("a", np.float64("nan")),
            ("a", -float("nan")),
            ("a", Decimal("nan")),
        ],
    ],
    ids=["moments", "numbers", "nan", "tuples of nan"],
)
def test_equal_keys_of_different_kinds_are_one_key(lab: Lab, keys: list[Any]) -> None:
    keyed = lab.timed((copy.copy(key), 1) for _ in range(5) for key in keys).rebalance()
    by_part, by_call = keyed.key_by(first), keyed.key_by(lambda record: (record, 1)[0][0])
    for stream in (by_part, by_call):
        windows = stream.window(TumblingEventTimeWindows(1000))
        for found in lab.run(
            stream.sum(1),
            stream.reduce(lambda left, right: (left[0], left[1] + right[1])),
            stream.map(Total()),
            stream.process(InlinedTotal()),
            windows.sum(1),
        ):
            assert max(n for _, n in found) == 20


class Kept(CoMapFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("unused", Types.LONG()))

    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


def test_a_key_that_does_not_fit_its_declared_type_follows_the_error_policy(lab: Lab) -> None:
    keyed = lab.read(("a", 1), (7, 2), ("a", 3)).key_by(first, Types.STRING())
    found = lab.run(
        keyed.sum(1).on_error(ErrorPolicy.SKIP),
        keyed.map(Total()).on_error(ErrorPolicy.SKIP),
        keyed.process(InlinedTotal()).on_error(ErrorPolicy.SKIP),
    )
    assert found == [[("a", 1), ("a", 4)]] * 3


class InlinedTotal(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


class Total(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        return value[0], self.total.value()


def test_a_keyed_stream_brings_out_plain_records(lab: Lab) -> None:
    assert lab.run(lab.read(("a", 1)).key_by(first)) == [("a", 1)]


# Emission is by value


class Growing(ProcessFunction[Any, Any]):
    """Sends one and the same list again and again, and changes it in between."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        self.seen.append(value)
        yield self.seen
        yield OutputTag("side"), self.seen
        self.seen.append("sent")


def test_what_was_sent_stays_as_it_was_for_each_who_reads_it(lab: Lab) -> None:
    def spoil(record: list[Any]) -> list[Any]:
        record.append("spoilt")
        return record

    stream = lab.env.set_parallelism(1).from_collection([1, 2]).process(Growing())
    main, spoilt, side = lab.run(
        stream, stream.map(spoil), stream.get_side_output(OutputTag("side"))
    )
    assert main == side == [[1], [1, "sent", 2]]
    assert spoilt == [[1, "spoilt"], [1, "sent", 2, "spoilt"]]


def test_a_generator_may_yield_one_dict_over_and_over(lab: Lab) -> None:
    def count(value: int) -> Iterator[dict[str, int]]:
        record = {}
        for number in range(3):
            record["number"] = number
            yield record

    found = lab.run(lab.read(0, 0).flat_map(count))
    assert sorted(result["number"] for result in found) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("how", ["sum", "reduce", "min", "max"])
def test_results_of_rows_are_those_of_the_moment_when_they_were_sent(lab: Lab, how: str) -> None:
    def add(total: Row, added: Row) -> Row:
        total["count"] += added["count"]
        return total

    counts = [1, 2, -9, 3]
    keyed = lab.env.from_collection([("a", n) for n in counts], PAIR).key_by(lambda row: row.word)
    results = keyed.reduce(add) if how == "reduce" else getattr(keyed, how)("count")
    expected = {"min": [1, 1, -9, -9], "max": [1, 2, 2, 3]}.get(how, [1, 3, -6, -3])
    assert [row["count"] for row in lab.run(results)] == expected


# Reduce and aggregations


def test_streaming_sends_the_running_result_and_batch_the_last(lab: Lab) -> None:
    records = [("a", 1), ("b", 10), ("a", 2), ("a", 3)]
    running = lab.run(lab.read(*records).key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert Counter(running) == Counter([("a", 1), ("b", 10), ("a", 3), ("a", 6)])
    lab.env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    finals = lab.run(lab.read(*records).key_by(first).reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert sorted(finals) == [("a", 6), ("b", 10)]


def test_the_type_of_a_rolling_result_is_that_of_the_records(lab: Lab) -> None:
    keyed = lab.env.from_collection([("a", 1)], PAIR).key_by(first)
    assert keyed.reduce(lambda a, b: a).get_type() == keyed.max("count").get_type() == PAIR


RECORDS = [("k", 3, "x"), ("k", 1, "y"), ("k", 1, "z"), ("k", 5, "w")]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("min", [(3, "x"), (1, "x"), (1, "x"), (1, "x")]),
        ("max", [(3, "x"), (3, "x"), (3, "x"), (5, "x")]),
        ("min_by", [(3, "x"), (1, "y"), (1, "y"), (1, "y")]),
        ("max_by", [(3, "x"), (3, "x"), (3, "x"), (5, "w")]),
        ("sum", [(3, "x"), (4, "x"), (5, "x"), (10, "x")]),
    ],
)
def test_min_keeps_the_first_records_fields_and_min_by_the_whole_record(
    lab: Lab, how: str, expected: list[Any]
) -> None:
    found = lab.run(getattr(lab.read(*RECORDS).key_by(first), how)(1))
    assert found == [("k", *fields) for fields in expected]


def test_the_position_is_an_index_or_a_name_and_of_a_plain_value_only_0(lab: Lab) -> None:
    plain = lab.read(2, 3).key_by(lambda number: 0)
    assert lab.run(plain.sum()) == [2, 5]
    with pytest.raises(UserFunctionFailed, match="'Sum' failed: .*int records have no field 1; gi"):
        lab.run(lab.read(2, 3).key_by(lambda number: 0).sum(1))
    with pytest.raises(UserFunctionFailed, match="'Max' failed: .*no field 'size'.*; give the pos"):
        lab.run(lab.read((1, 2), (1, 3)).key_by(first).max("size"))


class Timers(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(value[1] + 100)
        yield value[0], value[1], self.last.value(), ctx.timer_service().current_watermark()
        self.last.update(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        watermark = ctx.timer_service().current_watermark()
        yield ctx.get_current_key(), timestamp, self.last.value(), watermark


def test_a_batch_runs_key_by_key_in_order_of_time_and_each_keys_timers_with_the_last_watermark(
    lab: Lab,
) -> None:
    lab.env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(1)
    found = lab.run(
        lab.timed([("b", 3), ("a", 9), ("b", 1), ("a", 2)]).key_by(first).process(Timers())
    )
    of_a = [("a", 2, None, MIN), ("a", 9, 2, MIN), ("a", 102, 9, MAX), ("a", 109, 9, MAX)]
    of_b = [("b", 1, None, MIN), ("b", 3, 1, MIN), ("b", 101, 3, MAX), ("b", 103, 3, MAX)]
    assert found in (of_a + of_b, of_b + of_a)
