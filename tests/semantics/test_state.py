"""State, broadcast state and side outputs, a sentence at a time, in whole programs."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Row, Time, Types
from headgate.core.state.backend import Backends
from headgate.datastream import (
    BroadcastProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from headgate.datastream.functions import AggregateFunction
from headgate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.semantics.lab import Lab, first


@pytest.fixture
def backends(both_backends: Backends | None) -> Backends | None:
    return both_backends


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


# Keyed state


class Gather(AggregateFunction[Any, Any, Any]):
    """Changes its accumulator in place."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> Any:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b


class Everything(KeyedProcessFunction[Any, Any, Any]):
    """All kinds of state, looked at before and after they are filled."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("v", Types.INT()))
        self.list = runtime_context.get_list_state(ListStateDescriptor("l", Types.INT()))
        self.map = runtime_context.get_map_state(
            MapStateDescriptor("m", Types.STRING(), Types.INT())
        )
        self.reduced = runtime_context.get_reducing_state(
            ReducingStateDescriptor("r", lambda total, value: total + value, Types.INT())
        )
        self.folded = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("a", Gather(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value[0], self.held()
        self.value.update(value[1])
        self.list.add(value[1])
        self.map.put_all({"x": value[1], "gone": 0})
        self.map["y"] = value[1]
        del self.map["gone"]
        self.reduced.add(value[1])
        self.folded.add(value[1])
        if value[1] < 0:
            for state in (self.value, self.list, self.map, self.reduced, self.folded):
                state.clear()

    def held(self) -> tuple[Any, ...]:
        items = sorted(self.map.items())
        found = self.map.get("x"), self.map["gone"], "x" in self.map, "gone" in self.map
        folded = self.folded.get()
        return (
            self.value.value(),
            list(self.list.get()),
            items,
            found,
            self.reduced.get(),
            None if folded is None else list(folded),
        )


def test_empty_state_is_none_or_empty_and_each_key_has_its_own(lab: Lab) -> None:
    records = lab.read(("a", 1), ("b", 5), ("a", 2), ("a", 3), ("a", -1), ("a", 9))
    found = lab.run(records.key_by(first).process(Everything()))
    empty = (None, [], [], (None, None, False, False), None, None)
    assert [held for key, held in found if key == "b"] == [empty]
    assert [held for key, held in found if key == "a"] == [
        empty,
        (1, [1], [("x", 1), ("y", 1)], (1, None, True, False), 1, [1]),
        (2, [1, 2], [("x", 2), ("y", 2)], (2, None, True, False), 3, [1, 2]),
        (3, [1, 2, 3], [("x", 3), ("y", 3)], (3, None, True, False), 6, [1, 2, 3]),
        empty,
    ]


class Nothing(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.count.update(None)


def test_typed_state_refuses_none_and_says_what_to_do(lab: Lab) -> None:
    stream = lab.read(("a", 1)).key_by(first).process(Nothing()).name("mine")
    with pytest.raises(UserFunctionFailed, match=r"'mine' failed: .*'count'.*call clear\(\)"):
        lab.run(stream)


class Stateful:
    """Asks for state in open; counts the records of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def counted(self) -> int:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return int(count)


class CountMap(Stateful, MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value[0], self.counted()


class CountFlatMap(Stateful, FlatMapFunction[Any, Any]):
    def flat_map(self, value: Any) -> Iterator[Any]:
        yield value[0], self.counted()


class FirstTwo(Stateful, FilterFunction[Any]):
    def filter(self, value: Any) -> bool:
        return self.counted() <= 2


class AddThrice(Stateful, ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return (value1[0], value1[1] + value2[1]) if self.counted() <= 3 else value1


def test_map_filter_flat_map_and_reduce_on_a_keyed_stream_have_keyed_state(lab: Lab) -> None:
    keyed = lab.read(*((key, 1) for _ in range(5) for key in "ab")).key_by(first)
    mapped, flat, filtered, reduced = lab.run(
        keyed.map(CountMap()),
        keyed.flat_map(CountFlatMap()),
        keyed.filter(FirstTwo()),
        keyed.reduce(AddThrice()),
    )
    assert sorted(mapped) == sorted(flat) == [(key, n) for key in "ab" for n in range(1, 6)]
    assert Counter(filtered) == {("a", 1): 2, ("b", 1): 2}
    assert sorted(reduced) == sorted((key, n) for key in "ab" for n in (1, 2, 3, 4, 4))


@pytest.mark.parametrize("function", [CountMap(), CountFlatMap(), FirstTwo()])
def test_without_keys_there_is_no_state_and_the_error_names_the_operator(
    lab: Lab, function: Any
) -> None:
    methods = {CountMap: "map", CountFlatMap: "flat_map", FirstTwo: "filter"}
    stream = getattr(lab.read(("a", 1)), methods[type(function)])(function).name("mine")
    with pytest.raises(
        UserFunctionFailed,
        match=r"'mine' failed in open\(\): .*'count'.* only accessible by functions executed on a "
        r"KeyedStream; call key_by\(\)",
    ):
        lab.run(stream)


class Timer(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1)


def test_without_keys_there_are_no_timers_and_the_error_names_the_operator(lab: Lab) -> None:
    with pytest.raises(UserFunctionFailed, match=r"'mine' failed: .*timers .*call key_by\(\)"):
        lab.run(lab.read(1).process(Timer()).name("mine"))


class Forgetful(KeyedProcessFunction[Any, Any, Any]):
    """The same in state that lives for a millisecond and in state that lives for an hour."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.states = []
        for name, lives in (("short", Time.milliseconds(1)), ("long", Time.hours(1))):
            value, items = ValueStateDescriptor(name, Types.INT()), MapStateDescriptor(f"{name} m")
            for descriptor in (value, items):
                descriptor.enable_time_to_live(StateTtlConfig.new_builder(lives).build())
            self.states.append(
                (runtime_context.get_state(value), runtime_context.get_map_state(items))
            )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        time.sleep(0.02)
        for number, items in self.states:
            yield value[1], number.value(), sorted(items.keys())
            number.update(value[1])
            items.put(value[1], True)


def test_state_with_a_time_to_live_is_forgotten_by_the_clock(lab: Lab) -> None:
    """Event time stands still meanwhile."""
    records = lab.read(("k", 1), ("k", 2), ("k", 3))
    assert lab.run(records.key_by(first).process(Forgetful())) == [
        (1, None, []),
        (1, None, []),
        (2, None, []),
        (2, 1, [1]),
        (3, None, []),
        (3, 2, [1, 2]),
    ]


# Broadcast state


class Rules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Tells at a timer what was seen of the key, and the rules of that moment."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.task = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> None:
        assert not hasattr(ctx.get_broadcast_state(RULES), "put")
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(1000)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES)
        if value[2] is None:
            rules.remove(value[0])
        else:
            rules.put(value[0], value[2])
        yield "rule", self.task, value[0]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        rules = dict(ctx.get_broadcast_state(RULES).items())
        yield "key", ctx.get_current_key(), sorted(self.seen.get()), rules


def test_rules_that_change_reach_every_task_and_timers_of_the_keyed_side_read_them(
    lab: Lab,
) -> None:
    lab.env.set_parallelism(3)
    changes = lab.timed([("x", 1, 1), ("y", 2, 2), ("x", 3, 3), ("y", 4, None)])
    rules = changes.set_parallelism(1).broadcast(RULES)  # in order
    records = lab.timed((key, n) for n in range(4) for key in "abc").key_by(first)
    found = lab.run(records.connect(rules).process(Rules()))
    rules = Counter(result for result in found if result[0] == "rule")
    assert rules == {("rule", task, name): 2 for task in range(3) for name in "xy"}
    keys = sorted(result for result in found if result[0] == "key")
    assert keys == [("key", key, [0, 1, 2, 3], {"x": 3}) for key in "abc"]


class Meddling(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("a", 1)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        """Nothing is to be remembered."""


def test_the_normal_side_cannot_change_broadcast_state_and_learns_where_to(lab: Lab) -> None:
    stream = lab.read(1).connect(lab.read(1).broadcast(RULES)).process(Meddling()).name("mine")
    with pytest.raises(
        UserFunctionFailed,
        match="'mine' failed: .*has no put .*'rules' can only be read here; change it in process_b",
    ):
        lab.run(stream)


# Side outputs


class Apart(KeyedProcessFunction[Any, Any, Any]):
    """Odd numbers to the side, timers too; the main output is what is left."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(value[1])
        yield (OutputTag("odd"), value[1]) if value[1] % 2 else value[1]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield OutputTag("odd"), f"at {timestamp}"


def test_an_equal_new_tag_reads_a_side_output_and_the_same_tag_elsewhere_is_another_stream(
    lab: Lab,
) -> None:
    apart = lab.read(("a", 1), ("a", 2)).key_by(first).process(Apart())
    elsewhere = lab.read(("a", 3)).key_by(first).process(Apart())
    main, side, other = lab.run(
        apart, apart.get_side_output(OutputTag("odd")), elsewhere.get_side_output(OutputTag("odd"))
    )
    assert main == [2]
    assert sorted(map(str, side)) == ["1", "at 1", "at 2"]
    assert sorted(map(str, other)) == ["3", "at 3"]


def test_a_side_output_that_nobody_reads_does_not_leak_into_the_main_stream(lab: Lab) -> None:
    assert lab.run(lab.read(("a", 1), ("a", 2)).key_by(first).process(Apart())) == [2]


class Keeper(KeyedProcessFunction[Any, Any, Any]):
    """Reads a list by iterating the state itself, and fills a map with pairs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        anything = Types.PICKLED_BYTE_ARRAY()
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", anything))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", anything))
        self.pairs = runtime_context.get_map_state(
            MapStateDescriptor("pairs", Types.STRING(), anything)
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.seen.add(value[1])
        self.last.update(value[1])
        self.pairs.put_all([("a", value[1]), ("b", None)])
        self.pairs.put_all({"c": {1, 2}})
        yield [*self.seen], self.last.value(), dict(self.pairs.items())


def test_pickled_state_takes_anything_a_list_is_iterated_and_a_map_takes_pairs(lab: Lab) -> None:
    found = lab.run(lab.read(("k", None), ("k", {1: 2})).key_by(first).process(Keeper()))
    more = {"b": None, "c": {1, 2}}
    assert found == [
        ([None], None, {"a": None, **more}),
        ([None, {1: 2}], {1: 2}, {"a": {1: 2}, **more}),
    ]


class Last(AggregateFunction[Any, Any, Any]):
    """The accumulator is the last value."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a


STATES: dict[str, Callable[[Any], StateDescriptor]] = {
    "value": lambda t: ValueStateDescriptor("s", t),
    "list": lambda t: ListStateDescriptor("s", t),
    "map": lambda t: MapStateDescriptor("s", Types.STRING(), t),
    "reducing": lambda t: ReducingStateDescriptor("s", lambda before, value: value, t),
    "aggregating": lambda t: AggregatingStateDescriptor("s", Last(), t),
}


class Store(KeyedProcessFunction[Any, Any, Any]):
    """Writes a value to a state and reads it again."""

    def __init__(self, kind: str, value: Any, type_info: Any) -> None:
        self.kind, self.value, self.type_info = kind, value, type_info

    def open(self, runtime_context: RuntimeContext) -> None:
        name = "get_state" if self.kind == "value" else f"get_{self.kind}_state"
        self.state = getattr(runtime_context, name)(STATES[self.kind](self.type_info))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        state, kind = self.state, self.kind
        if kind == "map":
            state.put("k", self.value)
            yield state.get("k")
        elif kind == "value":
            state.update(self.value)
            yield state.value()
        else:
            state.add(self.value)
            yield next(iter(state)) if kind == "list" else state.get()


@pytest.mark.parametrize("kind", STATES)
def test_types_are_applied_to_state(lab: Lab, kind: str) -> None:
    keyed = lab.read(1).key_by(lambda *rest: 0)
    deep = Types.ROW([Types.BASIC_ARRAY(Types.FLOAT())])
    number, row = lab.run(
        keyed.process(Store(kind, 1.1, Types.FLOAT())), keyed.process(Store(kind, Row([1.1]), deep))
    )
    assert (number, row) == ([1.1], [Row(f0=[1.1])])
    with pytest.raises(UserFunctionFailed, match="a number that fits into 32 bits is needed"):
        lab.run(keyed.process(Store(kind, 1e300, Types.FLOAT())))
    with pytest.raises(UserFunctionFailed, match=r"the state 's' got a wrong value: .*out of rang"):
        lab.run(keyed.process(Store(kind, 2**31, Types.INT())))


class Running(KeyedProcessFunction[Any, Any, Any]):
    """Sums in a state of FLOAT, as PyFlink's example state_access does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.FLOAT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()


def test_sums_in_a_float_state_have_the_digits_that_pyflink_prints(lab: Lab) -> None:
    kind = Types.TUPLE([Types.STRING(), Types.FLOAT()])
    records = [("Alice", 110.1), ("Alice", 20.0), ("Alice", 13.1), ("Alice", 20.1)]
    found = lab.run(lab.env.from_collection(records, kind).key_by(first).process(Running()))
    assert [total for _, total in found] == [
        110.0999984741211,
        130.0999984741211,
        143.19999885559082,
        163.29999923706055,
    ]


class ByNumber(KeyedProcessFunction[Any, Any, Any]):
    """Finds by a FLOAT what was put by it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("m", Types.FLOAT(), Types.FLOAT())
        self.map = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.map.put(0.1, 0.1)
        yield self.map.get(0.1), list(self.map.keys())


def test_keys_of_a_map_state_have_the_form_of_their_type(lab: Lab) -> None:
    assert lab.run(lab.read(1).key_by(lambda *rest: 0).process(ByNumber())) == [
        (0.1, [0.10000000149011612])
    ]
