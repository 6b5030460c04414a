"""Programs whose savepoints are kept as files, so that later releases show that they read them.

Together they put every class of Headgate's into a checkpoint that may be there: windows of all
kinds, states, timers, calls under way, positions of sources, what sinks have prepared. They halt in
the middle until there is a file ``open``; what they have written in the end depends on nothing but
the program. Folders are absolute and always the same, for positions and parts name them.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headgate import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Types,
)
from headgate.api.collection import collection_source
from headgate.common import Duration, Instant, Row, RowKind, Time, Watermark, WatermarkStrategy
from headgate.connectors.files.layout import RollingPolicy
from headgate.datastream import DataStream
from headgate.datastream.connectors import (
    CsvSink,
    DataGeneratorSource,
    JsonLinesSink,
    NumberSequenceSource,
    ParquetSink,
    Source,
    SplitReader,
    SqliteSink,
    TextFileSink,
    TextFileSource,
)
from headgate.datastream.functions import (
    CheckpointedFunction,
    CoGroupFunction,
    KeyedBroadcastProcessFunction,
    ProcessJoinFunction,
    SourceFunction,
)
from headgate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from headgate.functions.watermarks import TimestampAssigner

ROOT = Path("/tmp/headgate-saved")
OPEN = ROOT / "open"
LAST_MS = 10**12
HALF = 40


class Gated(Source):
    """Another source; each split gives ``most`` records before there is a file ``open``."""

    bounded = True
    rewinds = True

    def __init__(self, inner: Source, most: int) -> None:
        self.inner, self.most = inner, most
        self.finds_more = inner.finds_more

    def splits(self, parallelism: int) -> Sequence[object]:
        return self.inner.splits(parallelism)

    def open(self, split: object, position: object, context: Any) -> SplitReader:
        return GatedReader(self.inner.open(split, position, context), self.most)


class GatedReader(SplitReader):
    def __init__(self, inner: SplitReader, most: int) -> None:
        self.inner, self.left = inner, most

    def poll(self, limit: int) -> Any:
        if OPEN.exists():
            return self.inner.poll(limit)
        found = self.inner.poll(min(limit, self.left)) if self.left else []
        self.left -= len(getattr(found, "records", found if isinstance(found, Sequence) else ()))
        return [] if found is None else found

    def wait_ms(self) -> float:
        return 1.0

    def position_at(self, moment: Any) -> object:
        return self.inner.position_at(moment)

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.inner.checkpoint_completed(checkpoint)

    def close(self) -> None:
        self.inner.close()


class ByNumber(TimestampAssigner):
    """Five records in half a second, then a second and a half without any."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number = value % HALF
        return 100 * number + 1500 * (number // 5)


def by_number() -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50))
    return strategy.with_timestamp_assigner(ByNumber())


def numbers(env: StreamExecutionEnvironment, name: str) -> DataStream:
    """Two splits; the records of a key are those of one of them, in order."""
    source = Gated(NumberSequenceSource(0, 2 * HALF - 1), 17)
    return env.from_source(source, by_number(), name, Types.LONG()).uid(name)


def key_of(number: int) -> int:
    return number // HALF * 3 + number % 3


def shown(number: Any) -> tuple[int, str]:
    return key_of(number), str(number)


def first(record: Any) -> Any:
    return record[0]


def joined(left: tuple[int, str], right: tuple[int, str]) -> tuple[int, str]:
    return left[0], f"{left[1]} {right[1]}"


class Label:
    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, value: Any) -> str:
        return f"{self.label}: {value!r}"


def entries(held: Any) -> list[str]:
    """Of a map; a key that is a tuple comes back from a database as an equal one."""
    pairs = [(tuple(key) if isinstance(key, tuple) else key, value) for key, value in held.items()]
    return sorted(map(repr, pairs))


class Texts(AggregateFunction):
    def create_accumulator(self) -> Any:
        return Row(count=0, text="")

    def add(self, value: Any, accumulator: Any) -> Any:
        return Row(count=accumulator.count + 1, text=f"{accumulator.text} {value[1]}")

    def get_result(self, accumulator: Any) -> Any:
        return f"{accumulator.count}:{accumulator.text}"

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return Row(count=acc_a.count + acc_b.count, text=f"{acc_a.text} {acc_b.text}")


class InWindow(ProcessWindowFunction):
    """What a window holds, how often it has fired, and the windows of its key."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        fired = self.state_of(context).get_state(ValueStateDescriptor("fired"))
        fired.update((fired.value() or 0) + 1)
        ever = context.global_state().get_state(ValueStateDescriptor("windows"))
        ever.update([*(ever.value() or []), context.window()][-2:])
        yield key, context.window(), fired.value(), [*elements], ever.value()

    def state_of(self, context: Any) -> Any:
        return context.window_state()


class InSession(InWindow):
    """The same of windows that merge, which have no state of their own."""

    def state_of(self, context: Any) -> Any:
        return context.global_state()


class Sides(CoGroupFunction):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterator[Any]:
        yield sorted(first), sorted(second)


class Both(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp()


def windows(env: StreamExecutionEnvironment) -> None:
    """Windows in flight: kept in bundles, record by record, that merge, by count; joins."""
    pairs = numbers(env, "numbers").map(shown).uid("pairs")
    keyed = pairs.key_by(first)
    tumbling = TumblingEventTimeWindows.of(Time.seconds(3))
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(400))
    sliding = SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(3))
    each_second, each_fifth = CountTrigger.of(2), PurgingTrigger.of(CountTrigger.of(5))
    made = {
        "tumbling": keyed.window(tumbling).reduce(joined),
        "late": keyed.window(tumbling).allowed_lateness(10_000).process(InWindow()),
        "sliding": keyed.window(sliding).aggregate(Texts(), InWindow()),
        "sessions": keyed.window(sessions).aggregate(Texts()),
        "listed sessions": keyed.window(sessions).process(InSession()),
        "triggered sessions": keyed.window(sessions).trigger(each_second).process(InSession()),
        "triggered": keyed.window(tumbling).trigger(each_second).reduce(joined, InWindow()),
        "evicted": keyed.window(tumbling).evictor(CountEvictor.of(2)).process(InWindow()),
        "counted": keyed.count_window(4).reduce(joined),
        "sliding counts": keyed.count_window(4, 2).process(InWindow()),
        "global": keyed.window(GlobalWindows.create()).trigger(each_fifth).process(InWindow()),
        "by row": pairs.key_by(by_row).window(tumbling).process(InWindow()),
        "by list": pairs.key_by(by_list).window(sliding).process(InWindow()),
    }
    write(made, "windows")


def by_row(record: tuple[int, str]) -> Row:
    return Row(key=record[0], kind=RowKind.DELETE)


def by_list(record: tuple[int, str]) -> list[Any]:
    return [record[0], Row(record[0])]


def joins(env: StreamExecutionEnvironment) -> None:
    """Two streams in one operator; their records wait for those of the other side."""
    pairs = numbers(env, "numbers").map(shown).uid("pairs")
    others = numbers(env, "others").map(shown).uid("other pairs")
    tumbling = TumblingEventTimeWindows.of(Time.seconds(3))
    near = pairs.key_by(first).interval_join(others.key_by(first))
    rules = env.from_source(Gated(collection_source(RULES, None), 7), None, "rules").uid("rules")
    described = MapStateDescriptor("rules")
    made = {
        "joined": pairs.join(others).where(first).equal_to(first).window(tumbling).apply(pair_of),
        "grouped": pairs.co_group(others)
        .where(first)
        .equal_to(first)
        .window(tumbling)
        .apply(Sides()),
        "near": near.between(Time.milliseconds(-150), Time.milliseconds(150)).process(Both()),
        "ruled": pairs.key_by(first).connect(rules.broadcast(described)).process(Ruled()),
    }
    write(made, "joins")


def pair_of(left: Any, right: Any) -> Any:
    return left, right


RULES: list[tuple[Any, Any]] = [
    ("row", Row(name="a", inner=Row(1, [2]))),
    ("kind", RowKind.UPDATE_AFTER),
    ("window", TimeWindow(1, 2)),
    ("global", GlobalWindow()),
    ("instant", Instant.of_epoch_milli(5)),
    ("time", Time.seconds(2)),
    ("duration", Duration.of_millis(3)),
    ("watermark", Watermark(7)),
]


class Ruled(KeyedBroadcastProcessFunction):
    """At the end, all rules and all records of a key."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.add(value)
        ctx.timer_service().register_event_time_timer(LAST_MS)
        return iter(())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(MapStateDescriptor("rules")).put(*value)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(MapStateDescriptor("rules"))
        yield [*self.seen.get()], entries(rules)


TTL = StateTtlConfig.new_builder(Time.days(50_000)).build()
"""The savepoint is read years later."""
SOME_ROW = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])


class Everything(KeyedProcessFunction):
    """All kinds of state, with and without time to live, types and rows; timers of both times."""

    def open(self, runtime_context: Any) -> None:
        self.plain = runtime_context.get_state(ValueStateDescriptor("plain"))
        self.row = runtime_context.get_state(ValueStateDescriptor("row", SOME_ROW))
        self.held = runtime_context.get_list_state(ListStateDescriptor("held"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))
        typed = MapStateDescriptor("typed", Types.STRING(), SOME_ROW)
        self.typed = runtime_context.get_map_state(typed)
        self.most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max))
        self.none = runtime_context.get_reducing_state(ReducingStateDescriptor("none", nothing))
        texts = AggregatingStateDescriptor("texts", Texts())
        self.texts = runtime_context.get_aggregating_state(texts)
        timed = [
            ValueStateDescriptor("timed"),
            ListStateDescriptor("timed list"),
            MapStateDescriptor("timed map"),
        ]
        for descriptor in timed:
            descriptor.enable_time_to_live(TTL)
        self.timed = runtime_context.get_state(timed[0])
        self.timed_list = runtime_context.get_list_state(timed[1])
        self.timed_map = runtime_context.get_map_state(timed[2])

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        number = int(value[1])
        before = self.plain.value(), self.most.get(), self.none.get(), self.texts.get()
        row = Row(number=number, text=value[1])
        self.plain.update([Row(value), TimeWindow(number, number + 1)])
        self.row.update(row)
        self.held.add(row if number % 2 else {"number": Row(number)})
        for key in (number, str(number), (number, "x"), Row(number, number), TimeWindow(number, 9)):
            self.map.put(key, row)
        self.typed.put(value[1], row)
        self.most.add(number)
        self.none.add(number)
        self.texts.add(value)
        self.timed.update(row)
        self.timed_list.add(Row(number))
        self.timed_map.put(Row(number), row)
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 1700)
        timers.register_event_time_timer(LAST_MS)
        yield ctx.get_current_key(), number, before

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp
        if timestamp == LAST_MS:
            yield self.plain.value(), self.row.value(), [*self.held.get()]
            for held in (self.map, self.typed, self.timed_map):
                yield entries(held)
            yield self.most.get(), self.none.get(), self.texts.get()
            yield self.timed.value(), [*self.timed_list.get()]


def nothing(left: Any, right: Any) -> None:
    """What is kept of it stands for None."""


class Delayed(CheckpointedFunction, MapFunction):
    """Each record three records later."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.waiting = store.get_list_state(ListStateDescriptor("waiting"))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.typed = store.get_list_state(ListStateDescriptor("rows", SOME_ROW))
        self.records = [row[0] for row in self.waiting.get()]

    def snapshot_state(self, context: Any) -> None:
        self.waiting.update([Row(record) for record in self.records])
        self.union.update([TimeWindow(1, 2)])
        self.typed.update([Row(number=1, text="x")])

    def map(self, value: Any) -> Any:
        self.records.append(value)
        return self.records.pop(0) if len(self.records) > 3 else None


class Asks(AsyncFunction):
    """Some are answered at once, the others when there is a file ``open``."""

    async def async_invoke(self, value: Any) -> list[Any]:
        while int(value[1]) % HALF >= 13 and not OPEN.exists():
            await asyncio.sleep(0.01)
        return [Row(*value)]


class Slow(MapFunction):
    """As long as the program halts, so that records wait in buffers before it."""

    def map(self, value: Any) -> Any:
        if not OPEN.exists():
            time.sleep(0.05)
        return value


def states(env: StreamExecutionEnvironment) -> None:
    """Keyed state, timers, state of tasks, calls under way."""
    pairs = numbers(env, "numbers").map(shown).uid("pairs")
    rows = pairs.map(by_row_and_text).uid("rows")
    patience = Time.minutes(60)
    made = {
        "everything": pairs.key_by(first).process(Everything()),
        "by row": pairs.key_by(by_row).process(Everything()),
        "by list": pairs.key_by(by_list).process(Everything()),
        "reduced": rows.key_by(first).reduce(joined_rows),
        "delayed": pairs.map(Delayed()),
        "ordered": AsyncDataStream.ordered_wait(pairs, Asks(), patience, 200),
        "unordered": AsyncDataStream.unordered_wait(pairs, Asks(), patience, 200),
    }
    write(made, "states")


def by_row_and_text(record: tuple[int, str]) -> Row:
    return Row(*record)


def joined_rows(left: Row, right: Row) -> Row:
    return Row(left[0], f"{left[1]} {right[1]}")


def flight(env: StreamExecutionEnvironment) -> None:
    """Records wait in buffers: plain ones, and of a type that cannot write what they say."""
    source = Gated(NumberSequenceSource(0, 1999), 1000)
    rows = env.from_source(source, None, "numbers").uid("numbers").map(as_row).uid("rows")
    typed = env.from_source(source, None, "others").uid("others").map(as_row, SOME_ROW)
    typed.uid("typed rows")
    for name, stream in (("plain", rows), ("typed", typed)):
        slow = stream.key_by(modulo).map(Slow()).uid(f"slow {name}")
        slow.map(Label(name)).uid(name).sink_to(TextFileSink(ROOT / name)).uid(f"{name} sink")


def as_row(number: int) -> Row:
    return Row.of_kind(RowKind.DELETE, number=number, text="x" * 50)


def modulo(row: Row) -> int:
    return int(row.number) % 7


class Ticks(CheckpointedFunction, SourceFunction):
    """Keeps its position; halts as the others do, with records on their way to the task."""

    running = True

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.kept = store.get_list_state(ListStateDescriptor("next"))
        self.next = next(iter(self.kept.get()), Row(0))[0]

    def snapshot_state(self, context: Any) -> None:
        self.kept.update([Row(self.next)])

    def run(self, ctx: Any) -> None:
        while self.next < 50 and self.running:
            if self.next == 30 and not OPEN.exists():
                time.sleep(0.01)
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect_with_timestamp(("tick", Row(self.next)), 100 * self.next)
                ctx.emit_watermark(Watermark(100 * self.next))
                if self.next % 10 == 5:
                    ctx.mark_as_temporarily_idle()
                self.next += 1

    def cancel(self) -> None:
        self.running = False


def ends(env: StreamExecutionEnvironment) -> None:
    """Sources in the middle, and sinks that have prepared something."""
    folder = ROOT / "lines"
    folder.mkdir(exist_ok=True)
    for name in ("a", "b", "c"):
        (folder / name).write_text("".join(f"{name}{n}\n" for n in range(40 if name != "c" else 5)))
    rows = [Row(number=n, text=str(n)) for n in range(50)]
    small = RollingPolicy.default_rolling_policy(part_size=40)
    files = env.from_source(Gated(TextFileSource(folder), 17), None, "lines").uid("lines")
    made = DataGeneratorSource(generated, 60)
    generator = env.from_source(Gated(made, 11), None, "generated", SOME_ROW).uid("generated")
    collected = env.from_source(Gated(collection_source(rows, SOME_ROW), 9), None, "rows", SOME_ROW)
    collected.uid("collected")
    ticks = env.add_source(Ticks(), "ticks").uid("ticks").map(repr).uid("shown ticks")
    files.sink_to(TextFileSink(ROOT / "text", rolling_policy=small)).uid("text")
    generator.sink_to(CsvSink(ROOT / "csv")).uid("csv")
    collected.sink_to(ParquetSink(ROOT / "parquet")).uid("parquet")
    ticks.sink_to(JsonLinesSink(ROOT / "json", bucket_assigner=bucket_of)).uid("json")
    with sqlite3.connect(ROOT / "rows.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER, text TEXT)")
    database.close()
    insert = "INSERT INTO rows VALUES (?, ?)"
    generator.union(collected).sink_to(SqliteSink(ROOT / "rows.db", insert)).uid("database")


def generated(index: int) -> Row:
    return Row(number=1000 + index, text="made")


def bucket_of(record: Any) -> str:
    return f"length-{len(record)}"


def write(made: dict[str, DataStream], folder: str) -> None:
    for name, stream in made.items():
        lines = stream.uid(name).map(Label(name)).uid(f"{name} lines")
        lines.sink_to(TextFileSink(ROOT / folder / name.replace(" ", "-"))).uid(f"{name} sink")


PROGRAMS: dict[str, Callable[[StreamExecutionEnvironment], None]] = {
    "windows": windows,
    "joins": joins,
    "states": states,
    "flight": flight,
    "ends": ends,
}
