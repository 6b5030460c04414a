"""Runs follow each other in a task manager; orders of the wrong run do nothing."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.checkpoints import CheckpointOptions
from headgate.base.errors import TaskCancelled
from headgate.base.messages import (
    Address,
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
    Deploy,
    Failure,
    Placed,
    SourceTimeAnnounced,
    SplitsAssigned,
    TaskChanged,
    TaskOrder,
    TaskState,
    TimeAnnounced,
    TimeReported,
)
from headgate.core.task.runs import Report, TaskReported, TaskRuns
from headgate.core.task.task import TaskListener

CANCEL_MS = 100
OPTIONS = CheckpointOptions(1000)
UNFIT = CheckpointTriggered("r1", "a", 9, OPTIONS)
FOR_ALL = (
    TimeAnnounced("r1", "group", 5),
    CheckpointCompleted("r1", 3),
    CheckpointAborted("r1", 4, "why"),
)
FOR_ONE = (
    CheckpointTriggered("r1", "a", 3, OPTIONS),
    SplitsAssigned("r1", "a", (), False, True),
    SourceTimeAnnounced("r1", "a", 5, False, False),
)


@dataclass
class NotedTask:
    """See ``RunTask`` and ``ObedientTask``: notes what it is ordered."""

    id: str
    noted: list[Any]

    @property
    def task(self) -> "NotedTask":
        return self

    def obey(self, order: Any) -> str:
        self.noted.append((self.id, order))
        return f"task {self.id} is cancelled" if order == UNFIT else ""


class NotedTasks:
    """See ``RunTasks``: notes what it is told."""

    def __init__(self, run: str, listener: TaskListener, error: Exception | None) -> None:
        self.run = run
        self.listener = listener
        self.error = error
        self.noted: list[Any] = []
        self.tasks: list[NotedTask] = []
        self.inside = nullcontext

    def deploy(self, orders: Sequence[TaskOrder], places: Mapping[str, Address | None]) -> None:
        if self.error is not None:
            raise self.error
        self.noted.append(("deploy", [order.id for order in orders]))
        self.tasks += [NotedTask(order.id, self.noted) for order in orders]

    def placed(self, producer: str, address: Address | None) -> None:
        if self.error is not None:
            raise self.error
        self.noted.append(("placed", producer))

    def cancel(self) -> None:
        self.noted.append("cancel")


class Process:
    """See ``RunServices``: the process that the machine runs in."""

    def __init__(self) -> None:
        self.begun: list[NotedTasks] = []
        self.ended: list[NotedTasks] = []
        self.sent: list[Report] = []
        self.posted: list[TaskReported] = []
        self.failed: list[Exception] = []
        self.error: Exception | None = None
        self.can_end = True
        self.runs: TaskRuns[NotedTasks] = TaskRuns(self, CANCEL_MS)
        self.now_ms = 0.0

    def begin_run(self, order: Deploy, listener: TaskListener) -> NotedTasks:
        assert not self.begun or self.begun[-1] in self.ended, "the last run is not over"
        self.begun.append(NotedTasks(order.run, listener, self.error))
        return self.begun[-1]

    def end_run(self, tasks: NotedTasks) -> bool:
        assert not self.runs.open, "tasks are left"
        self.ended.append(tasks)
        return self.can_end

    def send(self, report: Report) -> None:
        self.sent.append(report)

    def post(self, report: TaskReported) -> None:
        self.posted.append(report)

    def describe(self, error: BaseException) -> Failure:
        return Failure(type(error).__name__, str(error))

    def order_failed(self, error: Exception) -> None:
        self.failed.append(error)

    def task_ended(self) -> None:
        self.sent.append(CheckpointWanted("figures", "of all"))

    # What the driver and the tasks do.

    def order(self, *orders: Any) -> None:
        for order in orders:
            self.runs.received(order, self.now_ms)

    def ends(self, run: str, *tasks: str) -> None:
        for task in tasks:
            self.runs.reported(TaskReported(run, task, TaskState.FINISHED, None), self.now_ms)

    def changes(self) -> list[tuple[str, str, str]]:
        return [(m.run, m.task, m.state.value) for m in self.sent if isinstance(m, TaskChanged)]


def deploy(run: str, *tasks: str) -> Deploy:
    orders = [TaskOrder(task, 0, number, 0) for number, task in enumerate(tasks)]
    return Deploy(run, "job", 0, {}, orders, {}, b"code")


@pytest.fixture
def process() -> Process:
    return Process()


def test_orders_of_a_run_reach_its_tasks(process: Process) -> None:
    process.order(
        deploy("r1", "a"),
        deploy("r1", "b"),
        Placed("r1", {"c": None}),
        *FOR_ALL,
        *FOR_ONE,
        Cancel("r1", "why"),
    )
    (tasks,) = process.begun
    assert tasks.noted == [
        ("deploy", ["a"]),
        ("deploy", ["b"]),
        ("placed", "c"),
        *((task, order) for order in FOR_ALL for task in ("a", "b")),
        *(("a", order) for order in FOR_ONE),
        "cancel",
    ]
    assert process.runs.open == {"a": TaskState.DEPLOYING, "b": TaskState.DEPLOYING}
    assert process.sent == []


def test_orders_of_other_runs_do_nothing(process: Process) -> None:
    process.order(
        Placed("r0", {"c": None}),
        Cancel("r0", "why"),
        deploy("r1", "a"),
        Cancel("r0", "why"),
        CheckpointTriggered("r0", "nobody", 3, OPTIONS),
    )
    assert process.begun[0].noted == [("deploy", ["a"])]
    assert process.sent == [] and process.runs.stuck_at_ms is None


def test_a_new_run_waits_for_the_tasks_of_the_last_one(process: Process) -> None:
    process.order(deploy("r1", "a", "b"))
    process.order(deploy("r2", "a"), Placed("r2", {"c": None}), CheckpointCompleted("r1", 3))
    assert [tasks.run for tasks in process.begun] == ["r1"]
    assert process.begun[0].noted[1:] == [
        "cancel",
        ("a", CheckpointCompleted("r1", 3)),
        ("b", CheckpointCompleted("r1", 3)),
    ]
    process.ends("r1", "a")
    assert not process.ended
    process.ends("r1", "b")
    assert [tasks.run for tasks in process.ended] == ["r1"]
    assert process.begun[1].noted == [("deploy", ["a"]), ("placed", "c")]
    assert process.runs.stuck_at_ms is None, "it has all its time again"
    process.ends("r1", "a")  # late, and of the other run
    assert process.runs.open == {"a": TaskState.DEPLOYING}


def test_no_run_follows_one_that_cannot_be_ended(process: Process) -> None:
    process.can_end = False
    process.order(deploy("r1", "a"), deploy("r2", "a"))
    process.ends("r1", "a")
    assert len(process.begun) == len(process.ended) == 1
    assert process.runs.tasks is None


def test_a_task_that_cannot_begin_a_checkpoint_declines_it(process: Process) -> None:
    process.order(deploy("r1", "a"), CheckpointTriggered("r1", "x", 3, OPTIONS), UNFIT)
    assert process.sent == [
        CheckpointDeclined("r1", 3, "x", "task x is not here"),
        CheckpointDeclined("r1", 9, "a", "task a is cancelled"),
    ]


def test_figures_come_before_the_last_word_of_a_task(process: Process) -> None:
    process.order(deploy("r1", "a"))
    process.runs.reported(TaskReported("r1", "a", TaskState.RUNNING, None), 0)
    error = ValueError("why")
    process.runs.reported(TaskReported("r1", "a", TaskState.FAILED, error), 0)
    process.runs.reported(TaskReported("r1", "a", TaskState.FAILED, error), 0)
    assert process.sent == [
        TaskChanged("r1", "a", TaskState.RUNNING),
        CheckpointWanted("figures", "of all"),
        TaskChanged("r1", "a", TaskState.FAILED, Failure("ValueError", "why")),
    ]


def test_only_a_task_that_has_failed_tells_why(process: Process) -> None:
    process.order(deploy("r1", "a"))
    report = TaskReported("r1", "a", TaskState.CANCELLED, ValueError("late"))
    process.runs.reported(report, 0)
    assert process.sent[-1] == TaskChanged("r1", "a", TaskState.CANCELLED)


@pytest.mark.parametrize(
    ("error", "state"),
    [(ValueError("why"), TaskState.FAILED), (TaskCancelled("why"), TaskState.CANCELLED)],
)
def test_an_order_that_cannot_be_carried_out_ends_its_tasks(
    process: Process, error: Exception, state: TaskState
) -> None:
    process.error = error
    process.order(deploy("r1", "a", "b"))
    assert process.changes() == [("r1", "a", state.value), ("r1", "b", state.value)]
    assert process.failed == ([error] if state is TaskState.FAILED else [])
    assert not process.runs.open


def test_a_place_that_cannot_be_used_ends_all_tasks_but_not_in_a_cancelled_run(
    process: Process,
) -> None:
    process.order(deploy("r1", "a"))
    process.begun[0].error = ValueError("why")
    process.order(Placed("r1", {"c": None}))
    assert process.changes() == [("r1", "a", "failed")]
    process.order(deploy("r2", "a"), Cancel("r2", "why"))
    process.begun[1].error = ValueError("why")
    process.order(Placed("r2", {"c": None}))
    assert len(process.changes()) == 1


def test_user_code_has_all_the_time_after_a_patient_cancellation(process: Process) -> None:
    process.order(deploy("r1", "a"), Cancel("r1", "enough", is_patient=True))
    assert process.begun[0].noted[-1] == "cancel"
    assert not process.runs.is_stuck(1e12)
    process.order(Cancel("r1", "why"))
    assert not process.runs.is_stuck(99)
    assert process.runs.is_stuck(100)


def test_user_code_has_a_while_to_come_back_after_the_first_cancellation(
    process: Process,
) -> None:
    process.order(deploy("r1", "a"), Cancel("r1", "why"))
    process.now_ms = 50
    process.order(Cancel("r1", "again"))
    assert not process.runs.is_stuck(99)
    assert process.runs.is_stuck(100)
    process.runs.leave(20, 60)
    assert process.runs.is_stuck(80)
    process.ends("r1", "a")
    assert not process.runs.is_stuck(200), "nobody is left"


def test_who_leaves_cancels_and_begins_nothing_more(process: Process) -> None:
    process.order(deploy("r1", "a"))
    process.runs.leave(20, 0)
    assert process.begun[0].noted[-1] == "cancel"
    process.order(deploy("r2", "a"))
    process.ends("r1", "a")
    assert len(process.begun) == 1 and process.runs.leaving


def test_tasks_report_under_the_name_of_their_run(process: Process) -> None:
    process.order(deploy("r/1", "3.1"))
    listener = process.begun[0].listener
    listener.checkpoint_declined("3.1", 4, "too much", False)
    listener.checkpoint_declined("3.1", 3, "newer", True)
    listener.checkpoint_wanted("3.1")
    listener.time_reported("3.1", "group", 7)
    listener.state_changed("3.1", TaskState.RUNNING, None)
    assert process.sent == [
        CheckpointDeclined("r/1", 4, "3.1", "too much"),
        CheckpointDeclined("r/1", 3, "3.1", "newer", True),
        CheckpointWanted("r/1", "3.1"),
        TimeReported("r/1", "3.1", "group", 7),
    ]
    assert process.posted == [TaskReported("r/1", "3.1", TaskState.RUNNING, None)]


class RunsTwin(RuleBasedStateMachine):
    """Runs come and their tasks end in any order; messages of all of them are mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.process = Process()
        self.newest = 0
        self.living: list[tuple[str, str]] = []

    @rule(tasks=st.integers(1, 3), is_new=st.booleans())
    def tasks_are_deployed(self, tasks: int, is_new: bool) -> None:
        self.newest += is_new or not self.newest
        run = f"r{self.newest}"
        names = [f"{len(self.living)}.{number}" for number in range(tasks)]
        self.living += [(run, name) for name in names]
        self.process.order(deploy(run, *names))

    @rule(back=st.integers(0, 2), what=st.sampled_from(["cancel", "place", "complete"]))
    def an_order_comes(self, back: int, what: str) -> None:
        run = f"r{self.newest - back}"
        orders = {
            "cancel": Cancel(run, "why"),
            "place": Placed(run, {"p": None}),
            "complete": CheckpointCompleted(run, 1),
        }
        self.process.order(orders[what])

    @precondition(lambda self: self.process.runs.open)
    @rule(data=st.data())
    def a_task_ends(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.process.runs.open)))
        self.process.ends(self.process.runs.run, task)

    @rule()
    def a_report_comes_late(self) -> None:
        self.process.ends(f"r{self.newest - 2}", "0.0")

    @invariant()
    def runs_do_not_overlap(self) -> None:
        process = self.process
        assert process.ended == process.begun[: len(process.ended)]
        assert len(process.begun) - len(process.ended) <= 1
        if process.runs.tasks is not None:
            assert process.runs.tasks is process.begun[-1]
            assert process.runs.tasks.run == process.runs.run

    @invariant()
    def each_task_ends_once(self) -> None:
        ended = [change for change in self.process.changes() if change[2] == "finished"]
        assert len(ended) == len(set(ended))


TestRunsTwin = RunsTwin.TestCase
