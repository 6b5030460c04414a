"""The checkpoints of a task: snapshots between steps, barriers or cancel markers, never both."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import TaskCancelled, UserFunctionFailed
from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.checkpoint.inputs import CheckpointedInputs
from headgate.core.ingress.deserializer import DeserializationResult
from headgate.core.ingress.gate import Gate
from headgate.core.operators.one_input import MapOperator
from headgate.core.task import task as task_module
from headgate.core.task.task import StepResult, Task
from headgate.functions.context import SnapshotMoment
from tests.core.task.kit import (
    WALL_MS,
    Lab,
    Shelf,
    abort,
    complete,
    fill,
    live,
    read_stream,
    sink,
    source,
    step_until,
    take_all,
    trigger,
)

BARRIER = CheckpointBarrier(1, WALL_MS)


class Sum(Operator):
    """Adds up what it gets, and sends it on; keeps one record back until a barrier comes."""

    def __init__(self, log: list[Any], fails: str = "") -> None:
        self.total = 0
        self.log = log
        self.fails = fails
        self.back: list[Any] = []

    def process(self, bundle: Bundle, number: int) -> None:
        self.total += sum(bundle.records)
        self.log += bundle.records
        self.output.collect(bundle)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        if self.fails == "before":
            raise ValueError("not now")
        self.output.collect(Bundle(["before"]))

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        if self.fails == "snapshot":
            raise ValueError("no state today")
        self.log.append(f"snapshot {moment.checkpoint}")
        return OperatorSnapshot(plain=str(self.total).encode())

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.log.append(f"completed {checkpoint}")

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self.log.append(f"aborted {checkpoint}")


class Desk:
    """A task with two channels and one output, its storage, and what its operator has seen."""

    def __init__(
        self, lab: Lab, timeout_ms: int | None = None, fails: str = "", **plan: Any
    ) -> None:
        self.lab = lab
        self.ups = [lab.writer("a"), lab.writer("b")]
        self.down = lab.writer("down")
        self.shelf = Shelf()
        self.log: list[Any] = []
        self.operator = Sum(self.log, fails)
        self.gate: Gate = lab.gate("a", "b")
        self.reader = lab.open_input("down")
        self.events: list[Any] = []
        self.reader.on_barrier = lambda channel, event: self.events.append(event)
        self.task: Task = lab.task(
            lambda: self.operator,
            gates=((self.gate,),),
            writers=(self.down,),
            checkpoints=self.shelf.plan(timeout_ms, **plan),
        )
        self.go_on()

    def go_on(self) -> None:
        step_until(self.task, StepResult.IDLE)

    def read(self) -> list[Any]:
        """What the consumer sees: records and barriers."""
        found: list[Any] = []
        while (taken := self.reader.take(1)) is not None:
            if isinstance(taken, Bundle):
                found += taken.records
            elif self.events:
                found += self.events
                self.events.clear()
            else:
                return found
        return found

    def end(self) -> None:
        for up in self.ups:
            if not up.partition.finished:
                up.finish()
        for writing in self.shelf.written:
            writing.done()
        assert live(self.task) is None
        take_all(self.reader)
        self.reader.close()


def test_a_source_is_triggered_and_its_barrier_follows_what_it_had_sent() -> None:
    with Lab() as lab:
        shelf, down = Shelf(), lab.writer("down")
        reader = lab.open_input("down")
        seen: list[Any] = []
        reader.on_barrier = lambda channel, event: seen.append(event)
        task = lab.task(source([1], [], [2]), writers=(down,), checkpoints=shelf.plan())
        step_until(task, StepResult.IDLE)
        trigger(task, 1)
        assert not shelf.written, "by mail"
        step_until(task, StepResult.IDLE)
        assert shelf.last.in_flight == []
        assert [(operator.uid, operator.name) for operator in shelf.last.snapshot.operators] == [
            ("uid0", "op0")
        ]
        assert not shelf.last.snapshot.finished
        assert reader.take(9) == Bundle([1])
        reader.take(9)
        assert seen == [BARRIER]
        shelf.last.done()
        lab.timers.pass_ms(7)
        assert live(task) is None
        reader.close()


def test_an_unaligned_barrier_takes_what_is_before_it_along() -> None:
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=0)
        desk.ups[0].emit_all([1])
        desk.ups[1].emit_all([2])
        overtaken = desk.ups[0].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        assert read_stream(b"".join(overtaken[0])) == [Bundle([1])]
        desk.task.step()
        assert desk.log[0] == "snapshot 1"
        desk.go_on()
        assert sorted(desk.log[1:]) == [1, 2]
        assert desk.shelf.last.in_flight is None, "the other channel has not delivered"
        desk.ups[1].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        desk.go_on()
        found = desk.shelf.last.bytes_in_flight
        assert list(found) == [(True, 0, 1), (False, 0, 0)]
        assert read_stream(found[True, 0, 1]) == [Bundle([2])]
        assert read_stream(found[False, 0, 0]) == [Bundle(["before"])]
        desk.end()


@pytest.mark.parametrize("announced", [True, False])
def test_an_element_that_is_read_by_half_belongs_to_the_checkpoint(announced: bool) -> None:
    with Lab() as lab:
        up = lab.writer("up")
        shelf, gate = Shelf(), lab.gate("up")
        got: list[str] = []
        task = lab.task(sink(got), gates=((gate,),), checkpoints=shelf.plan(0))
        step_until(task, StepResult.IDLE)
        if not announced:  # as if the barrier came after the mails of a lap had run
            gate.on_announced = lambda channel, barrier: None
        record = "r" * 100  # it needs two buffers
        up.emit_all([record])
        beginning = gate.poll()
        assert beginning is not None and beginning.buffer is not None
        begun = task._inputs[0]._deserializers[0]
        begun.feed(beginning.buffer)
        assert begun.next() == (DeserializationResult.PART, None)
        rest = up.overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))[0]
        step_until(task, StepResult.IDLE)
        kept = shelf.last.bytes_in_flight[True, 0, 0]
        assert read_stream(kept + b"".join(rest)) == [Bundle([record])]
        assert got == [record], "the task itself goes on"
        shelf.last.done()
        up.finish()
        live(task)


# Back pressure, and barriers whose time is over.


def test_a_task_without_a_buffer_takes_a_snapshot_when_the_time_of_a_barrier_is_over() -> None:
    with Lab(24) as lab:
        up, down = lab.writer("up"), lab.writer("down")
        shelf = Shelf()
        reader = lab.open_input("down")
        task = lab.task(
            partial(MapOperator, bytes),
            gates=((lab.gate("up"),),),
            writers=(down,),
            checkpoints=shelf.plan(50),
        )
        fill(lab, task, up)
        waiting = down.partition.queued
        assert waiting
        up.overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        step_until(task, StepResult.IDLE)
        assert shelf.last.snapshot.barrier.unaligned
        assert down.partition.queued == waiting + 1, "a barrier needs no buffer"
        kept = shelf.last.bytes_in_flight[False, 0, 0]
        assert all(len(bundle.records[0]) == 40 for bundle in read_stream(kept))
        shelf.last.done()
        up.finish()
        take_all_but_barriers(reader)
        live(task)
        take_all_but_barriers(reader)
        reader.close()


def take_all_but_barriers(reader: Any) -> list[Any]:
    reader.on_barrier = lambda channel, event: None
    return take_all(reader)


def test_a_barrier_that_waits_in_the_output_overtakes_when_its_time_is_over() -> None:
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=50)
        desk.ups[0].emit_all([1])
        for up in desk.ups:
            up.send_barrier(BARRIER)
        desk.go_on()
        assert not desk.shelf.last.snapshot.barrier.unaligned
        assert desk.shelf.last.in_flight is None, "the barrier waits for its reader"
        lab.timers.pass_ms(50)
        desk.go_on()
        found = desk.shelf.last.bytes_in_flight[False, 0, 0]
        assert [bundle.records for bundle in read_stream(found)] == [[1, "before"]]
        assert desk.read() == [CheckpointBarrier(1, WALL_MS, unaligned=True), 1, "before"]
        desk.end()


def test_a_barrier_that_was_read_in_time_overtakes_nothing() -> None:
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=50)
        desk.ups[0].emit_all([1])
        for up in desk.ups:
            up.send_barrier(BARRIER)
        desk.go_on()
        assert desk.read() == [1, "before", BARRIER]
        assert desk.shelf.last.in_flight is None
        desk.go_on()
        assert desk.shelf.last.in_flight == []
        desk.end()


def test_a_barrier_that_waits_for_another_channel_overtakes_when_its_time_is_over() -> None:
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=50)
        desk.ups[0].send_barrier(BARRIER)
        desk.ups[0].emit_all([10])
        desk.go_on()
        assert desk.log == []
        lab.timers.pass_ms(49)
        desk.go_on()
        assert desk.log == []
        lab.timers.pass_ms(1)
        desk.go_on()
        assert desk.log == ["snapshot 1", 10], "and the channel is read again"
        desk.ups[1].emit_all([2])
        desk.go_on()
        desk.ups[1].send_barrier(BARRIER)
        desk.go_on()
        found = desk.shelf.last.bytes_in_flight
        assert read_stream(found[True, 0, 1]) == [Bundle([2])]
        desk.end()


# Checkpoints that come to nothing.


def test_an_operator_that_fails_declines_and_the_task_goes_on() -> None:
    with Lab() as lab:
        desk = Desk(lab, fails="snapshot")
        desk.ups[0].emit_all([1])
        for up in desk.ups:
            up.send_barrier(BARRIER)
        desk.go_on()
        why = "operator 'op0' failed to take a snapshot of its state: ValueError: no state today"
        assert lab.declined == [(1, why, False)]
        assert desk.shelf.written == []
        assert desk.read() == [1, "before", CancelMarker(1)], "nobody waits for a barrier"
        desk.operator.fails = ""
        for up in desk.ups:
            up.emit_all([5])
            up.send_barrier(CheckpointBarrier(2, WALL_MS))
        desk.go_on()
        assert desk.shelf.ids == [2]
        assert desk.shelf.last.snapshot.operators[0].taken.plain == b"11"
        desk.end()


def test_a_snapshot_that_fails_while_others_are_awaited_is_forgotten() -> None:
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=0, fails="snapshot")
        desk.ups[0].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        desk.go_on()
        desk.ups[1].emit_all([3])
        desk.ups[1].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        desk.go_on()
        assert [declined[0] for declined in lab.declined] == [1]
        assert desk.gate.on_arrived is None, "nothing is recorded for it"
        assert desk.log == [3]
        desk.end()


def test_who_fails_before_the_barrier_fails_the_task() -> None:
    with Lab() as lab:
        desk = Desk(lab, fails="before")
        for up in desk.ups:
            up.send_barrier(BARRIER)
        error = live(desk.task)
        assert isinstance(error, UserFunctionFailed)
        assert "failed before a checkpoint: ValueError: not now" in str(error)
        desk.reader.close()


def test_what_the_coordinator_gives_up_is_dropped_in_silence() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ups[0].send_barrier(BARRIER)
        desk.ups[0].emit_all([10])
        desk.go_on()
        abort(desk.task, 1, "too slow")
        desk.go_on()
        assert sorted(map(str, desk.log)) == ["10", "aborted 1"], "the channel is read again"
        assert lab.declined == []
        desk.ups[1].send_barrier(BARRIER)
        desk.go_on()
        assert desk.shelf.written == [], "its late barrier counts for nothing"
        desk.end()


def test_what_is_being_written_is_given_up_too() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        for up in desk.ups:
            up.send_barrier(BARRIER)
        desk.go_on()
        assert desk.shelf.last.in_flight == []
        abort(desk.task, 1, "another task has declined")
        desk.go_on()
        assert desk.shelf.last.aborted
        desk.end()


def test_a_cancel_marker_is_sent_on_and_not_declined_once_more() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ups[0].send_barrier(BARRIER)
        desk.ups[0].emit_all([10])
        desk.ups[1].broadcast_event(CancelMarker(1))
        desk.go_on()
        assert desk.log == [10]
        assert desk.read() == [CancelMarker(1), 10]
        assert lab.declined == []
        desk.end()


@pytest.mark.parametrize("when", ["at once", "later"])
def test_more_in_flight_than_the_limit_is_declined(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(
        task_module, "CheckpointedInputs", partial(CheckpointedInputs, limit_bytes=60)
    )
    with Lab() as lab:
        desk = Desk(lab, timeout_ms=0)
        many = Bundle(["r" * 70])
        if when == "at once":
            desk.task._inputs[0]._rest, desk.task._inputs[0]._channel = many, 1
        desk.ups[0].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        desk.operator.process = lambda bundle, number: desk.log.append(bundle)  # type: ignore[method-assign]
        desk.task.step()
        if when == "later":
            desk.ups[1].emit_all(many.records)
        desk.go_on()
        assert [(declined[0], declined[2]) for declined in lab.declined] == [(1, False)]
        assert "MiB of records are on their way" in lab.declined[0][1]
        assert desk.shelf.last.aborted
        assert desk.gate.on_arrived is None
        desk.ups[1].overtake(CheckpointBarrier(1, WALL_MS, unaligned=True))
        desk.go_on()
        assert desk.shelf.last.in_flight is None
        assert len(lab.declined) == 1
        desk.operator.log.clear()
        desk.end()


# Inputs that end.


def test_who_is_triggered_takes_it_when_all_its_producers_have_ended() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ups[0].finish()
        desk.ups[1].emit_all([2])
        trigger(desk.task, 1)
        desk.go_on()
        assert desk.log == [2]
        desk.ups[1].finish()
        step_until(desk.task, StepResult.IDLE)
        assert desk.log == [2, "snapshot 1"]
        assert not desk.shelf.last.snapshot.finished, "it was taken before the end was told"
        desk.end()


def test_a_cancelled_task_leaves_no_writing_behind() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        for up in desk.ups:
            up.send_barrier(BARRIER)
        desk.go_on()
        desk.task.cancel()
        desk.task.close(TaskCancelled("enough"))
        assert desk.shelf.last.aborted
        desk.shelf.last.done()
        desk.reader.close()


def test_the_time_of_commits_adds_up() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        seen_ms: list[float] = []

        def commit(checkpoint: int) -> None:
            lab.timers.pass_ms(40)
            seen_ms.append(desk.task.figures().commit_ms)

        desk.operator.checkpoint_completed = commit  # type: ignore[method-assign]
        for checkpoint in (1, 2):
            complete(desk.task, checkpoint)
            desk.go_on()
            lab.timers.pass_ms(500)
        assert seen_ms == [40, 80], "what is going on counts in"
        assert desk.task.figures().commit_ms == 80
        desk.end()


# What its operators learn.


class Noticing(Operator):
    """Writes down what it is told of checkpoints."""

    def __init__(self, log: list[str], name: str, fails_in: str = "") -> None:
        self._log = log
        self._name = name
        self._fails_in = fails_in

    def process(self, bundle: Bundle, number: int) -> None:
        self._log.append(f"{self._name} got {bundle.records}")
        self.output.collect(bundle)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self._note("before")
        self.output.collect(Bundle([self._name]))

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        self._note(f"snapshot {moment.checkpoint}")
        return OperatorSnapshot(Kept(self._log, self._name))

    def checkpoint_completed(self, checkpoint: int) -> None:
        self._note("completed")

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self._note("aborted")

    def _note(self, what: str) -> None:
        self._log.append(f"{self._name} {what}")
        if self._fails_in == what:
            raise ValueError(f"{what} of {self._name}")


class Kept:
    """Keyed state whose end is noted."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name

    def groups(self) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def close(self) -> None:
        self._log.append(f"{self._name} closed")


class TwoOperators:
    """A task with a chain of two that gets barriers."""

    def __init__(self, lab: Lab, log: list[str], a: str = "", b: str = "") -> None:
        self.up, self.shelf = lab.writer("up"), Shelf()
        self.task = lab.task(
            lambda: Noticing(log, "a", a),
            lambda: Noticing(log, "b", b),
            gates=((lab.gate("up"),),),
            checkpoints=self.shelf.plan(),
        )
        step_until(self.task, StepResult.IDLE)

    def barrier(self, checkpoint: int) -> None:
        self.up.send_barrier(CheckpointBarrier(checkpoint, WALL_MS))
        step_until(self.task, StepResult.IDLE)

    def end(self) -> None:
        self.up.finish()
        for writing in self.shelf.written:
            writing.done()
        live(self.task)


def test_what_is_sent_before_a_barrier_reaches_the_next_one_before_its_own() -> None:
    log: list[str] = []
    with Lab() as lab:
        both = TwoOperators(lab, log)
        both.barrier(4)
        assert log[:3] == ["a before", "b got ['a']", "b before"]
        assert log[3:] == ["a snapshot 4", "b snapshot 4"]
        assert [each.uid for each in both.shelf.last.snapshot.operators] == ["uid0", "uid1"]
        both.end()


def test_snapshots_are_taken_of_all_operators_or_of_none() -> None:
    log: list[str] = []
    with Lab() as lab:
        both = TwoOperators(lab, log, b="snapshot 4")
        both.barrier(4)
        [(checkpoint, reason, subsumed)] = lab.declined
        assert (checkpoint, subsumed) == (4, False)
        assert "'op1' failed to take a snapshot of its state" in reason
        assert log[3:] == ["a snapshot 4", "b snapshot 4", "a closed"]
        both.end()


def abort_it(task: Task, checkpoint: int) -> None:
    abort(task, checkpoint, "no room")


@pytest.mark.parametrize(("what", "say"), [("completed", complete), ("aborted", abort_it)])
def test_all_operators_learn_how_a_checkpoint_ended(what: str, say: Callable[..., None]) -> None:
    log: list[str] = []
    with Lab() as lab:
        both = TwoOperators(lab, log)
        say(both.task, 4)
        step_until(both.task, StepResult.IDLE)
        assert log == [f"a {what}", f"b {what}"]
        both.end()
    with Lab() as lab:
        failing = TwoOperators(lab, log, a=what)
        say(failing.task, 4)
        failing.up.finish()
        error = live(failing.task)
        assert "operator 'op0' failed after checkpoint 4 was" in str(error)
