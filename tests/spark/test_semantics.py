"""What programs rely on and only a real cluster of processes can show."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import JobFailed
from headgate.common import WatermarkStrategy
from headgate.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from headgate.datastream import RuntimeExecutionMode as Mode
from headgate.datastream.state import ValueStateDescriptor
from tests.spark.programs import WithSubtask, environment

pytestmark = pytest.mark.usefixtures("spark")


def test_records_are_collected_in_the_order_in_which_each_task_has_sent_them() -> None:
    with environment(2).from_collection(range(8)).map(WithSubtask()).execute_and_collect() as found:
        tasks = defaultdict(list)
        for task, number in found:
            tasks[task].append(number)
    assert sorted(tasks.values()) == [[0, 2, 4, 6], [1, 3, 5, 7]]


class Logged(MapFunction[Any, Any]):
    """Writes down its life, a file for each task; counts in an attribute."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.count = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.task = runtime_context.get_index_of_this_subtask()
        self.log("open")

    def map(self, value: Any) -> Any:
        self.count += 1
        if value == "bad":
            self.log("failed")
            raise ValueError("bad enough")
        return self.task, self.count

    def close(self) -> None:
        self.log("close")

    def log(self, event: str) -> None:
        with Path(self.folder, str(self.task)).open("a") as file:
            file.write(f"{event}\n")


def test_functions_are_opened_and_closed_once_in_each_task_and_attributes_belong_to_it(
    tmp_path: Path,
) -> None:
    function = Logged(str(tmp_path))
    stream = environment(2).from_collection(range(10)).map(function)
    with stream.execute_and_collect() as found:
        assert sorted(found) == [(task, n) for task in range(2) for n in range(1, 6)]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "0": "open\nclose\n",
        "1": "open\nclose\n",
    }
    assert function.count == 0, "the driver's own object is not used"


def test_a_job_that_failed_is_not_started_again_and_its_error_has_the_users_words(
    tmp_path: Path,
) -> None:
    env = environment(1)
    env.from_collection(["good", "bad"]).map(Logged(str(tmp_path))).name("careful")
    with pytest.raises(JobFailed) as caught:
        env.execute("doomed")
    assert "ValueError: bad enough" in str(caught.value)
    assert "'careful'" in str(caught.value)
    assert (tmp_path / "0").read_text() == "open\nfailed\nclose\n"


class Last(KeyedProcessFunction[Any, Any, Any]):
    """The record before, of the same key; a timer behind each."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value[1] + 100)
        yield value[0], value[1], self.last.value()
        self.last.update(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), timestamp, self.last.value()


def test_a_batch_is_sorted_by_key_then_by_time_and_each_key_ends_with_its_timers() -> None:
    env = environment(1).set_runtime_mode(Mode.BATCH)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: int(record[1])
    )
    records = env.from_collection([("b", 3), ("a", 9), ("b", 1), ("a", 2)])
    stream = records.assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0])
    with stream.process(Last()).execute_and_collect() as results:
        found = list(results)
    of_a = [("a", 2, None), ("a", 9, 2), ("a", 102, 9), ("a", 109, 9)]
    of_b = [("b", 1, None), ("b", 3, 1), ("b", 101, 3), ("b", 103, 3)]
    assert found in (of_a + of_b, of_b + of_a)
