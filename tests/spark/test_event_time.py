"""Event time from end to end on a local Spark: strategies, timers, sources that know the time."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headgate.common import Duration, Time, Watermark, WatermarkStrategy
from headgate.common.watermark_strategy import TimestampAssigner
from headgate.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    SourceFunction,
)
from headgate.datastream.connectors import JsonLinesSource, NumberSequenceSource
from headgate.datastream.window import TumblingEventTimeWindows
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")

MIN, MAX = -(2**63), 2**63 - 1


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]  # type: ignore[no-any-return]


class Echo(KeyedProcessFunction[Any, Any, Any]):
    """Tells each record with the watermark it met, and again by a timer 5 ms later."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 5)
        yield value[0], ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "timer", timestamp, ctx.timer_service().current_watermark()


def test_in_a_short_job_timers_fire_at_the_end_in_order() -> None:
    env = environment()
    env.get_config().set_auto_watermark_interval(60_000)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByTime())
    stream = env.from_collection([("a", 30), ("b", 10), ("a", 20)])
    timed = stream.assign_timestamps_and_watermarks(strategy)
    with timed.key_by(lambda value: "all").process(Echo()).execute_and_collect() as results:
        found = list(results)
    assert sorted(found[:3]) == [("a", 20, MIN), ("a", 30, MIN), ("b", 10, MIN)]
    assert found[3:] == [("timer", 15, MAX), ("timer", 25, MAX), ("timer", 35, MAX)]


class KnowsTime(SourceFunction[Any]):
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        ctx.collect_with_timestamp(("a", 10), 10)
        ctx.emit_watermark(Watermark(14))
        ctx.collect_with_timestamp(("b", 12), 12)
        ctx.emit_watermark(Watermark(20))
        ctx.mark_as_temporarily_idle()
        ctx.collect_with_timestamp(("c", 30), 30)

    def cancel(self) -> None:
        pass


def test_watermarks_of_a_source_function_stay_in_line_with_its_records() -> None:
    keyed = environment().add_source(KnowsTime()).key_by(lambda value: "all")
    with keyed.process(Echo()).execute_and_collect() as results:
        found = list(results)
    assert found == [
        ("a", 10, MIN),
        ("b", 12, 14),
        *(("timer", 15, 20), ("timer", 17, 20)),
        ("c", 30, 20),
        ("timer", 35, MAX),
    ]


def test_sources_that_wait_for_each_other_all_come_to_their_end() -> None:
    env = environment()
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(2))
        .with_timestamp_assigner(lambda number, before: number)
        .with_idleness(Duration.of_seconds(5))
        .with_watermark_alignment("group", Duration.of_millis(400), Duration.of_millis(5))
    )
    short = env.from_source(NumberSequenceSource(1, 500), strategy, "short")
    long = env.from_source(NumberSequenceSource(1, 3000), strategy, "long")
    found = collected(short.union(long))
    assert found == sorted([*range(1, 501), *range(1, 3001)])


class Counted(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield context.window().start // 10_000, len(list(elements))


def put_files(folder: Path, *numbers: int) -> None:
    """File n has 50 lines of the n-th ten seconds; all of them appear at once."""
    for number in numbers:
        lines = (f'{{"at": {number * 10_000 + line * 200}}}\n' for line in range(50))
        (folder.parent / f"{number}.json").write_text("".join(lines))
    for number in numbers:
        (folder.parent / f"{number}.json").rename(folder / f"{number:03}.json")


@pytest.mark.parametrize("idle_ms", [None, 300])
def test_event_time_waits_for_the_older_of_two_files_that_are_found_together(
    tmp_path: Path, idle_ms: int | None
) -> None:
    folder = tmp_path / "found"
    folder.mkdir()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda line, before: line["at"]
    )
    if idle_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(idle_ms))
    source = JsonLinesSource(folder, follow=True, discover_ms=100)
    late = OutputTag("late")
    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    keyed = environment(2).from_source(source, strategy, "files").key_by(lambda line: "all")
    counted = keyed.window(windows).side_output_late_data(late).process(Counted())
    seen = counted.union(counted.get_side_output(late).map(lambda line: ("late", line["at"])))
    found: list[Any] = []
    with seen.execute_and_collect() as results:
        for pair in range(6):
            put_files(folder, 2 * pair, 2 * pair + 1)
            while (2 * pair, 50) not in found:
                found.append(next(results))
                assert found[-1][0] != "late", f"of pair {pair}"
            time.sleep(0.4)  # both tasks have nothing to read, for longer than they may be quiet
    assert sorted(found) == [(number, 50) for number in range(11)]
