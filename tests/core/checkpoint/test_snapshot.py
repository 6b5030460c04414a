"""The port to the storage: one ``done`` for each snapshot, then it is closed, or at the end."""

from collections.abc import Iterator

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import TaskCancelled
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.task.task import StepResult
from headgate.functions.context import SnapshotMoment
from tests.core.task.kit import Lab, Shelf, abort, live, step_until, trigger


class Kept:
    """Keyed state of a moment."""

    def __init__(self, lab: Lab) -> None:
        self.closed = 0
        self._lab = lab

    def groups(self) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def close(self) -> None:
        self.closed += 1


class Keeping(Operator):
    """Leaves keyed state in each snapshot."""

    def __init__(self, lab: Lab, kept: list[Kept]) -> None:
        self._lab = lab
        self._kept = kept

    def process(self, bundle: Bundle, number: int) -> None:
        pass

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        assert self._lab.loan.lent, "user code runs outside"
        self._kept.append(Kept(self._lab))
        return OperatorSnapshot(self._kept[-1])


@pytest.mark.parametrize("given_up", [True, False])
def test_a_snapshot_is_closed_when_its_writing_has_ended_however(given_up: bool) -> None:
    kept: list[Kept] = []
    with Lab() as lab:
        up, shelf = lab.writer("up"), Shelf()
        task = lab.task(
            lambda: Keeping(lab, kept), gates=((lab.gate("up"),),), checkpoints=shelf.plan()
        )
        up.finish()
        trigger(task, 1)
        step_until(task, StepResult.IDLE)
        assert kept[0].closed == 0
        if given_up:
            abort(task, 1, "no room")
            step_until(task, StepResult.IDLE)
            assert kept[0].closed == 0, "somebody may still read it"
        shelf.last.done()
        assert kept[0].closed == 0, "on the task's thread"
        assert live(task) is None
        assert kept[0].closed == 1


def test_a_task_that_fails_does_not_wait_for_the_storage() -> None:
    kept: list[Kept] = []
    with Lab() as lab:
        lab.writer("up")
        shelf = Shelf()
        task = lab.task(
            lambda: Keeping(lab, kept), gates=((lab.gate("up"),),), checkpoints=shelf.plan(0)
        )
        step_until(task, StepResult.IDLE)
        trigger(task, 1)
        step_until(task, StepResult.IDLE)
        task.close(TaskCancelled("enough"))
        assert shelf.last.aborted
        assert kept[0].closed == 1
        shelf.last.done()
        assert kept[0].closed == 1
