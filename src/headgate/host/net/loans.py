"""How a task's thread shares the baton: lent while the user's code runs, kept while it waits."""

from collections.abc import Callable

from headgate.core.task.task import Task
from headgate.host.net.baton import Baton, Turn
from headgate.host.net.runner import TaskThread


class BatonLoan:
    """Lends the baton of a task's thread while its user's code runs."""

    __slots__ = ("_baton", "_lent", "_turn")

    def __init__(self, baton: Baton, turn: Turn) -> None:
        self._baton = baton
        self._turn = turn
        self._lent = False

    def lend(self) -> None:
        self._baton.lend(self._turn)
        self._lent = True

    def regain(self) -> None:
        if self._lent:
            self._lent = False
            self._baton.regain(self._turn)


class BufferWaits:
    """How a task's writers wait for a buffer, with the task told that it is back-pressured."""

    def __init__(self, seat: TaskThread) -> None:
        self.seat = seat
        self.task: Task | None = None

    def wait(self, ready: Callable[[], bool]) -> None:
        task = self.task
        if task is None:
            self.seat.wait(ready)
            return
        task.waiting_for_buffer(True)
        try:
            self.seat.wait(ready)
        finally:
            task.waiting_for_buffer(False)
