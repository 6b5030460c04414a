"""Windows in event time: the highest temperature of each sensor in every minute.

The readings come a little out of order; the strategy waits ten seconds for stragglers. One reading
comes much too late and leaves by a side output. Watermarks come by the clock and this input is over
in no time, so the generator here speaks after every record.
"""

from collections.abc import Iterable, Iterator

from headgate import (
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.common import Watermark, WatermarkGenerator, WatermarkOutput
from headgate.datastream.window import TimeWindow

Reading = tuple[str, int, float]  # sensor, seconds, degrees
READINGS: list[Reading] = [
    ("harbour", 5, 11.5),
    ("hill", 12, 8.0),
    ("harbour", 58, 12.0),
    ("harbour", 64, 13.5),
    ("harbour", 49, 12.5),  # 15 seconds behind, and its minute is still open
    ("hill", 118, 9.5),
    ("harbour", 20, 30.0),  # its minute is over
    ("hill", 190, 9.0),
]
LATE = OutputTag("late")


class TenSecondsBehind(WatermarkGenerator):
    """As ``for_bounded_out_of_orderness``, but at once."""

    def on_event(self, event: Reading, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(timestamp - 10_000))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Everything has been said."""


class Highest(ProcessWindowFunction[Reading, str, str, TimeWindow]):
    """Gets what ``reduce`` has left of a window: one reading."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Reading]
    ) -> Iterator[str]:
        (highest,) = elements
        minute = context.window().start // 60_000
        yield f"minute {minute}: {key} {highest[2]}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(TenSecondsBehind).with_timestamp_assigner(
        lambda reading, before: reading[1] * 1000
    )
    readings = env.from_collection(READINGS).assign_timestamps_and_watermarks(strategy)
    highest = (
        readings.key_by(lambda reading: reading[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .side_output_late_data(LATE)
        .reduce(lambda one, two: max(one, two, key=lambda reading: reading[2]), Highest())
        .name("highest")
    )
    late = highest.get_side_output(LATE).map(lambda reading: f"too late: {reading}")
    with highest.union(late).execute_and_collect("windows") as lines:
        for line in sorted(lines):
            print(line)


if __name__ == "__main__":
    main()
