"""How a task serves an operator that waits for asynchronous calls: by mail, or in a wait."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.async_calls import AsyncWork, BatchWork
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.core.task.task import StepResult, Task
from tests.core.operators.kit import NumberAndSquare, ScriptedCalls
from tests.core.task.kit import Lab, live, step_until


class Waiting:
    """A task with an async operator between two partitions; ``wait`` is the test's."""

    def __init__(self, lab: Lab, capacity: int = 4) -> None:
        self.lab = lab
        self.up, down = lab.writer("up"), lab.writer("down")
        operator = lambda: AsyncWaitOperator(NumberAndSquare(), 1000, capacity, True)  # noqa: E731
        self.task: Task = lab.task(operator, gates=((lab.gate("up"),),), writers=(down,))
        self.task._operator_mail._start_calls = self._start
        self.task._operator_mail._wait = self._wait
        self.reader = lab.open_input("down")
        self.calls: ScriptedCalls
        self.waited: list[list[Any]] = []

    def _start(self, work: AsyncWork | BatchWork, completed: Callable[[], None]) -> ScriptedCalls:
        self.calls = ScriptedCalls(work, completed)
        return self.calls

    def _wait(self, ready: Callable[[], bool]) -> None:
        assert not self.lab.loan.lent, "waits are inside the baton"
        self.waited.append(self.read())
        self.calls.end()
        assert ready()

    def read(self) -> list[Any]:
        found = []
        while isinstance(taken := self.reader.take(99), Bundle):
            found += taken.records
        return found

    def close(self) -> None:
        self.reader.close()


def test_ends_are_mailed_once_until_the_mail_was_read() -> None:
    with Lab() as lab:
        waiting = Waiting(lab)
        waiting.up.emit_all([1, 2])
        step_until(waiting.task, StepResult.IDLE)
        waiting.calls.end()
        woken = lab.woken
        waiting.calls.completed()
        waiting.calls.completed()
        assert lab.woken == woken + 2, "who waits is woken each time"
        assert waiting.read() == []
        assert waiting.task.step() is StepResult.MORE
        assert waiting.read() == ["r1"], "what a mail has sent leaves with it"
        assert waiting.task.step() is StepResult.IDLE
        waiting.calls.end()
        waiting.calls.completed()
        waiting.up.finish()
        assert live(waiting.task) is None
        assert waiting.read() == ["r2"]
        waiting.close()


def test_what_was_sent_leaves_before_the_task_waits_for_room() -> None:
    with Lab() as lab:
        waiting = Waiting(lab, capacity=1)
        waiting.up.emit_all([1])
        step_until(waiting.task, StepResult.IDLE)
        waiting.up.emit_all([2, 3])
        waiting.up.finish()
        assert live(waiting.task) is None
        # Before the first wait nothing was there; before the next one the first result had gone.
        assert waiting.waited == [[], ["r1"], ["r2"]]
        assert waiting.read() == ["r3"]
        waiting.close()


def test_an_error_in_a_mail_names_the_operator() -> None:
    with Lab() as lab:
        waiting = Waiting(lab)
        waiting.up.emit_all([1])
        step_until(waiting.task, StepResult.IDLE)
        waiting.calls.end(0, ValueError("no"))
        waiting.calls.completed()
        error = live(waiting.task)
        assert isinstance(error, UserFunctionFailed)
        assert str(error) == "operator 'op0' failed: ValueError: no"
        assert waiting.calls.closed == 1
        waiting.up.finish()
        waiting.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_by_default_calls_are_made_at_once(ordered: bool) -> None:
    with Lab() as lab:
        up, down = lab.writer("up"), lab.writer("down")
        operator = lambda: AsyncWaitOperator(NumberAndSquare(), 1000, 1, ordered)  # noqa: E731
        task = lab.task(operator, gates=((lab.gate("up"),),), writers=(down,))
        reader = lab.open_input("down")
        up.emit_all([2, 3])
        up.finish()
        assert live(task) is None
        found = []
        while isinstance(taken := reader.take(99), Bundle):
            found += taken.records
        assert found == [2, 4, 3, 9]
        reader.close()
