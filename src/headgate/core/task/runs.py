"""The runs of a job in one task manager: orders of the driver, one run after the other.

Both the worker and the simulator obey through this machine. Law: nothing of a run begins before all
tasks of the last one have ended; orders of other runs are ignored, those of the next one are held
until it begins; an order that cannot be carried out fails the tasks that it concerns.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeAlias, TypeVar

from headgate.base.errors import TaskCancelled
from headgate.base.messages import (
    Address,
    Cancel,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
    Deploy,
    Failure,
    ForTasks,
    OfRun,
    Placed,
    SourceTimeAnnounced,
    SourceTimeReported,
    SplitsAssigned,
    SplitsWanted,
    TaskChanged,
    TaskOrder,
    TaskState,
    TimeReported,
)
from headgate.core.task.task import TaskListener

Report: TypeAlias = (
    TaskChanged
    | TimeReported
    | SplitsWanted
    | SourceTimeReported
    | CheckpointDeclined
    | CheckpointWanted
)
"""What the driver is told of tasks."""


class ObedientTask(Protocol):
    """A task, as far as it takes orders."""

    @property
    def id(self) -> str: ...

    def obey(self, order: ForTasks) -> str:
        """Why it cannot, or nothing."""


class RunTask(Protocol):
    """A deployed task, as far as it takes orders."""

    @property
    def task(self) -> ObedientTask: ...


class RunTasks(Protocol):
    """The tasks of one run; see ``DeployedTasks``."""

    def deploy(self, orders: Sequence[TaskOrder], places: Mapping[str, Address | None]) -> None: ...

    def placed(self, producer: str, address: Address | None) -> None: ...

    @property
    def tasks(self) -> Sequence[RunTask]: ...

    @property
    def inside(self) -> Callable[[], AbstractContextManager[object]]:
        """Takes the baton; orders are given with it."""

    def cancel(self) -> None: ...


Tasks = TypeVar("Tasks", bound=RunTasks)


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A task has reached another state."""

    run: str
    task: str
    state: TaskState
    error: BaseException | None


class RunServices(Protocol[Tasks]):
    """What the process of a task manager does for it."""

    def begin_run(self, order: Deploy, listener: TaskListener) -> Tasks:
        """The first order of a run has come; its tasks are deployed next."""

    def end_run(self, tasks: Tasks) -> bool:
        """All tasks have told their end: let go of what they have left.

        False: some of it cannot be ended, and no other run can begin.
        """

    def send(self, report: Report) -> None:
        """To the driver, in order; from any thread."""

    def post(self, report: TaskReported) -> None:
        """Let ``TaskRuns.reported`` be called soon; from any thread."""

    def describe(self, error: BaseException) -> Failure: ...

    def order_failed(self, error: Exception) -> None:
        """An order cannot be carried out; its tasks are about to fail."""

    def task_ended(self) -> None:
        """Send what is to come before the last word of a task."""


class TaskRuns(Generic[Tasks]):
    """The runs of one task manager; called by one thread at a time, outside the baton."""

    def __init__(self, services: RunServices[Tasks], cancel_ms: float) -> None:
        """``cancel_ms``: how long the user's code has to come back after a cancellation."""
        self.run = ""
        self.tasks: Tasks | None = None
        """The tasks of the present run; None: none is deployed."""
        self.open: dict[str, TaskState] = {}
        """Tasks that have not ended."""
        self.stuck_at_ms: float | None = None
        """When tasks that are still open will have been cancelled for too long."""
        self.leaving = False
        """No other run follows."""
        self._services = services
        self._cancel_ms = cancel_ms
        self._next_run = ""
        self._held: list[OfRun] = []  # for the next run, while tasks of this one are ending

    def received(self, order: OfRun, now_ms: float) -> None:
        """The driver wants something."""
        if isinstance(order, Deploy) and order.run not in (self.run, self._next_run):
            self._next_run, self._held = order.run, [order]
            if self.open:
                self.cancel(now_ms)
        elif order.run == self._next_run:
            self._held.append(order)
        elif order.run == self.run:
            self._carry_out(order, now_ms)
        self._begin_next(now_ms)

    def reported(self, report: TaskReported, now_ms: float) -> None:
        """A task has told its state."""
        if report.run == self.run:
            self._tell(report.task, report.state, report.error)
        self._begin_next(now_ms)

    def leave(self, within_ms: float, now_ms: float) -> None:
        """The last run is over, or its driver is gone."""
        self.leaving = True
        if self.open:
            self._cancel(within_ms, now_ms)

    def cancel(self, now_ms: float) -> None:
        """The tasks of the present run shall end."""
        self._cancel(self._cancel_ms, now_ms)

    def is_stuck(self, now_ms: float) -> bool:
        """Whether tasks do not come back from the user's code."""
        return self.stuck_at_ms is not None and bool(self.open) and now_ms >= self.stuck_at_ms

    # One run after the other.

    def _begin_next(self, now_ms: float) -> None:
        if not self._next_run or self.open or self.leaving:
            return
        last, self.tasks = self.tasks, None
        if last is not None and not self._services.end_run(last):
            return
        self.run, self._next_run = self._next_run, ""
        self.stuck_at_ms = None
        held, self._held = self._held, []
        for order in held:
            self._carry_out(order, now_ms)

    # Orders.

    def _carry_out(self, order: OfRun, now_ms: float) -> None:
        tasks = self.tasks
        match order:
            case Deploy():
                self._guard(lambda: self._deploy(order), [task.id for task in order.tasks])
            case Cancel(_, _, is_patient):
                self._cancel(inf if is_patient else self._cancel_ms, now_ms)
            case _ if tasks is None:
                pass
            case Placed():
                if self.stuck_at_ms is None:
                    self._guard(lambda: _place(tasks, order), list(self.open))
            case _:
                self._hand_on(tasks, order)

    def _deploy(self, order: Deploy) -> None:
        self.open |= dict.fromkeys((task.id for task in order.tasks), TaskState.DEPLOYING)
        if self.tasks is None:
            self.tasks = self._services.begin_run(order, _Listener(order.run, self._services))
        self.tasks.deploy(order.tasks, order.places)

    def _hand_on(self, tasks: Tasks, order: ForTasks) -> None:
        """To the task that the order names, or to all of them."""
        name = ""
        if isinstance(order, CheckpointTriggered | SplitsAssigned | SourceTimeAnnounced):
            name = order.task
        with tasks.inside():
            found = [each.task for each in tasks.tasks if name in ("", each.task.id)]
            problems = [task.obey(order) for task in found]
        if isinstance(order, CheckpointTriggered):
            problem = problems[0] if problems else f"task {order.task} is not here"
            if problem:
                declined = CheckpointDeclined(order.run, order.checkpoint, order.task, problem)
                self._services.send(declined)

    def _cancel(self, within_ms: float, now_ms: float) -> None:
        deadline_ms = now_ms + within_ms
        self.stuck_at_ms = min(deadline_ms, self.stuck_at_ms or deadline_ms)
        if self.tasks is not None:
            self.tasks.cancel()

    def _guard(self, act: Callable[[], None], tasks: Sequence[str]) -> None:
        try:
            act()
        except Exception as error:
            state = TaskState.CANCELLED if isinstance(error, TaskCancelled) else TaskState.FAILED
            if state is TaskState.FAILED:
                self._services.order_failed(error)
            for task in tasks:
                self._tell(task, state, error)

    def _tell(self, task: str, state: TaskState, error: BaseException | None) -> None:
        if task not in self.open:
            return
        self.open[task] = state
        if state.has_ended:
            del self.open[task]
            self._services.task_ended()
        failure = None
        if error is not None and state is TaskState.FAILED:
            failure = self._services.describe(error)
        self._services.send(TaskChanged(self.run, task, state, failure))


class _Listener:
    """Tells the driver what the tasks of one run report."""

    def __init__(self, run: str, services: RunServices[Tasks]) -> None:
        self._run = run
        self._send = services.send
        self._post = services.post

    def state_changed(self, task: str, state: TaskState, error: BaseException | None) -> None:
        self._post(TaskReported(self._run, task, state, error))

    def time_reported(self, task: str, group: str, watermark_ms: int | None) -> None:
        self._send(TimeReported(self._run, task, group, watermark_ms))

    def splits_wanted(self, task: str, count: int, held: int) -> None:
        self._send(SplitsWanted(self._run, task, count, held))

    def source_time_reported(
        self, task: str, received: int, watermark_ms: int, rests: bool
    ) -> None:
        self._send(SourceTimeReported(self._run, task, received, watermark_ms, rests))

    def checkpoint_declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        self._send(CheckpointDeclined(self._run, checkpoint, task, reason, subsumed))

    def checkpoint_wanted(self, task: str) -> None:
        self._send(CheckpointWanted(self._run, task))


def _place(tasks: RunTasks, order: Placed) -> None:
    for producer, address in order.places.items():
        tasks.placed(producer, address)
