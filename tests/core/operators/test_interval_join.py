"""The interval join finds what trying every pair finds, and forgets what is over."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from headgate.functions.function import OutputTag
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import KeptOutput, context, open_operator

KEYS = ["a", None, ["list"]]


@dataclass(frozen=True)
class Came:
    """A record: its side, its key, its time, and a number of its own."""

    side: int
    key: int
    time_ms: int
    number: int

    @property
    def value(self) -> tuple[Any, int]:
        return KEYS[self.key], self.number


class Pair:
    """Sends the numbers of the pair, and what the context tells."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        assert ctx.timestamp() == ctx.get_timestamp()
        yield (
            left[1],
            right[1],
            ctx.get_left_timestamp(),
            ctx.get_right_timestamp(),
            ctx.timestamp(),
        )


def first(value: Any) -> Any:
    return value[0]


def brute_force(
    events: list[Came | int], interval: Interval
) -> tuple[list[tuple[Any, int]], list[list[int]]]:
    """Every pair with its time, and the late records of each side, by trying all."""
    lower_ms, upper_ms, _ = interval
    watermark = MIN_WATERMARK_MS
    kept: list[Came] = []
    pairs: list[tuple[Any, int]] = []
    late: list[list[int]] = [[], []]
    for event in events:
        if isinstance(event, int):
            watermark = event
            reach = (max(upper_ms, 0), max(-lower_ms, 0))
            kept = [record for record in kept if record.time_ms + reach[record.side] > watermark]
        elif event.time_ms < watermark:
            late[event.side].append(event.number)
        else:
            for other in kept:
                left, right = (event, other) if event.side == 0 else (other, event)
                distance = right.time_ms - left.time_ms
                if (
                    other.side != event.side
                    and other.key == event.key
                    and lower_ms <= distance <= upper_ms
                ):
                    when = max(left.time_ms, right.time_ms)
                    times = left.time_ms, right.time_ms, when
                    pairs.append(((left.number, right.number, *times), when))
            kept.append(event)
    return pairs, late


bounds = st.tuples(st.integers(-6, 6), st.integers(-6, 6)).map(sorted)


@st.composite
def histories(draw: st.DrawFn) -> list[Came | int]:
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-4, 15))
            | st.integers(1, 5),
            max_size=30,
        )
    )
    events: list[Came | int] = []
    watermark = -6
    for number, step in enumerate(steps):
        if isinstance(step, int):
            watermark += step
            events.append(watermark)
        else:
            events.append(Came(*step, number))
    return events


class Asked:
    """A map state that writes down what it is asked for, and cannot be gone through."""

    def __init__(self, held: Any) -> None:
        self.asked: list[int] = []
        self._held = held

    def get(self, key: int) -> Any:
        self.asked.append(key)
        return self._held.get(key)


def joined(operator: IntervalJoinOperator, events: list[Came | int]) -> KeptOutput:
    output = open_operator(operator)
    tell(operator, events)
    return output


def tell(operator: IntervalJoinOperator, events: list[Came | int]) -> None:
    for event in events:
        if isinstance(event, int):
            operator.watermark_advanced(Watermark(event))
        else:
            operator.process(Bundle([event.value], [event.time_ms]), event.side)


@given(histories(), bounds, st.booleans())
def test_the_join_finds_what_trying_every_pair_finds(
    events: list[Came | int], ends: list[int], tagged: bool
) -> None:
    interval = Interval(*ends, ("late left", "late right") if tagged else (None, None))
    operator = IntervalJoinOperator(Pair(), first, first, interval)
    output = joined(operator, events)
    pairs, late = brute_force(events, interval)
    assert sorted(output.timed) == sorted(pairs)
    if tagged:
        found = [[v[1] for v in output.side_records(tag)] for tag in ("late left", "late right")]
        assert (found, operator.late.count) == (late, 0)
    else:
        assert operator.late.count == len(late[0]) + len(late[1])
        assert not output.side
    operator.close()


@given(histories(), bounds)
def test_everything_is_forgotten_in_the_end(events: list[Came | int], ends: list[int]) -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(*ends))
    joined(operator, [*events, MAX_WATERMARK_MS])
    assert operator._keyed is not None
    backend = operator._keyed.backend
    for key in KEYS:
        operator._cursor.key = operator._selections[0].keys([(key, 0)])[0]
        assert all(kept.is_empty() for kept in operator._kept)
    assert len(backend.event_timers) == 0
    assert operator._times == ({}, {})
    operator.close()


@given(histories(), histories(), bounds)
def test_a_restored_join_goes_on_as_if_nothing_had_happened(
    before: list[Came | int], after: list[Came | int], ends: list[int]
) -> None:
    class Restored(MemoryBackends):
        def keyed(self, operator: str, groups: range, max_parallelism: int) -> MemoryBackend:
            backend = super().keyed(operator, groups, max_parallelism)
            backend.restore(parts)
            return backend

    stayed = IntervalJoinOperator(Pair(), first, first, Interval(*ends))
    going_on = joined(stayed, before)
    assert stayed._keyed is not None
    snapshot = stayed._keyed.backend.snapshot()
    parts = list(snapshot.groups())
    snapshot.close()
    known = len(going_on.timed)
    behind_ms = stayed._timers.watermark_ms
    tell(stayed, [behind_ms, *after])
    operator = IntervalJoinOperator(Pair(), first, first, Interval(*ends))
    output = open_operator(operator, within=replace(context(), backends=Restored()))
    tell(operator, [behind_ms, *after])
    assert output.timed == going_on.timed[known:]
    stayed.close()
    operator.close()


@pytest.mark.parametrize(("ends", "waiting"), [((0, 10), 0), ((-10, 0), 1)])
def test_each_side_is_kept_as_long_as_the_other_may_bring_partners(
    ends: tuple[int, int], waiting: int
) -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(*ends))
    output = open_operator(operator)
    operator.process(Bundle([("a", 1)], [5]), waiting)
    operator.watermark_advanced(Watermark(14))
    operator.process(Bundle([("a", 1)], [15]), 1 - waiting)
    assert len(output.records) == 1
    operator.watermark_advanced(Watermark(15))
    assert len(operator._keyed.backend.event_timers) == 0, "neither side has a future"
    operator.close()


def test_a_record_finds_its_partners_without_a_look_at_all_others_of_its_key() -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(-1, 1))
    output = open_operator(operator)
    operator.process(Bundle([("a", at) for at in range(100)], list(range(100))), 0)
    others = operator._kept[0] = Asked(operator._kept[0])
    operator.process(Bundle([("a", 0)], [50]), 1)
    assert [pair[0] for pair in output.records] == [49, 50, 51]
    assert others.asked == [49, 50, 51]
    operator.close()


def test_the_late_records_of_a_bundle_leave_together() -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(0, 1, ("late", None)))
    output = open_operator(operator)
    operator.watermark_advanced(Watermark(9))
    for side in (0, 1):
        operator.process(Bundle([("a", 1), ("a", 2), ("b", 3)], [1, 9, 8]), side)
    ((tag, late),) = output.side
    assert (tag, late.records, late.timestamps) == ("late", [("a", 1), ("b", 3)], [1, 8])
    assert (operator.late.count, operator.late.most_ms) == (2, 8)
    operator.close()


def test_a_bundle_with_many_records_is_joined_in_order() -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(0, 10))
    output = open_operator(operator)
    operator.process(Bundle([("a", 1), ("b", 2), ("a", 3)], [0, 0, 5]), 0)
    operator.process(Bundle([("a", 4), ("b", 5)], [7, 11]), 1)
    assert output.timed == [((1, 4, 0, 7, 7), 7), ((3, 4, 5, 7, 7), 7)]
    operator.close()


def test_the_function_may_return_nothing_yield_to_the_side_and_have_state() -> None:
    class Counting:
        def open(self, runtime_context: Any) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("pairs"))

        def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
            count = (self.count.value() or 0) + 1
            self.count.update(count)
            return None if count == 1 else [(OutputTag("side"), (left[0], count))]

    operator = IntervalJoinOperator(Counting(), first, first, Interval(0, 0))
    output = open_operator(operator)
    operator.process(Bundle([("a", 1), ("a", 2), ("b", 1)], [0, 0, 0]), 0)
    operator.process(Bundle([("a", 1), ("b", 1)], [0, 0]), 1)
    assert not output.records
    assert output.side_records("side") == [("a", 2)]
    operator.close()


@pytest.mark.parametrize("times", [None, [None], [MIN_WATERMARK_MS]])
def test_records_without_a_time_are_told(times: list[int | None] | None) -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(0, 0))
    open_operator(operator)
    with pytest.raises(RuntimeError, match="on the right of the interval join has no timestamp"):
        operator.process(Bundle([("a", 1)], times), 1)


def test_what_is_not_iterable_and_a_selector_that_fails_are_told() -> None:
    operator = IntervalJoinOperator(lambda left, right, ctx: 5, first, first, Interval(0, 0))
    open_operator(operator)
    operator.process(Bundle([("a", 1)], [0]), 0)
    with pytest.raises(TypeError, match="process_element must return an iterable"):
        operator.process(Bundle([("a", 1)], [0]), 1)
    with pytest.raises(UserFunctionFailed, match="'op' failed when the key of a record"):
        operator.process(Bundle([5], [0]), 1)


def test_the_function_is_opened_and_closed_once() -> None:
    log: list[str] = []

    class Loud(Pair):
        def open(self, runtime_context: Any) -> None:
            log.append("open")

        def close(self) -> None:
            log.append("close")

    operator = IntervalJoinOperator(Loud(), first, first, Interval(0, 0))
    open_operator(operator)
    operator.close()
    operator.close()
    assert log == ["open", "close"]


def test_in_a_batch_a_key_that_ended_leaves_nothing_for_the_next() -> None:
    operator = IntervalJoinOperator(Pair(), first, first, Interval(0, 5))
    output = open_operator(operator)
    for number in range(2):
        operator.process(Bundle([("a", number)], [3]), 0)
        operator.process(Bundle([("a", number)], [4]), 1)
        operator.key_ended()
    assert output.records == [(0, 0, 3, 4, 4), (1, 1, 3, 4, 4)]
    operator.close()
