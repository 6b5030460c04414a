"""The task: mails between elements, suspended without input or buffers, always closed.

Row 152, 153, 157, 161, 163, 167, 172-175.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, LatencyMarker, Watermark
from headgate.base.errors import ProducerFailed, TaskCancelled, UserFunctionFailed
from headgate.base.messages import TaskState
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.operators.one_input import MapOperator
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.task import StepResult
from tests.core.chain.kit import LoggingOperator
from tests.core.task.kit import Lab, fill, live, sink, source, step_until, take_all


def double() -> Operator:
    return MapOperator(lambda n: n * 2)


# From beginning to end.


def test_a_task_reads_works_and_writes_to_the_end() -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        task = lab.task(double, gates=((lab.gate("up"),),), writers=(down,))
        reader = lab.open_input("down")
        up.emit_all([1, 2])
        up.emit_element(Watermark(5))
        up.finish()
        assert live(task) is None
        assert lab.states == ["deploying", "running", "finished"]
        assert reader.take(9) == Bundle([2, 4])
        reader.take(9)
        assert reader.watermark_ms == 5
        take_all(reader)
        assert reader.ended
        reader.close()


def test_a_source_task_ends_with_the_largest_watermark() -> None:
    with Lab() as lab:
        down = lab.writer("down")
        reader = lab.open_input("down")
        task = lab.task(source([1], [], [2]), double, writers=(down,))
        step_until(task, StepResult.IDLE)
        lab.timers.pass_ms(7)
        assert live(task) is None
        found: list[int] = []
        while not reader.ended:
            taken = reader.take(9)
            found += taken.records if isinstance(taken, Bundle) else []
        assert found == [2, 4]
        assert reader.watermark_ms == MAX_WATERMARK_MS
        reader.close()


def test_the_order_of_the_end_is_end_of_input_then_finish_then_close() -> None:
    log: list[str] = []
    with Lab() as lab:
        up = lab.writer("up")
        up.finish()
        task = lab.task(lambda: LoggingOperator(log, "a"), sink([]), gates=((lab.gate("up"),),))
        live(task)
    assert log == ["a set up", "a open", "a end input 0", "a finish", "a close"]


def test_figures_tell_what_has_passed() -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        task = lab.task(double, double, gates=((lab.gate("up"),),), writers=(down,))
        up.emit_all([1, 2, 3])
        up.emit_element(Watermark(4))
        step_until(task, StepResult.IDLE)
        seen = task.figures()
        assert seen.state is TaskState.RUNNING
        assert (seen.records_in, seen.records_out) == (3, 3)
        assert (seen.input_watermarks_ms, seen.output_watermark_ms) == ((4,), 4)
        assert [operator.records_in for operator in seen.operators] == [3, 3]
        assert seen.buffers_in > 0
        assert seen.queued_out > 0
        up.finish()
        live(task)
        assert task.figures().state is TaskState.FINISHED


# Mails.


def test_mails_run_between_elements() -> None:
    got: list[Any] = []
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink(got), gates=((lab.gate("up"),),))
        up.emit_all([1])
        up.emit_all([2])
        up.emit_all([3])
        task.step()
        assert got == [1]
        task.mailbox.put("note", lambda: got.append("mail"))
        assert lab.woken > 0
        task.step()
        assert got == [1, "mail", 2]
        up.finish()
        live(task)
        assert got == [1, "mail", 2, 3]


def test_a_suspended_task_still_reads_its_mail() -> None:
    got: list[Any] = []
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink(got), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        task.mailbox.put("note", lambda: got.append("mail"))
        assert task.step() is StepResult.MORE
        assert got == ["mail"]
        assert task.step() is StepResult.IDLE
        up.finish()
        live(task)


class Timed(Operator):
    """Asks for a timer in open and sends on what it finds then."""

    def __init__(self, act: Callable[[Operator], None]) -> None:
        self._act = act

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        context.later(50, lambda: self._act(self))

    def process(self, bundle: Bundle, number: int) -> None:
        self.output.collect(bundle)


def test_a_timer_of_an_operator_runs_on_the_task_and_what_it_sends_is_written() -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        task = lab.task(
            lambda: Timed(lambda operator: operator.output.collect(Bundle(["tick"]))),
            gates=((lab.gate("up"),),),
            writers=(down,),
        )
        step_until(task, StepResult.IDLE)
        lab.timers.pass_ms(50)
        step_until(task, StepResult.IDLE)
        assert reader.take(9) == Bundle(["tick"])
        up.finish()
        live(task)
        reader.close()


def test_a_failing_timer_names_its_operator() -> None:
    def fail(operator: Operator) -> None:
        raise ValueError("too late")

    with Lab() as lab:
        lab.writer("up")
        task = lab.task(lambda: Timed(fail), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        lab.timers.pass_ms(50)
        error = live(task)
        assert isinstance(error, UserFunctionFailed)
        assert "operator 'op0' failed in a timer: ValueError: too late" in str(error)


# Suspended: no input, no buffer.


def test_without_input_it_is_idle_until_woken() -> None:
    got: list[int] = []
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink(got), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        woken = lab.woken
        lab.timers.pass_ms(40)
        assert task.step() is StepResult.IDLE
        up.emit_all([1])
        assert lab.woken > woken
        assert task.step() is StepResult.MORE
        assert got == [1]
        assert task.figures().idle_ms == 40
        up.finish()
        live(task)


def test_without_a_buffer_it_takes_no_input_and_that_is_back_pressure() -> None:
    with Lab(24) as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        task = lab.task(lambda: MapOperator(bytes), gates=((lab.gate("up"),),), writers=(down,))
        sent = fill(lab, task, up)
        before = task.figures()
        lab.timers.pass_ms(300)
        assert task.step() is StepResult.IDLE
        assert task.figures().records_in == before.records_in, "it takes no input"
        spent = task.figures()
        assert (spent.soft_backpressured_ms, spent.hard_backpressured_ms) == (300, 0)

        woken = lab.woken
        found = read(reader)  # its buffers come back
        assert lab.woken > woken
        step_until(task, StepResult.IDLE)
        lab.timers.pass_ms(100)
        spent = task.figures()
        assert (spent.backpressured_ms, spent.idle_ms) == (300, 100), "now only input is missing"
        up.finish()
        live(task)
        assert len(found + read(reader)) == sent
        reader.close()


def read(reader: NetworkInput) -> list[Any]:
    bundles = [element for element in take_all(reader) if isinstance(element, Bundle)]
    return [record for bundle in bundles for record in bundle.records]


def test_a_writer_that_waits_in_the_middle_of_a_step_is_back_pressure_too() -> None:
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink([]), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        before = task.figures()
        task.waiting_for_buffer(True)
        lab.timers.pass_ms(70)
        task.waiting_for_buffer(False)
        lab.timers.pass_ms(5)
        after = task.figures()
        assert after.hard_backpressured_ms == before.hard_backpressured_ms + 70
        assert after.soft_backpressured_ms == before.soft_backpressured_ms
        up.finish()
        live(task)


# However it ends.


@pytest.mark.parametrize("when", ["open", "process", "end input 0", "finish", "close"])
def test_whatever_fails_everything_is_given_back_and_the_neighbours_are_told(when: str) -> None:
    log: list[str] = []
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        task = lab.task(
            lambda: LoggingOperator(log, "a", when),
            double,
            gates=((lab.gate("up"),),),
            writers=(down,),
        )
        up.emit_all([1])
        up.finish()
        live(task)
        assert task.lifecycle.state is TaskState.FAILED
        assert isinstance(task.lifecycle.failure, UserFunctionFailed)
        assert lab.states[-1].startswith("failed: operator 'op0' failed")
        assert [line for line in log if line.endswith("close")] == ["a close"]
        with pytest.raises(ProducerFailed):
            take_all(reader)
        reader.close()


def test_a_users_exit_in_close_leaks_nothing() -> None:
    class Leaving(Operator):
        def close(self) -> None:
            raise SystemExit(3)

    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        task = lab.task(Leaving, gates=((lab.gate("up"),),), writers=(down,))
        step_until(task, StepResult.IDLE)
        task.close(None)
        assert task.lifecycle.state is TaskState.FAILED
        assert down.partition.released
        assert up.partition.subpartitions[0].released, "its gate has gone, so nobody reads this"


def test_a_cancelled_task_ends_as_cancelled_and_tells_no_error() -> None:
    log: list[str] = []
    with Lab() as lab:
        lab.writer("up")
        task = lab.task(lambda: LoggingOperator(log, "a"), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        task.cancel()
        assert task.lifecycle.state is TaskState.CANCELLING
        task.close(TaskCancelled("enough"))
        assert lab.states == ["deploying", "running", "cancelled"]
        assert log[-1] == "a close"


def test_a_failure_while_it_is_cancelled_counts_as_cancelled() -> None:
    log: list[str] = []
    with Lab() as lab:
        lab.writer("up")
        task = lab.task(lambda: LoggingOperator(log, "a", "close"), gates=((lab.gate("up"),),))
        step_until(task, StepResult.IDLE)
        task.cancel()
        task.close(TaskCancelled("enough"))
        assert lab.states[-1] == "cancelled"


def test_a_task_that_is_cancelled_before_its_first_step_opens_nothing() -> None:
    log: list[str] = []
    with Lab() as lab:
        lab.writer("up")
        task = lab.task(lambda: LoggingOperator(log, "a"), gates=((lab.gate("up"),),))
        task.cancel()
        task.close(TaskCancelled("enough"))
        assert lab.states == ["cancelled"]
        assert log == ["a set up", "a close"]


def test_mail_after_the_end_is_refused() -> None:
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink([]), gates=((lab.gate("up"),),))
        up.finish()
        live(task)
        assert not task.mailbox.put("late", lambda: None)


# Latency markers.


def test_markers_bypass_user_functions_and_are_measured() -> None:
    def never(value: Any) -> Any:
        raise AssertionError("a user function saw a marker")

    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        task = lab.task(lambda: MapOperator(never), gates=((lab.gate("up"),),), writers=(down,))
        marker = LatencyMarker(lab.clock.wall_ms(), 1, 0)
        up.emit_element(marker)
        lab.timers.pass_ms(25)
        step_until(task, StepResult.IDLE)
        down.flush_all()
        assert reader.take(9) == marker
        latency = task.figures().latency
        assert latency is not None
        assert (latency.count, latency.sum_ms) == (1, 25)
        up.finish()
        live(task)
        reader.close()


def test_a_source_task_measures_no_latency() -> None:
    with Lab() as lab:
        task = lab.task(source([1]), sink([]))
        live(task)
        assert task.figures().latency is None
