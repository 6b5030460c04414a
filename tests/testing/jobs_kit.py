"""Jobs as users write them: twenty with a planted mistake each, and twenty that are right.

Module variables are part of some mistakes, so that this is a module of its own.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from threading import Lock
from typing import Any

from headgate import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    Duration,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    SinkFunction,
    Source,
    SourceFunction,
    SplitReader,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink
from headgate.testing import External

Env = StreamExecutionEnvironment
Event = tuple[str, int]

EVENTS: list[Event] = [("abcde"[number * 7 % 5], number) for number in range(40)]
"""Key and time in seconds."""

table: External[dict[Any, Any]] = External(dict, "table")
log: External[list[Any]] = External(list, "log")


def key_of(event: Any) -> str:
    return str(event[0])


def events(env: Env) -> Any:
    """With event time; late by 5 s at most."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(5)
    ).with_timestamp_assigner(lambda event, before: event[1] * 1000)
    return env.from_collection(EVENTS).assign_timestamps_and_watermarks(strategy)


class Count(KeyedProcessFunction):
    """The running count of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield key_of(value), count


# Mistakes.

seen: dict[str, int] = {}
last: list[Any] = []


def count_in_global(event: Event) -> Event:
    seen[event[0]] = seen.get(event[0], 0) + 1
    return event[0], seen[event[0]]


def state_in_a_global(env: Env) -> Any:
    return env.from_collection(EVENTS).key_by(key_of).map(count_in_global)


class CountInAttribute(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.counts: dict[str, int] = {}

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.counts[value[0]] = self.counts.get(value[0], 0) + 1
        yield value[0], self.counts[value[0]]


def state_in_an_attribute(env: Env) -> Any:
    return env.from_collection(EVENTS).key_by(key_of).process(CountInAttribute())


class CountInClass(MapFunction):
    total = 0

    def map(self, value: Any) -> Any:
        CountInClass.total += 1
        return value[0], CountInClass.total


def state_in_a_class_attribute(env: Env) -> Any:
    return env.from_collection(EVENTS).map(CountInClass()).set_parallelism(1)


class Numbered(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.number = 0

    def map(self, value: Any) -> Any:
        self.number += 1
        return value, self.number


def order_between_keys(env: Env) -> Any:
    """Numbers records of all keys after an exchange."""
    return env.from_collection(EVENTS).key_by(key_of).process(Count()).map(Numbered())


class PreviousKey(ProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.previous = ""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.previous, value[0]
        self.previous = value[0]


def order_between_channels(env: Env) -> Any:
    first, second = env.from_collection(EVENTS[:20]), env.from_collection(EVENTS[20:])
    return first.union(second).process(PreviousKey()).set_parallelism(1)


class RulesFirst(CoProcessFunction):
    """Takes for granted that all rules come before the first event."""

    def open(self, runtime_context: Any) -> None:
        self.rules: set[str] = set()

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value[0] in self.rules:
            yield value

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rules.add(value)
        yield from ()


def order_between_inputs(env: Env) -> Any:
    rules = env.from_collection(["a", "b"]).broadcast()
    return env.from_collection(EVENTS).connect(rules).process(RulesFirst())


class Append(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        log.value.append(value)


def sink_that_appends(env: Env) -> None:
    env.from_collection(EVENTS).key_by(key_of).process(Count()).add_sink(Append())


class AddUp(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        table.value[value[0]] = table.value.get(value[0], 0) + 1


def sink_that_adds_up(env: Env) -> None:
    env.from_collection(EVENTS).key_by(key_of).map(lambda event: event).add_sink(AddUp())


def change_input(event: list[Any]) -> list[Any]:
    event[1] += 1
    return event


def changes_its_input(env: Env) -> Any:
    return env.from_collection([list(event) for event in EVENTS]).map(change_input)


def drop_field(event: dict[str, Any]) -> bool:
    event.pop("note", None)
    return True


def filter_that_changes_its_input(env: Env) -> Any:
    return env.from_collection([{"key": key, "note": 1} for key, _ in EVENTS]).filter(drop_field)


def words_in_set_order(event: Event) -> str:
    return ",".join({"north", "south", "east", "west", event[0]})


def order_of_a_set(env: Env) -> Any:
    return env.from_collection(EVENTS[:5]).map(words_in_set_order)


def bucket_by_hash(env: Env) -> Any:
    """``hash`` of a text is another number in every process."""
    return env.from_collection(EVENTS[:5]).map(lambda event: (event[0], hash(event[0]) % 1000))


class FirstKeys(KeyedProcessFunction):
    """The order of the dictionary is that of arrival."""

    def open(self, runtime_context: Any) -> None:
        self.values = runtime_context.get_map_state(
            MapStateDescriptor("values", Types.STRING(), Types.INT())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.values.put(value[0], 1)
        if len(list(self.values.keys())) == 3:
            yield tuple(self.values.keys())


def order_of_a_dict(env: Env) -> Any:
    first, second = env.from_collection(EVENTS[:3]), env.from_collection(EVENTS[4:8])
    return first.union(second).key_by(lambda event: 0).process(FirstKeys())


def clock_read_directly(env: Env) -> Any:
    return env.from_collection(EVENTS).map(lambda event: (event[0], int(time.time())))


def date_read_directly(env: Env) -> Any:
    return env.from_collection(EVENTS).map(lambda event: (event[0], datetime.now().hour))


def chance_read_directly(env: Env) -> Any:
    return env.from_collection(EVENTS).map(lambda event: (event[0], random.randrange(1000)))


def id_made_at_random(env: Env) -> Any:
    return env.from_collection(EVENTS[:5]).map(lambda event: (event[0], str(uuid.uuid4())))


class TimersInOrder(KeyedProcessFunction):
    """Takes for granted that timers of all keys fire in one order."""

    def open(self, runtime_context: Any) -> None:
        self.fired: list[str] = []

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 10_000 * 10_000 + 10_000)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.fired.append(ctx.get_current_key())
        yield timestamp, ctx.get_current_key(), len(self.fired)


def timers_in_one_order(env: Env) -> Any:
    return events(env).key_by(key_of).process(TimersInOrder())


class LateReader(SplitReader):
    """Its position is behind: that of the poll before."""

    def __init__(self, at: int, lag: int) -> None:
        self.at = self.before = at
        self.lag_records = lag

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.at >= 40:
            return None
        found = range(self.at, min(40, self.at + limit))
        self.before, self.at = self.at, found[-1] + 1
        return list(found)

    def position(self) -> int:
        return self.before if self.lag_records else self.at


class Numbers(Source):
    finds_more = False

    def __init__(self, lag: int) -> None:
        self.lag = lag

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: Any, context: Any) -> SplitReader:
        return LateReader(position or 0, self.lag)


def source_whose_position_is_behind(env: Env) -> Any:
    return env.from_source(Numbers(lag=1)).key_by(lambda n: n % 3).map(lambda n: n)


class Locks(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.lock = runtime_context.get_state(
            ValueStateDescriptor("lock", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self.lock.value() is None:
            self.lock.update(Lock())
        yield value


def state_that_cannot_be_pickled(env: Env) -> Any:
    return env.from_collection(EVENTS).key_by(key_of).process(Locks())


class MeanOfMeans(AggregateFunction):
    def create_accumulator(self) -> float:
        return 0.0

    def add(self, value: Any, accumulator: float) -> float:
        return (accumulator + value[1]) / 2 if accumulator else float(value[1])

    def get_result(self, accumulator: float) -> float:
        return accumulator

    def merge(self, acc_a: float, acc_b: float) -> float:
        return (acc_a + acc_b) / 2


def merge_that_is_not_associative(env: Env) -> Any:
    sessions = EventTimeSessionWindows.with_gap(Time.seconds(8))
    return events(env).key_by(key_of).window(sessions).aggregate(MeanOfMeans())


MISTAKES: dict[Callable[[Env], Any], str] = {
    state_in_a_global: "differs",
    state_in_an_attribute: "differs",
    state_in_a_class_attribute: "differs",
    order_between_keys: "differs",
    order_between_channels: "differs",
    order_between_inputs: "differs",
    sink_that_appends: "differs",
    sink_that_adds_up: "differs",
    changes_its_input: "changes its input",
    filter_that_changes_its_input: "changes its input",
    order_of_a_set: "PYTHONHASHSEED",
    bucket_by_hash: "PYTHONHASHSEED",
    order_of_a_dict: "differs",
    clock_read_directly: "differs",
    date_read_directly: "differs",
    chance_read_directly: "differs",
    id_made_at_random: "differs",
    timers_in_one_order: "differs",
    source_whose_position_is_behind: "differs",
    state_that_cannot_be_pickled: "cannot be written to a snapshot",
    merge_that_is_not_associative: "associative",
}


# Right ones.


def word_count(env: Env) -> Any:
    lines = env.from_collection(["to be or not to be", "that is the question", "to be"])
    pairs = lines.flat_map(str.split).map(lambda word: (word, 1))
    return pairs.key_by(key_of).reduce(lambda a, b: (a[0], a[1] + b[1]))


def state_by_key(env: Env) -> Any:
    return env.from_collection(EVENTS).key_by(key_of).process(Count())


def without_state(env: Env) -> Any:
    return env.from_collection(EVENTS).map(lambda e: e[1] * 2).filter(lambda n: n % 3 > 0)


def windows(env: Env) -> Any:
    tumbling = TumblingEventTimeWindows.of(Time.seconds(10))
    return events(env).key_by(key_of).window(tumbling).reduce(lambda a, b: (a[0], a[1] + b[1]))


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: Any, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[float, int], acc_b: tuple[float, int]) -> tuple[float, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def sessions(env: Env) -> Any:
    gap = EventTimeSessionWindows.with_gap(Time.seconds(8))
    return events(env).key_by(key_of).window(gap).aggregate(Mean())


class Sorted(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key, context.window().start, tuple(sorted(elements))


def window_contents(env: Env) -> Any:
    tumbling = TumblingEventTimeWindows.of(Time.seconds(20))
    return events(env).key_by(key_of).window(tumbling).process(Sorted())


class Reminder(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(100_000)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.sum.value(), timestamp


def timers(env: Env) -> Any:
    return events(env).key_by(key_of).process(Reminder())


def union_of_streams(env: Env) -> Any:
    first, second = env.from_collection(EVENTS[:20]), env.from_collection(EVENTS[20:])
    return (
        first.union(second)
        .key_by(key_of)
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .filter(lambda event: False)
    )


class Joined(CoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left", Types.INT()))
        self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self.name.value() is None:
            self.left.add(value[1])
        else:
            yield self.name.value(), value[1]

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.name.update(value[1])
        for waiting in self.left.get():
            yield value[1], waiting
        self.left.clear()


def join_with_state(env: Env) -> Any:
    names = env.from_collection([(key, key.upper()) for key in "abcde"])
    joined = env.from_collection(EVENTS).connect(names).key_by(key_of, key_of)
    return joined.process(Joined())


RULES = MapStateDescriptor("rules", Types.STRING(), Types.BOOLEAN())


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(value, True)
        yield from ()


def broadcast(env: Env) -> Any:
    rules = env.from_collection(["a", "b"]).broadcast(RULES)
    return env.from_collection(EVENTS).connect(rules).process(Rules())


class Upsert(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        before = table.value.get(value[0], 0)
        table.value[value[0]] = max(before, value[1])


def sink_that_upserts(env: Env) -> None:
    env.from_collection(EVENTS).key_by(key_of).process(Count()).add_sink(Upsert())


class Staged(CommittingSinkWriter):
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self.rows += records

    def prepare_commit(self, moment: Any) -> Sequence[Any]:
        rows, self.rows = self.rows, []
        return [(uuid.uuid4().hex, rows)] if rows else []


class Publish(Committer):
    def commit(self, committables: Sequence[Any]) -> None:
        for name, rows in committables:
            if name not in done.value:
                done.value.add(name)
                log.value.extend(rows)
                log.value.sort()


done: External[set[str]] = External(set, "done", compared=False)


class Committed(TwoPhaseCommittingSink):
    def create_writer(self, context: Any) -> CommittingSinkWriter:
        return Staged()

    def create_committer(self, context: Any) -> Committer:
        return Publish()


def sink_that_commits(env: Env) -> Any:
    env.from_collection(EVENTS).key_by(key_of).process(Count()).sink_to(Committed())


def copy_of_input(env: Env) -> Any:
    return env.from_collection([list(event) for event in EVENTS]).map(lambda e: [e[0], e[1] + 1])


def sorted_set(env: Env) -> Any:
    return env.from_collection(EVENTS[:5]).map(lambda e: ",".join(sorted({"north", "south", e[0]})))


class SeededChance(MapFunction):
    def map(self, value: Any) -> Any:
        return value, random.Random(repr(value)).randrange(1000)


def chance_from_the_record(env: Env) -> Any:
    return env.from_collection(EVENTS).map(SeededChance())


def source_with_positions(env: Env) -> Any:
    return env.from_source(Numbers(lag=0)).key_by(lambda n: n % 3).map(lambda n: n)


EVEN = OutputTag("even", Types.INT())


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (EVEN, value[1]) if value[1] % 2 == 0 else value


def side_outputs(env: Env) -> Any:
    main = env.from_collection(EVENTS).process(Split())
    return {"odd": main, "even": main.get_side_output(EVEN)}


class Ticks(SourceFunction):
    """Keeps its position in state."""

    bounded = True

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("at", Types.INT()))
        self.at = next(iter(self.state.get()), 0)

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.at])

    def run(self, ctx: Any) -> None:
        while self.at < 30:
            with ctx.get_checkpoint_lock():
                ctx.collect(self.at)
                self.at += 1
            time.sleep(0.01)

    def cancel(self) -> None:
        self.at = 30


def source_function(env: Env) -> Any:
    return env.add_source(Ticks()).key_by(lambda n: n % 2).map(lambda n: n + 1)


def nothing_but_a_print(env: Env) -> None:
    env.from_collection(EVENTS).key_by(key_of).process(Count()).print()


def runs_itself(env: Env) -> None:
    with env.from_collection(EVENTS).key_by(key_of).process(Count()).execute_and_collect() as found:
        assert len(list(found)) == len(EVENTS)


RIGHT: tuple[Callable[[Env], Any], ...] = (
    word_count,
    state_by_key,
    without_state,
    windows,
    sessions,
    window_contents,
    timers,
    union_of_streams,
    join_with_state,
    broadcast,
    sink_that_upserts,
    sink_that_commits,
    copy_of_input,
    sorted_set,
    chance_from_the_record,
    source_with_positions,
    side_outputs,
    source_function,
    nothing_but_a_print,
    runs_itself,
)
