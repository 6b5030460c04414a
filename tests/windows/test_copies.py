"""Each window has records of its own, whichever keeper holds it."""

from typing import Any

import pytest

from headgate import (
    AggregateFunction,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    WatermarkStrategy,
)
from headgate.testing import run_local


class MarkingSum(AggregateFunction[Any, int, int]):
    """Sums up what it has not seen before, and marks what it sees."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: dict[str, Any], accumulator: int) -> int:
        amount = 0 if "seen" in value else value["amount"]
        value["seen"] = True
        return accumulator + amount

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class OwnTrigger(EventTimeTrigger):
    """Has the windows kept one record at a time."""


@pytest.mark.parametrize("trigger", [None, OwnTrigger()], ids=["sliced", "general"])
@pytest.mark.parametrize("lateness_ms", [0, 100])
def test_no_window_sees_what_a_function_did_to_a_record_for_another(
    trigger: EventTimeTrigger | None, lateness_ms: int
) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        records = env.from_collection([{"amount": 5, "at": 30}, {"amount": 7, "at": 31}])
        strategy: Any = WatermarkStrategy.for_monotonous_timestamps()
        timed = records.assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda record, _: record["at"])
        )
        windows = timed.key_by(lambda record: 1).window(
            SlidingEventTimeWindows.of(Time.milliseconds(30), Time.milliseconds(10))
        )
        windows = windows.allowed_lateness(lateness_ms)
        return (windows if trigger is None else windows.trigger(trigger)).aggregate(MarkingSum())

    assert run_local(build, parallelism=1).output == [12, 12, 12]
