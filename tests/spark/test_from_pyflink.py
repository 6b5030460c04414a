"""Programs as users of PyFlink write them: only ``pyflink`` becomes ``headgate``, and they run."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("spark")

WORD_COUNT = """
import logging
import sys

from pyflink.common import Encoder, Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    FileSink, FileSource, OutputFileConfig, RollingPolicy, StreamFormat)
from pyflink.common import WatermarkStrategy


def word_count(input_path, output_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)

    ds = env.from_source(
        source=FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), input_path).process_static_file_set().build(),
        watermark_strategy=WatermarkStrategy.for_monotonous_timestamps(),
        source_name="file_source")

    def split(line):
        yield from line.split()

    ds = ds.flat_map(split) \\
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()])) \\
        .key_by(lambda pair: pair[0]) \\
        .reduce(lambda a, b: (a[0], a[1] + b[1]))

    ds.map(lambda pair: f"{pair[0]},{pair[1]}", output_type=Types.STRING()).sink_to(
        sink=FileSink.for_row_format(
            base_path=output_path, encoder=Encoder.simple_string_encoder())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".csv").build())
        .with_rolling_policy(RollingPolicy.default_rolling_policy())
        .build())
    env.execute()


if __name__ == '__main__':
    logging.basicConfig(stream=sys.stdout, level=logging.WARN, format="%(message)s")
    word_count(INPUT, OUTPUT)
"""

WINDOWS = """
from typing import Iterable, Tuple

from pyflink.common import Duration, Time, Types
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import TimeWindow, TumblingEventTimeWindows


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp) -> int:
        return int(value[2])


class Mean(AggregateFunction):
    def create_accumulator(self) -> Tuple[float, int]:
        return 0.0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Label(ProcessWindowFunction[float, tuple, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow],
                elements: Iterable[float]) -> Iterable[tuple]:
        mean = next(iter(elements))
        return [(key, context.window().start, context.window().end, mean)]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(3000)
readings = env.from_collection(
    [("kiln", 10.0, 1000), ("kiln", 20.0, 4000), ("oven", 7.0, 2500), ("kiln", 40.0, 6000)],
    type_info=Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()]))
strategy = WatermarkStrategy \\
    .for_bounded_out_of_orderness(Duration.of_seconds(2)) \\
    .with_timestamp_assigner(ReadingTime())
means = readings.assign_timestamps_and_watermarks(strategy) \\
    .key_by(lambda reading: reading[0], key_type=Types.STRING()) \\
    .window(TumblingEventTimeWindows.of(Time.seconds(5))) \\
    .aggregate(
        Mean(),
        window_function=Label(),
        accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.LONG()]),
        output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]))
means.print()
env.execute("mean of readings")
"""

STATE_AND_TIMERS = """
from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment, TimeDomain)
from pyflink.datastream.state import (
    MapStateDescriptor, StateTtlConfig, ValueStateDescriptor)
from pyflink.common.time import Time

SLOW = OutputTag("slow", Types.STRING())


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return value.at


class Sessions(KeyedProcessFunction):
    def __init__(self, gap):
        self.gap = gap
        self.total = None
        self.pages = None

    def open(self, runtime_context: RuntimeContext):
        total = ValueStateDescriptor("total", Types.LONG())
        ttl = StateTtlConfig.new_builder(Time.days(1)) \\
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite) \\
            .never_return_expired().build()
        total.enable_time_to_live(ttl)
        self.total = runtime_context.get_state(total)
        self.pages = runtime_context.get_map_state(
            MapStateDescriptor("pages", Types.STRING(), Types.LONG()))

    def process_element(self, value: Row, ctx: 'KeyedProcessFunction.Context'):
        self.total.update((self.total.value() or 0) + value["millis"])
        self.pages.put(value["page"], ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + self.gap)
        if value["millis"] > 900:
            yield SLOW, ctx.get_current_key() + " waits at " + value["page"]

    def on_timer(self, timestamp: int, ctx: 'KeyedProcessFunction.OnTimerContext'):
        if timestamp < max(self.pages.values()) + self.gap:
            return []
        pages = sorted(self.pages.keys())
        assert ctx.time_domain() == TimeDomain.EVENT_TIME
        result = Row(ctx.get_current_key(), self.total.value(), pages)
        self.total.clear()
        self.pages.clear()
        return [result]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    visits = env.from_collection(
        [("ann", "home", 20, 1), ("bob", "home", 990, 5), ("ann", "cart", 30, 2)],
        type_info=Types.ROW_NAMED(
            ["user", "page", "millis", "at"],
            [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
    sessions = visits.assign_timestamps_and_watermarks(strategy) \\
        .key_by(lambda visit: visit[0], key_type=Types.STRING()) \\
        .process(Sessions(100), output_type=Types.ROW_NAMED(
            ["user", "millis", "pages"],
            [Types.STRING(), Types.LONG(), Types.LIST(Types.STRING())]))
    sessions.get_side_output(SLOW).map(lambda text: "! " + text, Types.STRING()).print()
    sessions.map(lambda row: f"{row.user}: {row.millis} {row.pages}", Types.STRING()).print()
    env.execute()


main()
"""

BROADCAST = """
from pyflink.common.typeinfo import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.execution_mode import RuntimeExecutionMode
from pyflink.datastream.functions import (
    CoMapFunction, KeyedBroadcastProcessFunction, MapFunction)
from pyflink.datastream.state import MapStateDescriptor, ReducingStateDescriptor

LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Alarm(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.spent = runtime_context.get_reducing_state(
            ReducingStateDescriptor("spent", lambda a, b: a + b, Types.INT()))

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        limits = ctx.get_broadcast_state(LIMITS)
        self.spent.add(value[1])
        if value[0] in limits and self.spent.get() > limits[value[0]]:
            yield f"{value[0]} has spent {self.spent.get()}"

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(LIMITS)[value[0]] = value[1]


class Same(CoMapFunction):
    def map1(self, value):
        return value[0].lower(), value[1]

    def map2(self, value):
        return (value, 1)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
pair = Types.TUPLE([Types.STRING(), Types.INT()])
limits = env.from_collection([("ann", 10), ("bob", 5)], pair).broadcast(LIMITS)
payments = env.from_collection([("ANN", 4), ("Bob", 5), ("Ann", 4)], pair)
donations = env.from_collection(["ann", "eve", "bob", "ann", "ann"], Types.STRING())
alarms = payments.connect(donations).map(Same(), output_type=pair) \\
    .key_by(lambda one: one[0], key_type=Types.STRING()) \\
    .connect(limits) \\
    .process(Alarm(), output_type=Types.STRING())
with alarms.execute_and_collect() as results:
    for result in sorted(results):
        print(result)
"""

TEXTS = """
from pyflink.common import Encoder, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
one = env.from_collection([1])
one.map(lambda x: (True, 1e10, ["a", "b"]), Types.TUPLE(
    [Types.BOOLEAN(), Types.DOUBLE(), Types.LIST(Types.STRING())])).print("typed")
one.map(lambda x: {"k": 1.1}, Types.MAP(Types.STRING(), Types.FLOAT())).print("map")
one.map(lambda x: Row(x=1, y="b")).print("plain")
rows = one.map(lambda x: Row("a", True, None, Row(7)), Types.ROW(
    [Types.STRING(), Types.BOOLEAN(), Types.STRING(), Types.ROW([Types.INT()])]))
rows.map(lambda row: Row("a", True), Types.ROW([Types.STRING(), Types.BOOLEAN()])).print("row")
rows.sink_to(FileSink.for_row_format(OUTPUT, Encoder.simple_string_encoder()).build())
numbers = env.from_collection([1, 2, 3]).map(lambda x: x if x != 2 else None)
numbers.filter(lambda x: x is not None).print("kept")
numbers.key_by(lambda x: x is None).reduce(lambda a, b: (a, b)).print("folded")
env.execute()
"""


def run(program: str, **names: str) -> None:
    """As a script, after its imports were changed."""
    text = program.replace("pyflink", "headgate")
    exec(compile(text, "program.py", "exec"), {"__name__": "__main__", **names})


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines without the number of the task that printed them."""
    return sorted(line.partition("> ")[2] or line for line in capsys.readouterr().out.splitlines())


def test_words_of_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("to be or\nnot to be\n")
    run(WORD_COUNT, INPUT=str(tmp_path / "in.txt"), OUTPUT=str(tmp_path / "out"))
    (part,) = (tmp_path / "out").glob("words*.csv")
    assert sorted(part.read_text().split()) == ["be,2", "not,1", "or,1", "to,2"]


def test_readings_are_aggregated_in_windows(capsys: pytest.CaptureFixture[str]) -> None:
    run(WINDOWS)
    assert printed(capsys) == [
        "(kiln,0,5000,15.0)",
        "(kiln,5000,10000,40.0)",
        "(oven,0,5000,7.0)",
    ]


def test_visits_are_gathered_by_state_and_timers(capsys: pytest.CaptureFixture[str]) -> None:
    run(STATE_AND_TIMERS)
    assert printed(capsys) == [
        "! bob waits at home",
        "ann: 50 ['cart', 'home']",
        "bob: 990 ['home']",
    ]


def test_payments_are_checked_against_limits(capsys: pytest.CaptureFixture[str]) -> None:
    run(BROADCAST)
    assert printed(capsys) == ["ann has spent 11", "bob has spent 6"]


def test_texts_and_none_are_those_that_pyflink_has_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(TEXTS, OUTPUT=str(tmp_path / "rows"))
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "folded> (1, 3)",
        "folded> 1",
        "folded> None",
        "kept> 1",
        "kept> 3",
        "map> {k=1.1}",
        "plain> Row(x=1, y='b')",
        "row> +I[a,True]",
        "typed> (true,1.0E10,[a, b])",
    ]
    (part,) = [path for path in (tmp_path / "rows").rglob("*") if path.is_file()]
    assert part.read_text() == "+I[a, true, null, +I[7]]\n"
