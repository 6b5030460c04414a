"""One function in a harness: records, time, state, timers, snapshots."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    EventTimeSessionWindows,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from headgate.datastream import TimeDomain
from headgate.datastream.state import StateTtlConfig
from headgate.testing import (
    External,
    FunctionHarness,
    HarnessMisused,
    OperatorHarness,
    PendingTimer,
)
from tests.testing.jobs_kit import Mean, Sorted

SUM = ValueStateDescriptor("sum", Types.INT())
LARGE = OutputTag("large", Types.INT())


class RunningSum(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(SUM)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)
        if total > 10:
            yield LARGE, total
        yield value[0], total

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp
        self.sum.clear()


def key_of(value: Any) -> str:
    return str(value[0])


def test_a_keyed_process_function_has_state_timers_and_side_outputs() -> None:
    with FunctionHarness(RunningSum(), key_selector=key_of) as harness:
        harness.send(("a", 4), timestamp=10)
        harness.send(("b", 1), timestamp=20)
        harness.send(("a", 8), timestamp=30)
        assert harness.output == [("a", 4), ("b", 1), ("a", 12)]
        assert harness.timed_output[-1] == (("a", 12), 30)
        assert harness.side_output(LARGE) == [12]
        assert harness.side_output(OutputTag("other")) == []
        assert harness.state(SUM, "a") == 12
        assert harness.timers("a") == [PendingTimer(110, "a"), PendingTimer(130, "a")]
        harness.clear_output()
        harness.advance_watermark(110)
        assert harness.output == [("timer", "a", 110)]
        assert harness.state(SUM, "a") is None
        assert harness.state(SUM, "b") == 1
        harness.finish()
        assert harness.output[1:] == [("timer", "b", 120), ("timer", "a", 130)]


def test_a_restored_harness_takes_snapshots_as_often_as_any_other() -> None:
    with FunctionHarness(RunningSum(), key_selector=key_of) as harness:
        harness.send(("a", 1), timestamp=1)
        snapshots = [harness.snapshot(), harness.snapshot()]
    for number in range(1, 5):
        for snapshot in snapshots:
            restored = FunctionHarness.restore(snapshot, RunningSum(), key_selector=key_of)
            with restored as harness:
                assert harness.state(SUM, "a") == number
                harness.send(("a", 1), timestamp=1)
                snapshots = [harness.snapshot(), harness.snapshot()]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_snapshot_is_restored_with_any_parallelism(parallelism: int) -> None:
    harness = FunctionHarness(RunningSum(), key_selector=key_of)
    for key in "abcde":
        harness.send((key, 1), timestamp=1)
    harness.advance_watermark(50)
    snapshot = harness.snapshot()
    harness.send(("a", 5), timestamp=60)
    harness.close()
    restored = FunctionHarness.restore(
        snapshot, RunningSum(), key_selector=key_of, parallelism=parallelism
    )
    assert len(restored.timers()) == 5
    for key in "abcde":
        assert restored.state(SUM, key) == 1
        restored.send((key, 1), timestamp=70)
        assert restored.output[-1] == (key, 2)
    restored.advance_watermark(101)
    assert sorted(restored.output[5:]) == [("timer", key, 101) for key in "abcde"]
    restored.close()


def test_processing_time_moves_by_hand() -> None:
    class Delayed(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            now = ctx.timer_service().current_processing_time()
            ctx.timer_service().register_processing_time_timer(now + 1000)
            yield from ()

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield timestamp

    harness = FunctionHarness(Delayed(), key_selector=str, start_ms=500)
    harness.send("a")
    assert harness.timers() == [PendingTimer(1500, "a", TimeDomain.PROCESSING_TIME)]
    harness.advance_clock(999)
    assert (harness.output, harness.now_ms) == ([], 1499)
    harness.advance_clock(1)
    assert harness.output == [1500]
    harness.close()


def test_state_expires_with_the_clock() -> None:
    class Once(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            seen = ValueStateDescriptor("seen", Types.BOOLEAN())
            seen.enable_time_to_live(StateTtlConfig.new_builder(Time.minutes(1)).build())
            self.seen = runtime_context.get_state(seen)

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            if not self.seen.value():
                self.seen.update(True)
                yield value

    harness = FunctionHarness(Once(), key_selector=str)
    harness.send("a")
    harness.advance_clock(59_999)
    harness.send("a")
    assert harness.output == ["a"]
    assert harness.state("seen", "a") is True
    harness.advance_clock(60_001)
    assert harness.state("seen", "a") is None
    harness.send("a")
    assert harness.output == ["a", "a"]
    harness.close()


class Plus(MapFunction):
    def map(self, value: Any) -> Any:
        return value + 1


class Twice(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        yield value
        yield value


class Even(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(value % 2 == 0)


class Add(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class Timestamped(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp()


@pytest.mark.parametrize(
    ("harness", "output"),
    [
        (lambda: FunctionHarness(Plus()), [2, 3, 4]),
        (lambda: FunctionHarness(Twice()), [1, 1, 2, 2, 3, 3]),
        (lambda: FunctionHarness(Even()), [2]),
        (lambda: FunctionHarness(Add(), key_selector=lambda n: n % 2), [1, 2, 4]),
        (lambda: FunctionHarness(Timestamped()), [(1, 1), (2, 2), (3, 3)]),
        (lambda: FunctionHarness(lambda n: n * 2, operation="map"), [2, 4, 6]),
        (lambda: FunctionHarness(lambda n: n > 1, operation="filter"), [2, 3]),
        (lambda: FunctionHarness(range, operation="flat_map"), [0, 0, 1, 0, 1, 2]),
        (
            lambda: FunctionHarness(lambda a, b: a * b, key_selector=bool, operation="reduce"),
            [1, 2, 6],
        ),
    ],
    ids=["map", "flat_map", "filter", "reduce", "process", "λ map", "λ filter", "flat", "λ reduce"],
)
def test_every_kind_of_function_has_its_operator(harness: Any, output: list[Any]) -> None:
    with harness() as made:
        for number in (1, 2, 3):
            made.send(number, timestamp=number)
        assert made.output == output


def test_functions_of_two_inputs_take_both() -> None:
    class Sides(CoMapFunction):
        def map1(self, value: Any) -> Any:
            return "left", value

        def map2(self, value: Any) -> Any:
            return "right", value

    class Flat(CoFlatMapFunction):
        def flat_map1(self, value: Any) -> Iterator[Any]:
            yield value

        def flat_map2(self, value: Any) -> Iterator[Any]:
            yield -value

    class Matched(KeyedCoProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.INT()))

        def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.left.update(value[1])
            yield from ()

        def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value[0], self.left.value(), value[1]

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield from ()

    for function, expected in ((Sides(), [("left", 1), ("right", 2)]), (Flat(), [1, -2])):
        with FunctionHarness(function) as harness:
            harness.send(1)
            harness.send(2, input=2)
            assert harness.output == expected
    with FunctionHarness(Matched(), key_selector=key_of) as harness:
        harness.send(("a", 1))
        harness.send(("a", 2), input=2)
        harness.send(("b", 2), input=2)
        assert harness.output == [("a", 1, 2), ("b", None, 2)]
        assert harness.state("left", "a") == 1
        harness.advance_watermark(5, input=1)
        harness.advance_watermark(9)


RATES = MapStateDescriptor("rates", Types.STRING(), Types.INT())


def test_broadcast_functions_take_rules_on_the_second_input() -> None:
    class Rated(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value, ctx.get_broadcast_state(RATES).get("rate")

        def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.get_broadcast_state(RATES).put("rate", value)
            yield from ()

    class KeyedRated(KeyedBroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.get_current_key(), ctx.get_broadcast_state(RATES).get("rate")

        def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.get_broadcast_state(RATES).put("rate", value)
            yield from ()

    with FunctionHarness(Rated(), broadcast=[RATES]) as harness:
        harness.send("a")
        harness.send(7, input=2)
        harness.send("b")
        assert harness.output == [("a", None), ("b", 7)]
        snapshot = harness.snapshot()
    with FunctionHarness.restore(snapshot, Rated(), broadcast=[RATES], parallelism=2) as harness:
        harness.send("c")
        assert harness.output == [("c", 7)]
    with FunctionHarness(KeyedRated(), key_selector=str, broadcast=[RATES]) as harness:
        harness.send(7, input=2)
        harness.send("b")
        assert harness.output == [("b", 7)]


def add_pairs(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


def test_windows_fire_with_the_watermark() -> None:
    minutes = TumblingEventTimeWindows.of(Time.minutes(1))
    with FunctionHarness(Mean(), key_selector=key_of, window=minutes) as harness:
        harness.send(("a", 1), timestamp=1)
        harness.send(("a", 2), timestamp=2)
        harness.advance_watermark(59_998)
        assert harness.output == []
        snapshot = harness.snapshot()
        harness.advance_watermark(59_999)
        assert harness.timed_output == [(1.5, 59_999)]
    restored = FunctionHarness.restore(snapshot, Mean(), key_selector=key_of, window=minutes)
    restored.finish()
    assert restored.output == [1.5]
    with FunctionHarness(Sorted(), key_selector=key_of, window=minutes) as harness:
        harness.send(("a", 2), timestamp=1)
        harness.send(("a", 1), timestamp=2)
        harness.advance_watermark(60_000)
        assert harness.output == [("a", 0, (("a", 1), ("a", 2)))]
    sessions = EventTimeSessionWindows.with_gap(Time.seconds(10))
    with FunctionHarness(add_pairs, key_of, operation="reduce", window=sessions) as harness:
        for timestamp in (0, 15_000, 8_000):
            harness.send(("a", 1), timestamp=timestamp)
        harness.advance_watermark(60_000)
        assert harness.output == [("a", 3)]


def test_asynchronous_functions_are_called_at_once() -> None:
    class Doubled(AsyncFunction):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [value * 2]

    with FunctionHarness(Doubled()) as harness:
        harness.send(4)
        assert harness.output == [8]


def test_an_operator_of_two_streams_fits_in_too() -> None:
    with OperatorHarness(lambda first, second: first.union(second), inputs=2) as harness:
        harness.send(1)
        harness.send(2, input=2)
        assert harness.output == [1, 2]


def test_the_exception_of_a_function_comes_as_it_is() -> None:
    class Refused(ValueError):
        pass

    def refuse(value: int) -> int:
        raise Refused(value)

    harness = FunctionHarness(refuse, operation="map")
    with pytest.raises(Refused):
        harness.send(1)
    with pytest.raises(HarnessMisused, match="the program has ended"):
        harness.send(2)


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda: FunctionHarness(RunningSum()), "RunningSum works on a keyed stream"),
        (lambda: FunctionHarness(Add()), "reduce works on a keyed stream"),
        (lambda: FunctionHarness(lambda n: n), "say operation='map'"),
        (lambda: FunctionHarness(Mean()), "Mean is a function of windows"),
        (lambda: FunctionHarness(Plus()).send(1, input=2), "there is no input 2"),
        (lambda: FunctionHarness(Plus()).state(SUM, 1), "keeps no state by key"),
        (lambda: FunctionHarness(Plus()).side_output("x"), "give an OutputTag"),  # type: ignore[arg-type]
        (lambda: FunctionHarness(Plus()).advance_clock(-5), "clock cannot go back by 5"),
        (lambda: FunctionHarness.restore(None, Plus()), "give what snapshot"),  # type: ignore[arg-type]
        (lambda: OperatorHarness(lambda stream: None), "return the stream that the operator"),
    ],
    ids=range(10),
)
def test_bad_use_is_told_in_a_sentence(use: Any, problem: str) -> None:
    with pytest.raises(HarnessMisused, match=problem):
        use()


closed: External[list[str]] = External(list, "closed", compared=False)


class Closing(MapFunction):
    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        closed.value.append("closed")


def test_functions_are_closed_with_their_harness() -> None:
    closed.reset()
    with FunctionHarness(Closing()) as harness:
        harness.send(1)
        assert closed.value == []
    assert closed.value == ["closed"]
    harness.close()
    finished = FunctionHarness(Closing())
    finished.finish()
    finished.close()
    assert closed.value == ["closed", "closed"]


def test_watermarks_do_not_go_back() -> None:
    harness = FunctionHarness(Plus())
    harness.advance_watermark(10)
    with pytest.raises(HarnessMisused, match="would go back from 10 to 9"):
        harness.advance_watermark(9)
    harness.close()
