"""A program as PyFlink's users write it, without types: no checker finds fault with it.

Read by type checkers and never run; ``Any`` stands for what nobody has declared.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=True
# mypy: disallow-incomplete-defs=False
# pyright: basic

from headgate.common import Row, Time, Types, WatermarkStrategy
from headgate.common.watermark_strategy import TimestampAssigner
from headgate.datastream import (
    AggregateFunction,
    DataStream,
    FilterFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headgate.datastream.formats.json import JsonRowDeserializationSchema
from headgate.datastream.state import MapStateDescriptor, ValueStateDescriptor
from headgate.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)

LATE = OutputTag("late")
TAG = OutputTag("large", Types.ROW([Types.STRING(), Types.INT()]))
WINDOWS = TumblingEventTimeWindows.of(Time.seconds(5))


class Double(MapFunction):
    def map(self, value):
        return value[0], value[1] * 2


class Positive(FilterFunction):
    def filter(self, value):
        return value[1] > 0


class ByName(KeySelector):
    def get_key(self, value):
        return value[0]


class Split(ProcessFunction):
    def process_element(self, value, ctx: ProcessFunction.Context):
        if value[1] > 100:
            yield TAG, value
        yield value


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        last = self.last.value()
        if last is None:
            last = 0
        self.seen.put(value[0], last + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)
        yield Row(ctx.get_current_key(), count)

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        yield Row(ctx.get_current_key(), timestamp)


class Average(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Ends(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        return [(key, context.window().end, element) for element in elements]


class Early(Trigger):
    def on_element(self, element, timestamp, window, ctx):
        return TriggerResult.FIRE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.FIRE_AND_PURGE

    def clear(self, window, ctx):
        pass


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def with_large(stream: DataStream, windows: WindowAssigner) -> DataStream:
    return stream.key_by(lambda row: row[0]).window(windows).reduce(lambda a, b: (a[0], b[1]))


env = StreamExecutionEnvironment.get_execution_environment()
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
stream = env.from_collection(
    [("a", 1), ("b", 2)], type_info=Types.TUPLE([Types.STRING(), Types.INT()])
).assign_timestamps_and_watermarks(strategy)
reveal_type(stream)  # DataStream[tuple[Any, ...]]
rows = stream.map(lambda pair: Row(pair[0], pair[1]), output_type=Types.ROW([Types.STRING()]))
reveal_type(rows)  # DataStream[Row]
doubled = stream.map(Double(), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
split = doubled.filter(Positive()).process(Split())
reveal_type(split)  # DataStream[Any]
reveal_type(split.get_side_output(TAG))  # DataStream[Row]
reveal_type(split.get_side_output(LATE))  # DataStream[Any]
keyed = split.key_by(ByName(), key_type=Types.STRING())
keyed.process(Count(), output_type=Types.ROW([Types.STRING(), Types.LONG()])).print()
keyed.window(WINDOWS).side_output_late_data(LATE).aggregate(
    Average(),
    accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
    output_type=Types.DOUBLE(),
)
keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(5))).process(Ends()).print()
keyed.window(SlidingEventTimeWindows.of(Time.seconds(5), Time.seconds(1))).trigger(Early()).sum(1)
keyed.count_window(5).trigger(CountTrigger.of(2)).reduce(lambda a, b: a)
keyed.sum(1).add_sink(print)
with_large(keyed, WINDOWS).union(doubled, rows).print()
schema = JsonRowDeserializationSchema.builder().build()
messages = env.from_collection([b"{}"])
reveal_type(messages.flat_map(schema, output_type=schema.get_produced_type()))  # DataStream[Row]
named: DataStream = env.from_collection([1, 2])
named = named.map(str)
named = named.key_by(lambda text: text)
with keyed.max_by(1).execute_and_collect() as results:
    for name, number in results:
        print(name, number)
env.execute("counts")
