"""Programs that use many features at once, against results worked out by hand."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headgate.common import Row, Time, Types
from headgate.core.state.backend import Backends
from headgate.datastream import (
    CoGroupFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headgate.datastream.functions import AggregateFunction
from headgate.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from headgate.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.semantics.lab import MAX, Lab, first, mark


@pytest.fixture
def backends(both_backends: Backends | None) -> Backends | None:
    return both_backends


LATE = OutputTag("late")


class Tell(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """Bounds of the window, and the names of its records in order."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, [record[2] for record in elements]


def test_sliding_windows_with_lateness_fire_again_and_tell_what_was_too_late(lab: Lab) -> None:
    story = lab.story(
        ("a", 1, "one"),
        ("a", 7, "two"),
        mark(9),  # ends [-5, 5) and [0, 10)
        ("a", 3, "late"),  # too late for [-5, 5), which is kept until 7, not for [0, 10)
        mark(12),  # [0, 10) is gone
        ("a", 4, "too late"),
        mark(14),  # ends [5, 15)
        ("a", 2, "too late too"),
        ("a", 6, "half late"),
    )
    windows = story.key_by(first).window(
        SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
    )
    results = windows.allowed_lateness(3).side_output_late_data(LATE).process(Tell())
    found, late = lab.run(results, results.get_side_output(LATE))
    assert found == [
        ("a", -5, 5, ["one"]),
        ("a", 0, 10, ["one", "two"]),
        ("a", 0, 10, ["one", "two", "late"]),
        ("a", 5, 15, ["two"]),
        ("a", 5, 15, ["two", "half late"]),
    ]
    assert late == [("a", 4, "too late"), ("a", 2, "too late too")]


class OwnGap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[3])


@pytest.mark.parametrize("lateness", [0, 10])
def test_sessions_with_a_gap_of_each_record_merge_by_a_bridge_and_late(
    lab: Lab, lateness: int
) -> None:
    story = lab.story(
        ("a", 0, "left", 10),
        ("a", 30, "right", 5),
        ("b", 0, "other", 3),
        ("a", 8, "bridge", 22),  # [8, 30) touches both: [0, 35)
        mark(34),
        ("a", 35, "after", 1),  # touches the session that has fired, if that is kept
        mark(40),
    )
    windows = story.key_by(first).window(EventTimeSessionWindows.with_dynamic_gap(OwnGap()))
    found = lab.run(windows.allowed_lateness(lateness).process(Tell()))
    one_session = ["left", "right", "bridge"]
    last = ("a", 0, 36, [*one_session, "after"]) if lateness else ("a", 35, 36, ["after"])
    assert [session for session in found if session[0] == "a"] == [("a", 0, 35, one_session), last]
    assert [session for session in found if session[0] == "b"] == [("b", 0, 3, ["other"])]


def test_a_purging_count_fires_a_session_when_a_merge_has_brought_enough_together(
    lab: Lab,
) -> None:
    story = lab.story(("a", 0, 1), ("a", 20, 2), ("a", 10, 3), ("a", 12, 4), ("a", 50, 5))
    sessions = story.key_by(first).window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    purging = sessions.trigger(PurgingTrigger.of(CountTrigger.of(3)))
    assert lab.run(purging.process(Tell())) == [("a", 0, 30, [1, 2, 3])]


class Average(AggregateFunction[Any, Any, Any]):
    """Sum and number in a Row that is changed in place."""

    def create_accumulator(self) -> Row:
        return Row(total=0, count=0)

    def add(self, value: Any, accumulator: Row) -> Row:
        accumulator["total"] += value[2]
        accumulator["count"] += 1
        return accumulator

    def get_result(self, accumulator: Row) -> float:
        return float(accumulator["total"] / accumulator["count"])

    def merge(self, acc_a: Row, acc_b: Row) -> Row:
        acc_a["total"] += acc_b["total"]
        acc_a["count"] += acc_b["count"]
        return acc_a


class Ranked(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """Counts firings by window and by key, and sends every second one of a key to the side."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        (average,) = elements
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(ValueStateDescriptor("fired", Types.INT()))
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        result = (key, context.window().start, average, *counts)
        yield (OutputTag("second"), result) if counts[1] % 2 == 0 else result

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", Types.INT())).clear()


def test_aggregates_go_through_a_window_function_with_state_and_a_side_output(lab: Lab) -> None:
    story = lab.story(
        ("a", 1, 10), mark(10), ("a", 2, 20), ("a", 11, 5), ("b", 12, 7), ("a", 3, 30), mark(40)
    )
    windows = story.key_by(first).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    results = windows.allowed_lateness(100).aggregate(Average(), Ranked())
    main, side = lab.run(results, results.get_side_output(OutputTag("second")))
    assert sorted(main) == [("a", 0, 10.0, 1, 1), ("a", 0, 20.0, 3, 3), ("b", 10, 7.0, 1, 1)]
    assert side == [("a", 0, 15.0, 2, 2), ("a", 10, 5.0, 1, 4)]


def test_results_of_windows_go_into_windows_of_the_same_size(lab: Lab) -> None:
    lab.env.set_parallelism(3)
    ten = TumblingEventTimeWindows.of(Time.milliseconds(10))
    records = lab.timed((key, time_ms, 1) for time_ms in range(40) for key in "abc")
    counts = records.key_by(first).window(ten).sum(2)
    totals = counts.window_all(ten).reduce(
        lambda total, counted: ("all", total[1], total[2] + counted[2])
    )
    assert [total for _, _, total in lab.run(totals)] == [30, 30, 30, 30]


class Join(ProcessJoinFunction[Any, Any, Any]):
    def process_element(
        self, left: Any, right: Any, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        yield left[2], right[2], ctx.timestamp()


@pytest.mark.parametrize(
    ("lower", "upper", "exclusive"), [(0, 0, False), (-1, 0, False), (-1, 1, True), (2, 3, False)]
)
def test_an_interval_join_pairs_equal_times_each_with_each(
    lab: Lab, lower: int, upper: int, exclusive: bool
) -> None:
    lefts = [("a", 5, "l1"), ("a", 5, "l2"), ("a", 6, "l3"), (None, 5, "l4"), (["u"], 5, "l5")]
    rights = [("a", 5, "r1"), ("a", 5, "r2"), ("a", 4, "r3"), ("a", 8, "r4"), (["u"], 5, "r5")]
    rights += [(None, 5, "r6")]
    lab.env.set_parallelism(3)
    join = lab.timed(lefts).key_by(first).interval_join(lab.timed(rights).key_by(first))
    joined = join.between(Time.milliseconds(lower), Time.milliseconds(upper))
    if exclusive:
        joined = joined.lower_bound_exclusive().upper_bound_exclusive()
        lower, upper = lower + 1, upper - 1
    assert Counter(lab.run(joined.process(Join()))) == Counter(
        (left[2], right[2], max(left[1], right[1]))
        for left in lefts
        for right in rights
        if left[0] == right[0] and lower <= right[1] - left[1] <= upper
    )


class Orders(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Orders and payments meet; what has no partner at its timer goes to the side."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_map_state(MapStateDescriptor("waiting"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield from self.met("order", "payment", value, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield from self.met("payment", "order", value, ctx)

    def met(self, mine: str, other: str, value: Any, ctx: Any) -> Iterator[Any]:
        if other in self.waiting:
            ctx.timer_service().delete_event_time_timer(self.waiting[other] + 10)
            del self.waiting[other]
            yield "met", value[0]
        else:
            self.waiting[mine] = value[1]
            ctx.timer_service().register_event_time_timer(value[1] + 10)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        for name in list(self.waiting.keys()):
            yield OutputTag("alone"), (name, ctx.get_current_key(), timestamp)
        self.waiting.clear()


def test_two_streams_meet_by_key_and_who_stays_alone_is_told_by_a_timer(lab: Lab) -> None:
    lab.env.set_parallelism(3)
    orders = lab.timed((number, number) for number in range(30))
    payments = lab.timed((number, number + 3) for number in range(0, 40, 2))
    stream = orders.connect(payments).key_by(first, first).process(Orders())
    met, alone = lab.run(stream, stream.get_side_output(OutputTag("alone")))
    assert sorted(met) == [("met", number) for number in range(0, 30, 2)]
    assert sorted(alone) == sorted(
        [("order", number, number + 10) for number in range(1, 30, 2)]
        + [("payment", number, number + 13) for number in range(30, 40, 2)]
    )


class Deduplicated(KeyedProcessFunction[Any, Any, Any]):
    """The first of equal records; forgets after a while in event time, and tells so."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self.seen.value() is None:
            yield value
            ctx.timer_service().register_event_time_timer(value[1] + 10)
        else:
            ctx.timer_service().delete_event_time_timer(self.seen.value() + 10)
            ctx.timer_service().register_event_time_timer(value[1] + 10)
        self.seen.update(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        self.seen.clear()
        yield OutputTag("forgotten"), (ctx.get_current_key(), timestamp)


def test_a_stream_is_deduplicated_windowed_and_counted(lab: Lab) -> None:
    """The state of a key is forgotten ten after its last record; then the next is a first one."""
    story = lab.story(
        ("a", 0, 1), ("a", 4, 1), mark(5), ("b", 6, 1), mark(13), ("a", 13, 1), mark(14),
        ("a", 20, 1), mark(30), ("a", 31, 1),
    )  # fmt: skip
    firsts = story.key_by(first).process(Deduplicated())
    windows = firsts.key_by(first).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    passed, counted, forgotten = lab.run(
        firsts, windows.sum(2), firsts.get_side_output(OutputTag("forgotten"))
    )
    # a: 0 is new, 4 is not (until 14), 13 is not (until 23), 20 is not (until 30), 31 is new.
    assert sorted(passed) == [("a", 0, 1), ("a", 31, 1), ("b", 6, 1)]
    assert Counter(result[0] for result in counted) == {"a": 2, "b": 1}
    assert sorted(forgotten) == [("a", 30), ("a", 41), ("b", 16)]


def test_count_windows_of_many_keys_hold_full_numbers_of_their_own_records(lab: Lab) -> None:
    lab.env.set_parallelism(3)
    records = [(n % 5, 0, n) for n in range(53)]
    keyed = lab.read(*records).key_by(first)
    tumbling, sliding, spaced = lab.run(
        keyed.count_window(3).sum(2),
        keyed.count_window(3, 1).sum(2),
        keyed.count_window(2, 3).sum(2),
    )
    by_key: dict[int, list[int]] = defaultdict(list)
    for key, _, number in records:
        by_key[key].append(number)

    def full(size: int, slide: int) -> Counter[Any]:
        """Windows begin before the first record, but only full ones are told."""
        counts: Counter[Any] = Counter()
        for key, numbers in by_key.items():
            for start in range(0, len(numbers) - size + 1, slide):
                counts[key, sum(numbers[start : start + size])] += 1
        return counts

    for found, (size, slide) in [(tumbling, (3, 3)), (sliding, (3, 1)), (spaced, (2, 3))]:
        assert Counter((key, total) for key, _, total in found) == full(size, slide)


class Both(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
        yield sorted(record[2] for record in first), sorted(record[2] for record in second)


def test_a_global_window_of_two_streams_and_an_outer_join_by_co_group(lab: Lab) -> None:
    left = lab.timed([("a", 1, 1), ("b", 2, 2)])
    right = lab.timed([("a", 3, 3), ("c", 4, 4)])
    grouped = left.co_group(right).where(first).equal_to(first)
    windows = grouped.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    assert sorted(lab.run(windows.apply(Both()))) == [([], [4]), ([1], [3]), ([2], [])]
    joined = lab.timed([("a", 1, 1)]).join(lab.timed([("a", 3, 3), ("a", 4, 4)]))
    pairs = joined.where(first).equal_to(first).window(GlobalWindows.create())
    fired = pairs.trigger(CountTrigger.of(3)).apply(lambda a, b: (a[2], b[2]))
    assert sorted(lab.run(fired)) == [(1, 3), (1, 4)]


class Instance(MapFunction[Any, Any]):
    """Counts in an attribute, which each task has for itself."""

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[Any] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.task = runtime_context.get_task_name_with_subtasks()

    def map(self, value: Any) -> Any:
        self.count += 1
        self.seen.append(value)
        return self.task, self.count, self.seen


def test_attributes_of_a_function_belong_to_a_task_and_what_was_sent_is_not_theirs(
    lab: Lab,
) -> None:
    found = lab.run(lab.env.from_collection(range(8)).map(Instance()).name("count"))
    for task, start in (("count (1/2)", 0), ("count (2/2)", 1)):
        expected = list(range(start, 8, 2))
        of_task = [(count, seen) for name, count, seen in found if name == task]
        assert of_task == [(n, expected[:n]) for n in range(1, 5)]


class Last(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(MAX)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), sorted(self.seen.get())


def test_a_timer_at_the_end_of_time_fires_with_the_end_of_input(lab: Lab) -> None:
    found = lab.run(lab.timed((n % 3, n) for n in range(9)).key_by(first).process(Last()))
    assert sorted(found) == [(key, [key, key + 3, key + 6]) for key in range(3)]
