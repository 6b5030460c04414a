"""The end of a task: how it ends among checkpoints, and how a savepoint stops it."""

from collections.abc import Collection
from typing import Any

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import SettingsInvalid
from headgate.base.events import CheckpointBarrier
from headgate.base.messages import TaskState
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.task.task import StepResult, Task
from headgate.functions.context import SnapshotMoment
from tests.core.task.kit import (
    WALL_MS,
    Lab,
    Shelf,
    abort,
    complete,
    live,
    options,
    sink,
    source,
    step_until,
    take_all,
    trigger,
)


class Logged(Operator):
    """Writes down what happens to it; ticks by a timer; commits with a checkpoint if it is to."""

    def __init__(self, log: list[Any], commits: bool = False) -> None:
        self.log = log
        self._uncommitted = commits

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        context.later(10, self._tick)

    def process(self, bundle: Bundle, number: int) -> None:
        self.log += bundle.records
        self.output.collect(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self.log.append(watermark.timestamp_ms)
        self.output.emit_watermark(watermark)

    def end_input(self, number: int) -> None:
        self.log.append(f"end of {number}")

    def finish(self) -> None:
        self.log.append("finish")

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        self.log.append("snapshot")
        return OperatorSnapshot()

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.log.append("completed")
        self._uncommitted = False

    @property
    def awaits_checkpoint(self) -> bool:
        return self._uncommitted

    def _tick(self) -> None:
        self.log.append("tick")
        self.context.later(10, self._tick)


class Desk:
    """A task with an input that ends when the test says so."""

    def __init__(self, lab: Lab, commits: bool = False, inputs: int = 1) -> None:
        self.lab = lab
        self.log: list[Any] = []
        self.shelf = Shelf()
        self.ups = [lab.writer(f"up{number}") for number in range(inputs)]
        self.down = lab.writer("down")
        self.reader = lab.open_input("down")
        self.reader.on_barrier = lambda channel, event: None
        self.task: Task = lab.task(
            lambda: Logged(self.log, commits),
            gates=tuple((lab.gate(f"up{number}"),) for number in range(inputs)),
            writers=(self.down,),
            checkpoints=self.shelf.plan(),
        )
        self.go_on()

    @property
    def wanted(self) -> int:
        return self.lab.wanted

    def go_on(self) -> None:
        step_until(self.task, StepResult.IDLE)

    def barrier(self, checkpoint: int, stop: Stop = Stop.NO) -> None:
        barrier = CheckpointBarrier(checkpoint, WALL_MS, kind=options(stop).kind, stop=stop)
        for up in self.ups:
            up.send_barrier(barrier)
        self.go_on()

    def ends(self) -> bool:
        """Whether it ends by itself."""
        for _ in range(50):
            if self.task.step() is StepResult.DONE:
                self.task.close(None)
                take_all(self.reader)
                self.reader.close()
                return self.task.lifecycle.state is TaskState.FINISHED
        return False


# The end of the input.


def test_a_task_stays_until_what_it_has_taken_is_written() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.barrier(1)
        desk.ups[0].finish()
        desk.go_on()
        assert desk.log == ["snapshot", "end of 0", "finish"]
        assert not desk.down.partition.finished
        assert desk.task.step() is StepResult.IDLE
        desk.shelf.last.done()
        assert desk.ends()
        assert desk.wanted == 0


def test_who_has_something_to_commit_asks_for_a_checkpoint_and_stays_until_it_is_complete() -> None:
    with Lab() as lab:
        desk = Desk(lab, commits=True)
        desk.ups[0].finish()
        desk.go_on()
        desk.go_on()
        assert desk.wanted == 1
        trigger(desk.task, 3)
        desk.go_on()
        assert desk.log == ["end of 0", "finish", "snapshot"]
        assert desk.shelf.last.snapshot.finished, "nothing of it is to be run again"
        desk.shelf.last.done()
        desk.go_on()
        assert desk.wanted == 1
        complete(desk.task, 3)
        assert desk.ends()
        assert desk.log[3:] == ["completed"]


def test_it_asks_again_when_that_checkpoint_came_to_nothing() -> None:
    with Lab() as lab:
        desk = Desk(lab, commits=True)
        desk.ups[0].finish()
        desk.go_on()
        abort(desk.task, 3, "no room")
        desk.go_on()
        assert desk.wanted == 2
        complete(desk.task, 4)
        assert desk.ends()


def test_after_the_end_no_timer_fires() -> None:
    with Lab() as lab:
        desk = Desk(lab, commits=True)
        desk.ups[0].finish()
        desk.go_on()
        lab.timers.pass_ms(10)
        desk.go_on()
        assert "tick" not in desk.log
        complete(desk.task, 1)
        assert desk.ends()


def test_a_barrier_in_the_output_of_a_task_that_ends_does_not_wait_for_its_time() -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        reader = lab.open_input("down")
        reader.on_barrier = lambda channel, event: None
        shelf, log = Shelf(), []  # type: ignore[var-annotated]
        task = lab.task(
            lambda: Logged(log),
            gates=((lab.gate("up"),),),
            writers=(down,),
            checkpoints=shelf.plan(5000),
        )
        up.emit_all([1])
        up.send_barrier(CheckpointBarrier(1, WALL_MS))
        step_until(task, StepResult.IDLE)
        assert shelf.last.in_flight is None
        up.finish()
        step_until(task, StepResult.IDLE)
        assert len(shelf.last.bytes_in_flight[False, 0, 0]) > 0
        shelf.last.done()
        assert live(task) is None
        take_all(reader)
        reader.close()


# A savepoint that ends the job.


def test_after_the_barrier_of_a_savepoint_that_ends_the_job_the_task_stands_still() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.barrier(1, Stop.SUSPEND)
        desk.ups[0].emit_all([7])
        lab.timers.pass_ms(10)
        desk.go_on()
        assert desk.log == ["snapshot"], "no record, no timer"
        abort(desk.task, 1, "no room")
        desk.go_on()
        assert sorted(map(str, desk.log[1:])) == ["7", "tick"], "it goes on as if nothing had been"
        lab.timers.pass_ms(10)
        desk.go_on()
        desk.shelf.last.done()
        desk.ups[0].finish()
        assert desk.ends()
        assert desk.log[3:] == ["tick", "end of 0", "finish"]


def test_when_it_is_complete_the_task_ends_and_its_operators_do_not_learn_why() -> None:
    with Lab() as lab:
        desk = Desk(lab, inputs=2)
        desk.ups[0].emit_element(Watermark(5))
        desk.barrier(1, Stop.SUSPEND)
        for up in desk.ups:
            up.finish()
        desk.go_on()
        assert desk.log == ["snapshot"]
        lab.timers.pass_ms(10)
        desk.shelf.last.done()
        complete(desk.task, 1)
        assert desk.ends()
        assert desk.log == ["snapshot", "completed"], "no end, no event time, no timer"


@pytest.mark.parametrize("verdict", ["completed", "aborted"])
def test_an_end_that_came_with_the_snapshot_waits_for_the_verdict(verdict: str) -> None:
    with Lab() as lab:
        desk = Desk(lab)
        trigger(desk.task, 1, options(Stop.SUSPEND))
        desk.go_on()
        desk.ups[0].finish()
        desk.go_on()
        assert desk.log == ["snapshot"]
        desk.shelf.last.done()
        if verdict == "completed":
            complete(desk.task, 1)
        else:
            abort(desk.task, 1, "no room")
        assert desk.ends()
        ends = ["completed"] if verdict == "completed" else ["end of 0", "finish"]
        assert desk.log[1:] == ends


def test_a_source_stops_reading_at_its_barrier() -> None:
    log: list[Any] = []
    with Lab() as lab:
        shelf = Shelf()
        task = lab.task(
            source([1], [], [2], [], [3]), lambda: Logged(log), checkpoints=shelf.plan()
        )
        step_until(task, StepResult.IDLE)
        trigger(task, 1, options(Stop.SUSPEND))
        step_until(task, StepResult.IDLE)
        lab.timers.pass_ms(7)
        step_until(task, StepResult.IDLE)
        assert log == [1, "snapshot"]
        abort(task, 1, "no room")
        step_until(task, StepResult.IDLE)
        assert log == [1, "snapshot", 2]
        trigger(task, 2, options(Stop.SUSPEND))
        step_until(task, StepResult.IDLE)
        for writing in shelf.written:
            writing.done()
        complete(task, 2)
        assert live(task) is None
        assert log == [1, "snapshot", 2, "snapshot", "completed"]
        assert lab.states[-1] == "finished"


def test_a_source_that_is_drained_finishes_before_the_barrier() -> None:
    log: list[Any] = []
    with Lab() as lab:
        shelf, down = Shelf(), lab.writer("down")
        reader = lab.open_input("down")
        seen: list[Any] = []
        reader.on_barrier = lambda channel, event: seen.append(reader.watermark_ms)
        task = lab.task(
            source([1], [], [2]),
            lambda: Logged(log),
            writers=(down,),
            checkpoints=shelf.plan(),
        )
        step_until(task, StepResult.IDLE)
        trigger(task, 1, options(Stop.DRAIN))
        step_until(task, StepResult.IDLE)
        assert log == [1, MAX_WATERMARK_MS, "end of 0", "finish", "snapshot"]
        assert not shelf.last.snapshot.finished, "a later run may read on"
        shelf.last.done()
        complete(task, 1)
        assert live(task) is None
        assert log[5:] == ["completed"]
        take_all(reader)
        assert seen == [MAX_WATERMARK_MS]
        reader.close()


def test_who_takes_the_barrier_of_a_drain_finishes_before_its_snapshot() -> None:
    with Lab() as lab:
        desk = Desk(lab, commits=True, inputs=2)
        desk.ups[0].finish()
        desk.go_on()
        desk.ups.pop(0)
        desk.barrier(1, Stop.DRAIN)
        assert desk.log == ["end of 0", "end of 1", "finish", "snapshot"]
        desk.shelf.last.done()
        desk.ups[0].finish()
        complete(desk.task, 1)
        assert desk.ends()
        assert desk.log[4:] == ["completed"]


def test_who_was_drained_in_vain_stays_still() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.barrier(1, Stop.DRAIN)
        abort(desk.task, 1, "no room")
        desk.ups[0].emit_all([7])
        desk.go_on()
        assert 7 not in desk.log, "its operators have finished; the run fails"
        desk.task.close(None)
        desk.reader.close()


def test_a_task_that_waits_for_checkpoints_takes_a_savepoint_that_ends_the_job() -> None:
    with Lab() as lab:
        desk = Desk(lab, commits=True)
        desk.ups[0].finish()
        desk.go_on()
        trigger(desk.task, 2, options(Stop.DRAIN))
        desk.go_on()
        assert desk.log == ["end of 0", "finish", "snapshot"], "it finishes once"
        desk.shelf.last.done()
        complete(desk.task, 2)
        assert desk.ends()


# What cannot have checkpoints.


class Choosing(Operator):
    inputs = 2

    def selection(self) -> Collection[int]:
        return (0,)


def test_operators_that_choose_their_inputs_are_refused_exactly_once() -> None:
    def make(lab: Lab, **plan: Any) -> Task:
        gates = ((lab.gate("a"),), (lab.gate("b"),))
        return lab.task(Choosing, gates=gates, checkpoints=Shelf().plan(**plan))

    with Lab() as lab:
        with pytest.raises(SettingsInvalid, match=r"operator 'op0' chooses .* use AT_LEAST_ONCE"):
            make(lab)
        make(lab, exactly_once=False)
        make(lab, enabled=False)


def test_a_task_without_checkpoints_ends_at_once() -> None:
    got: list[int] = []
    with Lab() as lab:
        up = lab.writer("up")
        task = lab.task(sink(got), gates=((lab.gate("up"),),))
        complete(task, 1)
        abort(task, 2, "it is told to all")
        up.finish()
        assert live(task) is None
