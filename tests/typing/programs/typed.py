"""What type checkers know about a program whose functions have types: read by them, never run."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

from headgate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AllWindowFunction,
    AsyncDataStream,
    AsyncFunction,
    BatchAsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    ConnectedStreams,
    ConnectorContext,
    CountWindow,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    Sink,
    SinkFunction,
    SinkWriter,
    Source,
    SourceFunction,
    SplitReader,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from headgate.datastream.connectors import DataGeneratorSource, NumberSequenceSource


class Click(NamedTuple):
    user: str
    page: int
    at_ms: int


class Order(NamedTuple):
    user: str
    cents: int


env = StreamExecutionEnvironment.get_execution_environment()

# One stream, by callables.

numbers = env.from_collection([1, 2])
reveal_type(numbers)  # DataStream[int]
reveal_type(numbers.map(str))  # DataStream[str]
reveal_type(numbers.map(lambda n: n / 2))  # DataStream[float]
reveal_type(numbers.map(lambda n: str(n)).map(len))  # DataStream[int]
reveal_type(numbers.filter(lambda n: n > 1))  # DataStream[int]
reveal_type(numbers.flat_map(range))  # DataStream[int]
reveal_type(numbers.map(str).flat_map(str.split))  # DataStream[str]
reveal_type(numbers.flat_map(lambda n: [str(n)] * n))  # DataStream[str]
reveal_type(numbers.rebalance().name("numbers").set_parallelism(2))  # DataStream[int]
reveal_type(numbers.union(numbers))  # DataStream[int]
reveal_type(numbers.union(numbers.map(str)))  # DataStream[int | str]
reveal_type(numbers.split(lambda n: ["odd"]).select("odd"))  # DataStream[int]
reveal_type(numbers.cache())  # CachedDataStream[int]
reveal_type(numbers.broadcast())  # DataStream[int]
reveal_type(numbers.execute_and_collect())  # CloseableIterator[int]
reveal_type(numbers.execute_and_collect(limit=3))  # list[int]
reveal_type(list(numbers.execute_and_collect()))  # list[int]


def click_of(line: str) -> Click | None:
    found = json.loads(line)
    return Click(found["user"], found["page"], found["at"]) if found else None


def is_click(click: Click | None) -> TypeGuard[Click]:
    return click is not None


lines = env.from_collection(["{}"])
reveal_type(lines.map(click_of))  # DataStream[Click | None]
clicks = lines.map(click_of).filter(is_click)
reveal_type(clicks)  # DataStream[Click]

# Declared types say what comes out.

row_type = Types.ROW([Types.STRING(), Types.INT()])
dict_type = Types.MAP(Types.STRING(), Types.LONG())
reveal_type(env.from_collection([("a", 1)], row_type))  # DataStream[Row]
reveal_type(numbers.map(lambda n: n, output_type=Types.DOUBLE()))  # DataStream[float]
reveal_type(numbers.map(lambda n: [n], Types.LIST(Types.LONG())))  # DataStream[list[int]]
reveal_type(numbers.map(lambda n: {"n": n}, dict_type))  # DataStream[dict[str, int]]
reveal_type(numbers.map(lambda n: (n,), Types.TUPLE([Types.INT()])))  # DataStream[tuple[Any, ...]]
reveal_type(numbers.flat_map(lambda n: [n], Types.STRING()))  # DataStream[str]

# Keys.

by_user = clicks.key_by(lambda click: click.user)
reveal_type(by_user)  # KeyedStream[Click, str]
reveal_type(by_user.filter(lambda click: click.page > 1))  # DataStream[Click]
reveal_type(by_user.map(lambda click: click.page))  # DataStream[int]
reveal_type(by_user.key_by(lambda click: click.page))  # KeyedStream[Click, int]
reveal_type(numbers.key_by(lambda n: n % 2).reduce(lambda a, b: a + b))  # DataStream[int]
reveal_type(numbers.key_by(lambda n: n % 2).reduce(max))  # DataStream[int]
by_word = lines.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
reveal_type(by_word.reduce(lambda a, b: (a[0], a[1] + b[1])))  # DataStream[tuple[str, int]]
reveal_type(by_user.max_by("at_ms"))  # DataStream[Click]


class Users(KeySelector[Click, str]):
    def get_key(self, value: Click) -> str:
        return value.user


reveal_type(clicks.key_by(Users()))  # KeyedStream[Click, str]

# One stream, by classes.

LATE: OutputTag[Click] = OutputTag("late")
WORDS = OutputTag("words", Types.STRING())


class Page(MapFunction[Click, int]):
    def map(self, click: Click) -> int:
        return click.page


class Digits(FlatMapFunction[int, str]):
    def flat_map(self, value: int) -> Iterator[str]:
        yield from str(value)


class Large(FilterFunction[object]):
    def filter(self, value: object) -> bool:
        return bool(value)


class Sum(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class SumOfPairs(ReduceFunction[tuple[str, int]]):
    def reduce(self, value1: tuple[str, int], value2: tuple[str, int]) -> tuple[str, int]:
        return value1[0], value1[1] + value2[1]


class Parted(ProcessFunction[Click, int]):
    def process_element(
        self, click: Click, context: ProcessFunction.Context
    ) -> Iterator[int | tuple[OutputTag[Click], Click]]:
        yield click.page
        yield LATE, click


class Pages(KeyedProcessFunction[str, Click, tuple[str, int]]):
    def open(self, runtime: RuntimeContext) -> None:
        self.seen = runtime.get_state(ValueStateDescriptor("seen", Types.LONG()))
        of_map = MapStateDescriptor("pages", Types.INT(), Types.STRING())
        of_average = AggregatingStateDescriptor("average", Average())
        reveal_type(self.seen)  # ValueState[int]
        reveal_type(runtime.get_map_state(of_map))  # MapState[int, str]
        reveal_type(runtime.get_aggregating_state(of_average))  # AggregatingState[int, float]
        of_list = ListStateDescriptor("list", Types.LIST(Types.STRING()))
        reveal_type(runtime.get_list_state(of_list))  # ListState[list[str]]

    def process_element(
        self, value: Click, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield value.user, seen


reveal_type(clicks.map(Page()))  # DataStream[int]
reveal_type(by_user.map(Page()))  # DataStream[int]
reveal_type(numbers.flat_map(Digits()))  # DataStream[str]
reveal_type(clicks.filter(Large()))  # DataStream[Click]
reveal_type(numbers.key_by(lambda n: n).reduce(Sum()))  # DataStream[int]
reveal_type(by_word.reduce(SumOfPairs()))  # DataStream[tuple[str, int]]
reveal_type(clicks.process(Parted()))  # DataStream[int]
reveal_type(clicks.process(Parted()).get_side_output(LATE))  # DataStream[Click]
reveal_type(clicks.process(Parted()).get_side_output(WORDS))  # DataStream[str]
reveal_type(by_user.process(Pages()))  # DataStream[tuple[str, int]]

# Windows.


class Average(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Ends(ProcessWindowFunction[float, str, int, TimeWindow]):
    def process(
        self,
        key: int,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[float],
    ) -> Iterator[str]:
        reveal_type(context.window())  # TimeWindow
        yield f"{key} {context.window().end} {max(elements)}"


class Counted(AllWindowFunction[int, int, CountWindow]):
    def apply(self, window: CountWindow, inputs: Iterable[int]) -> list[int]:
        return [window.id, *inputs]


minutes = TumblingEventTimeWindows.of(Time.minutes(1))
windows = numbers.key_by(lambda n: n % 2).window(minutes)
reveal_type(windows)  # WindowedStream[int, int, TimeWindow]
reveal_type(windows.allowed_lateness(1000).sum(0))  # DataStream[int]
reveal_type(windows.reduce(min))  # DataStream[int]
reveal_type(windows.reduce(lambda a, b: a + b))  # DataStream[int]
reveal_type(windows.reduce(lambda a, b: a + b, Ends()))  # DataStream[str]
reveal_type(windows.aggregate(Average()))  # DataStream[float]
reveal_type(windows.aggregate(Average(), Ends()))  # DataStream[str]
reveal_type(windows.process(Ends()))  # DataStream[str]
reveal_type(numbers.count_window_all(5).apply(Counted()))  # DataStream[int]

# Two streams.

orders = env.from_collection([Order("a", 1)])
connected: ConnectedStreams[Click, Order] = clicks.connect(orders)


class Either(CoMapFunction[Click, Order, str]):
    def map1(self, value: Click) -> str:
        return value.user

    def map2(self, value: Order) -> str:
        return value.user


class Both(CoFlatMapFunction[Click, Order, int]):
    def flat_map1(self, value: Click) -> list[int]:
        return [value.page]

    def flat_map2(self, value: Order) -> list[int]:
        return [value.cents]


class Meet(KeyedCoProcessFunction[str, Click, Order, float]):
    def process_element1(
        self, value: Click, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[float]:
        yield float(value.page)

    def process_element2(
        self, value: Order, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[float]:
        yield float(value.cents)


class Paid(ProcessJoinFunction[Click, Order, int]):
    def process_element(
        self, left: Click, right: Order, ctx: ProcessJoinFunction.Context
    ) -> list[int]:
        return [left.page * right.cents]


class Pair(JoinFunction[Click, Order, bytes]):
    def join(self, first: Click, second: Order) -> bytes:
        return first.user.encode()


class Limits(BroadcastProcessFunction[Click, Order, str]):
    def process_element(
        self, value: Click, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> list[str]:
        reveal_type(ctx.get_broadcast_state(LIMITS).get("a"))  # int | None
        return [value.user]

    def process_broadcast_element(
        self, value: Order, ctx: BroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(LIMITS).put(value.user, value.cents)


class KeyedLimits(KeyedBroadcastProcessFunction[str, Click, Order, int]):
    def process_element(
        self, value: Click, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> list[int]:
        return [value.page]

    def process_broadcast_element(
        self, value: Order, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        return None


LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())

reveal_type(connected.map(Either()))  # DataStream[str]
reveal_type(connected.flat_map(Both()))  # DataStream[int]
keyed = connected.key_by(lambda click: click.user, lambda order: order.user)
reveal_type(keyed.process(Meet()))  # DataStream[float]
joined = clicks.join(orders).where(lambda c: c.user).equal_to(lambda o: o.user).window(minutes)
pairs = joined.apply(lambda click, order: (click.page, order.cents))
reveal_type(pairs)  # DataStream[tuple[int, int]]
reveal_type(joined.apply(Pair()))  # DataStream[bytes]
grouped = clicks.co_group(orders).where(Users()).equal_to(lambda o: o.user).window(minutes)
reveal_type(grouped.apply(lambda few, many: [len(few) + len(many)]))  # DataStream[int]
near = by_user.interval_join(orders.key_by(lambda o: o.user))
reveal_type(near.between(Time.seconds(-1), Time.seconds(1)).process(Paid()))  # DataStream[int]
limits = orders.broadcast(LIMITS)
reveal_type(clicks.connect(limits).process(Limits()))  # DataStream[str]
reveal_type(by_user.connect(limits).process(KeyedLimits()))  # DataStream[int]

# Calls.


class Look(AsyncFunction[int, str]):
    async def async_invoke(self, value: int) -> list[str]:
        await asyncio.sleep(0)
        return [str(value)]


class Embed(BatchAsyncFunction[str, list[float]]):
    async def async_invoke_batch(self, values: list[str]) -> list[list[float]]:
        return [[0.0] for _ in values]


looked = AsyncDataStream.unordered_wait(numbers, Look(), Time.seconds(1))
reveal_type(looked)  # DataStream[str]
embedded = AsyncDataStream.ordered_wait_batch(looked, Embed(), Time.seconds(1))
reveal_type(embedded)  # DataStream[list[float]]

# Sources and sinks.


class Reader(SplitReader[Order]):
    def poll(self, limit: int) -> list[Order] | None:
        return None


class Orders(Source[Order]):
    def splits(self, parallelism: int) -> list[str]:
        return ["all"]

    def open(self, split: object, position: object, context: ConnectorContext) -> Reader:
        return Reader()


class Ticks(SourceFunction[int]):
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        ctx.collect(1)

    def cancel(self) -> None: ...


class Writer(SinkWriter[tuple[str, int]]):
    def write(self, records: list[tuple[str, int]]) -> None: ...


class Table(Sink[tuple[str, int]]):
    def create_writer(self, context: ConnectorContext) -> Writer:
        return Writer()


class Alarm(SinkFunction[object]):
    def invoke(self, value: object, context: SinkFunction.Context) -> None: ...


strategy = WatermarkStrategy.for_monotonous_timestamps()
reveal_type(env.from_source(Orders(), strategy, "orders"))  # DataStream[Order]
reveal_type(env.add_source(Ticks()))  # DataStream[int]
reveal_type(orders.assign_timestamps_and_watermarks(strategy))  # DataStream[Order]
orders.sink_to(Table())
orders.add_sink(Alarm())
numbers.add_sink(print)
orders.add_sink(lambda order: print(order.cents))
orders.to_dataframe("user string, cents long").show()
rows = env.from_dataframe(object())
reveal_type(rows.map(lambda row: row[0]))  # DataStream[Any]
reveal_type(rows.key_by(lambda row: str(row.user)))  # KeyedStream[Row, str]
reveal_type(rows.select("user").to_records())  # DataStream[Row]

reveal_type(env.from_source(NumberSequenceSource(1, 9), strategy))  # DataStream[int]
reveal_type(env.from_source(DataGeneratorSource(str, 9), strategy))  # DataStream[str]

# Annotations of users.


def doubled(stream: DataStream[int]) -> DataStream[int]:
    return stream.map(lambda n: n * 2)


def wide(stream: DataStream[object]) -> DataStream[str]:
    return stream.map(repr)


def anything(stream: DataStream) -> KeyedStream:
    return stream.key_by(lambda record: record[0])


reveal_type(doubled(numbers))  # DataStream[int]
wide(numbers)
reveal_type(anything(numbers))  # KeyedStream[Any, Any]
doubled(anything(numbers))
