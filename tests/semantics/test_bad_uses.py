"""Programs that fail while they run: told with the operator's name and what to do instead.

What can be known when a program is written is refused there, see tests/api/test_bad_uses.py.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Time, Types, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from headgate.datastream import (
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
)
from headgate.datastream.functions import AggregateFunction
from headgate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from tests.api.bad_functions import made
from tests.semantics.lab import Lab, first, second

SECOND = TumblingEventTimeWindows.of(Time.seconds(1))
RECORDS = [("a", 1), ("b", 2), ("a", 8), ("a", 4)]


# What is known when it happens


def fails(lab: Lab, stream: DataStream, message: str) -> None:
    stream.name("mine")
    with pytest.raises(UserFunctionFailed, match=f"operator 'mine' failed.*{message}"):
        lab.run(stream)


def never(self: Any, *rest: Any) -> Any:
    return 5


def nothing(self: Any, *rest: Any) -> Any:
    return None


def set_timer(self: Any, value: Any, ctx: Any) -> None:
    ctx.timer_service().register_event_time_timer(9)


RETURNED: dict[str, tuple[Callable[[DataStream], DataStream], str]] = {
    "typed map": (
        lambda s: s.map(lambda value: None, Types.INT()),
        r"None does not fit the declared type Types.INT\(\): .* is needed, this is None",
    ),
    "flat_map": (lambda s: s.flat_map(lambda value: None), "must return an iterable"),  # type: ignore[arg-type]
    "process": (
        lambda s: s.process(made(ProcessFunction, process_element=never)),
        "process_element must return an iterable .a list, or use yield., not int",
    ),
    "keyed process": (
        lambda s: s.key_by(first).process(made(KeyedProcessFunction, process_element=never)),
        "process_element must return an iterable",
    ),
    "two inputs": (
        lambda s: s.connect(s).process(made(CoProcessFunction, process_element2=never)),
        "process_element2 must return an iterable",
    ),
    "timer": (
        lambda s: s.key_by(first).process(
            made(KeyedProcessFunction, process_element=set_timer, on_timer=nothing)
        ),
        "on_timer must return an iterable .a list, or use yield., not NoneType",
    ),
    "window": (
        lambda s: (
            s.key_by(first).window(SECOND).process(made(ProcessWindowFunction, process=never))
        ),
        r"process\(\) of a window function must return an iterable",
    ),
    "reduce": (
        lambda s: s.key_by(lambda record: 0).window(SECOND).reduce(lambda a, b: None),
        "reduce function returned None; return the combined record",
    ),
    "window of None": (
        lambda s: s.map(lambda value: None).key_by(str).window(SECOND).reduce(lambda a, b: b),
        "was given the record None, which it cannot keep: .* filter such records out before",
    ),
    "type": (lambda s: s.map(first, Types.INT()), r"'a' does not fit .*Types.INT\(\).*declare ano"),
}


@pytest.mark.parametrize("case", RETURNED)
def test_a_result_of_the_wrong_kind_is_told_with_the_operator(lab: Lab, case: str) -> None:
    write, message = RETURNED[case]
    fails(lab, write(lab.timed(RECORDS)), message)


STATES: dict[str, tuple[Callable[[RuntimeContext], object], str]] = {
    "descriptor of another kind": (
        lambda ctx: ctx.get_state(ListStateDescriptor("x")),  # type: ignore[arg-type]
        r"ListStateDescriptor\('x'\) was given for a state; give a ValueStateDescriptor",
    ),
    "text": (lambda ctx: ctx.get_map_state("x"), "'x' was given .*give a MapStateDescriptor"),  # type: ignore[arg-type]
    "two kinds": (
        lambda ctx: (
            ctx.get_state(ValueStateDescriptor("x")),
            ctx.get_map_state(MapStateDescriptor("x")),
        ),
        "'x' is a value state already and cannot be a map state too; give it another name",
    ),
    "two types": (
        lambda ctx: (
            ctx.get_state(ValueStateDescriptor("x", Types.INT())),
            ctx.get_state(ValueStateDescriptor("x", Types.STRING())),
        ),
        r"'x' has the type Types.INT\(\) already and cannot have Types.STRING\(\) too; give it ano",
    ),
    "type of Python": (
        lambda ctx: ctx.get_state(ValueStateDescriptor("x", int)),
        r"'x' was given the type <class 'int'>; give one such as Types.INT\(\)",
    ),
    "no reduce function": (
        lambda ctx: ctx.get_reducing_state(ReducingStateDescriptor("x", None)),
        "'x' was given None; give a ReduceFunction",
    ),
    "no aggregate function": (
        lambda ctx: ctx.get_aggregating_state(AggregatingStateDescriptor("x", max)),  # type: ignore[arg-type]
        "'x' was given .*; give an object of an AggregateFunction",
    ),
    "no time to live": (
        lambda ctx: StateTtlConfig.new_builder(Time.seconds(0)).build(),
        "must live for some time, not 0 ms; set a ttl > 0",
    ),
    "number as a time to live": (
        lambda ctx: StateTtlConfig.new_builder(60).build(),
        r"60 is no time to live; give Time.seconds\(60\)",
    ),
    "builder in place of a time to live": (
        lambda ctx: ValueStateDescriptor("x").enable_time_to_live(
            StateTtlConfig.new_builder(Time.seconds(1))  # type: ignore[arg-type]
        ),
        r"is no StateTtlConfig; make one with .*build\(\)",
    ),
    "state before the first record": (
        lambda ctx: ctx.get_state(ValueStateDescriptor("x")).value(),
        r"there is no current key here.*not in open\(\)",
    ),
}


def test_state_that_is_asked_for_in_a_wrong_way_is_told(lab: Lab) -> None:
    for ask, message in STATES.values():
        asking = made(KeyedProcessFunction, open=lambda self, context, ask=ask: ask(context))
        stream = lab.read(*RECORDS).key_by(first).process(asking)
        fails(lab, stream, rf" in open\(\): .*{message}")


def test_a_timer_needs_whole_milliseconds(lab: Lab) -> None:
    def set_wrong(self: Any, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    for wrong in (1.5, "1", None):
        function = made(KeyedProcessFunction, process_element=set_wrong)
        message = rf"the time {wrong!r}; give whole milliseconds since 1970"
        fails(lab, lab.read(("a", wrong)).key_by(first).process(function), message)


# Errors of the user's own, in every method that a function has


def boom(self: Any, *rest: Any) -> Any:
    raise ValueError("boom!")


class Total(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def one_key(record: Any) -> int:
    return 1


def windowed(stream: DataStream, function: Any) -> DataStream:
    return stream.key_by(first).window(SECOND).process(function)


def sessions(stream: DataStream, function: Any) -> DataStream:
    """8 and 1 are apart until 4 comes."""
    gap = EventTimeSessionWindows.with_gap(Time.milliseconds(4))
    return stream.key_by(one_key).window(gap).aggregate(function)


HOOKS: list[tuple[type, str, Callable[[DataStream, Any], DataStream]]] = [
    (MapFunction, "open map close", lambda s, f: s.map(f)),
    (FlatMapFunction, "open flat_map close", lambda s, f: s.flat_map(f)),
    (FilterFunction, "open filter close", lambda s, f: s.filter(f)),
    (ReduceFunction, "open reduce close", lambda s, f: s.key_by(one_key).reduce(f)),
    (KeySelector, "get_key", lambda s, f: s.key_by(f).sum(1)),
    (ProcessFunction, "open process_element close", lambda s, f: s.process(f)),
    (
        KeyedProcessFunction,
        "open process_element on_timer close",
        lambda s, f: s.key_by(first).process(f),
    ),
    (CoMapFunction, "open map1 map2 close", lambda s, f: s.connect(s).map(f)),
    (
        KeyedCoProcessFunction,
        "open process_element1 process_element2 on_timer close",
        lambda s, f: s.connect(s).key_by(first, first).process(f),
    ),
    (ProcessWindowFunction, "open process clear close", windowed),
    (Total, "open create_accumulator add get_result merge close", sessions),
]


@pytest.mark.parametrize(("kind", "hooks", "put"), HOOKS, ids=[kind.__name__ for kind, *_ in HOOKS])
def test_an_error_in_any_method_names_the_operator_and_tells_the_users_words(
    lab: Lab, kind: type, hooks: str, put: Callable[[DataStream, Any], DataStream]
) -> None:
    for hook in hooks.split():
        methods: dict[str, Any] = {hook: boom}
        if hook == "on_timer":
            methods |= dict.fromkeys(kind.__abstractmethods__, set_timer)  # type: ignore[attr-defined]
        where = rf" in {hook}\(\)" if hook in ("open", "close") else ""
        records = lab.timed([("a", 1), ("a", 8), ("a", 4)]).set_parallelism(1)
        fails(lab, put(records, made(kind, **methods)), rf"{where}.*: ValueError: boom!")


def test_an_error_in_a_sink_names_the_sink(lab: Lab) -> None:
    for hook in ("open", "invoke", "close"):
        lab.read(1).add_sink(made(SinkFunction, **{hook: boom})).name("mine")
        with pytest.raises(UserFunctionFailed, match="'mine' failed.*ValueError: boom!"):
            lab.run()


class Broken(WatermarkGenerator):
    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        raise ValueError("boom!")

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Nothing to say."""


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (WatermarkStrategy.for_generator(Broken).with_timestamp_assigner(second), "boom!"),
        (
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                lambda value, before: "soon"  # type: ignore[arg-type,return-value]
            ),
            "returned 'soon', a str; return milliseconds",
        ),
    ],
    ids=["generator", "assigner"],
)
def test_an_error_in_a_watermark_strategy_names_its_operator(
    lab: Lab, strategy: WatermarkStrategy, message: str
) -> None:
    fails(lab, lab.read(*RECORDS).assign_timestamps_and_watermarks(strategy), message)


def test_a_partitioner_must_name_a_task(lab: Lab) -> None:
    for task in (99, -1, None, "x"):
        stream = lab.read((task,)).partition_custom(lambda key, tasks: key, first).map(str)
        with pytest.raises(UserFunctionFailed, match=f"the partitioner returned {task!r}; it must"):
            lab.run(stream)


def test_a_trigger_of_ones_own_that_fails_names_the_windows(lab: Lab) -> None:
    class Failing(CountTrigger):
        on_element = boom

    windows = lab.read(*RECORDS).key_by(first).window(GlobalWindows.create())
    fails(lab, windows.trigger(Failing(1)).reduce(lambda a, b: a), "boom!")
