"""One attempt of a run: tasks from deployment to end, splits, checkpoints, the start in time.

Law: a task never goes back to an earlier state. Reports on a task before its deployment or after
its end are ignored, and so are reports of another attempt.

Watermark alignment: sources of a group that are ahead wait for the others. Law: what is announced
is the least watermark of the tasks of the group that have reported, are not idle and have not
ended; None if there are none. It is announced when it changes, to every slot with a task of the
group, and to the slot of a task that has reported for the first time. Nothing is announced before
all tasks of the run have started: the slowest may be among those to come.
"""

from dataclasses import dataclass, field
from typing import Final

from headgate.base.messages import (
    Deploy,
    Placed,
    SourceTimeAnnounced,
    SourceTimeReported,
    SplitsAssigned,
    SplitsWanted,
    TaskState,
    TimeAnnounced,
)
from headgate.control.deployment import RunPlan, TaskPlacement
from headgate.control.recovery import Recovery
from headgate.control.split_assignment import SplitAssignment


@dataclass(slots=True)
class _Group:
    slots: dict[str, int] = field(default_factory=dict)  # of each task
    reached_ms: dict[str, int | None] = field(default_factory=dict)  # None: it is idle
    announced_ms: int | None = None

    @property
    def least_ms(self) -> int | None:
        counting = [reached for reached in self.reached_ms.values() if reached is not None]
        return min(counting, default=None)


class WatermarkAlignment:
    """Takes the reports of source tasks; answers with announcements for their slots."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._groups: dict[str, _Group] = {}
        self._begun = False

    def all_started(self) -> list[tuple[int, TimeAnnounced]]:
        """Every task of the run is there, and has reported if it is aligned."""
        self._begun = True
        messages: list[tuple[int, TimeAnnounced]] = []
        for group, members in self._groups.items():
            members.announced_ms = members.least_ms
            messages += self._messages(group, members)
        return messages

    def reported(
        self, group: str, task: str, slot: int, watermark_ms: int | None
    ) -> list[tuple[int, TimeAnnounced]]:
        """A task has reached this watermark; None: it is idle and holds nobody back."""
        members = self._groups.setdefault(group, _Group())
        is_known = task in members.slots
        members.slots[task] = slot
        members.reached_ms[task] = watermark_ms
        messages = self._announce(group, members)
        if messages or is_known or not self._begun:
            return messages
        return [(slot, TimeAnnounced(self._run, group, members.announced_ms))]

    def ended(self, task: str) -> list[tuple[int, TimeAnnounced]]:
        """A task has ended, in whatever way; it holds nobody back any more."""
        messages: list[tuple[int, TimeAnnounced]] = []
        for group, members in self._groups.items():
            members.slots.pop(task, None)
            if members.reached_ms.pop(task, None) is not None:
                messages += self._announce(group, members)
        return messages

    def _announce(self, group: str, members: _Group) -> list[tuple[int, TimeAnnounced]]:
        if not self._begun or members.least_ms == members.announced_ms:
            return []
        members.announced_ms = members.least_ms
        return self._messages(group, members)

    def _messages(self, group: str, members: _Group) -> list[tuple[int, TimeAnnounced]]:
        message = TimeAnnounced(self._run, group, members.announced_ms)
        return [(slot, message) for slot in dict.fromkeys(members.slots.values())]


FIRST_REMINDER_MS: Final = 60_000
NEXT_REMINDER_MS: Final = 300_000


class Attempt:
    """Tasks, their placement, watermark alignment and checkpoints of one attempt."""

    def __init__(self, plan: RunPlan, recovery: Recovery | None) -> None:
        assert plan.tasks, "a job without tasks"
        self.plan = plan
        self.states = {task.id: TaskState.CREATED for task in plan.tasks}
        self.tasks = {task.id: task for task in plan.tasks}
        self.placement = TaskPlacement(plan)
        self.alignment = WatermarkAlignment(plan.run)
        self.splits = [SplitAssignment(plan.run, source) for source in plan.sources]
        self.checkpoints = (
            recovery.checkpoints(
                plan.run,
                plan.checkpointed,
                lambda: tuple(splits.state() for splits in self.splits),
            )
            if recovery is not None and plan.checkpointed is not None
            else None
        )

    # Tasks.

    def state_of(self, run: str, task: str) -> TaskState | None:
        """State of a task that is deployed and has not ended; None: reports on it are ignored."""
        state = self.states.get(task) if run == self.plan.run else None
        return None if state is None or state is TaskState.CREATED or state.has_ended else state

    @property
    def has_finished(self) -> bool:
        """Whether all tasks have."""
        return all(state is TaskState.FINISHED for state in self.states.values())

    @property
    def is_clean(self) -> bool:
        """Whether every task that was deployed has ended."""
        return all(state is TaskState.CREATED or state.has_ended for state in self.states.values())

    @property
    def has_started(self) -> bool:
        """Whether all tasks are past their deployment, or will be by themselves."""
        waiting = [TaskState.DEPLOYING]
        if not self.plan.batch:  # there, later tasks are deployed when earlier ones have finished
            waiting.append(TaskState.CREATED)
        return self.placement.is_complete and not any(
            state in waiting for state in self.states.values()
        )

    @property
    def starting(self) -> list[str]:
        """Tasks that were deployed and do not run yet."""
        return [task for task, state in self.states.items() if state is TaskState.DEPLOYING]

    def deployed(self, orders: list[tuple[int, Deploy | Placed]]) -> None:
        """These orders are sent."""
        for _, order in orders:
            if isinstance(order, Deploy):
                self.states.update((task.id, TaskState.DEPLOYING) for task in order.tasks)

    def lost(self, slot: int) -> None:
        """The tasks of a slot are gone with its task manager."""
        for task in self.plan.tasks:
            if task.slot == slot and self.state_of(self.plan.run, task.id) is not None:
                self.states[task.id] = TaskState.FAILED

    # Splits.

    def assignment_of(self, run: str, uid: str) -> SplitAssignment | None:
        """The assignment of a source of this attempt; None: there is none."""
        if run != self.plan.run:
            return None
        return next((splits for splits in self.splits if splits.source.uid == uid), None)

    def splits_wanted(self, wanted: SplitsWanted) -> list[tuple[int, SplitsAssigned]]:
        """A task has opened, or wants more splits; what is to be sent."""
        splits = self._splits_of(wanted.run, wanted.task)
        return [] if splits is None else splits.wanted(wanted.task, wanted.count, wanted.held)

    def source_time_reported(
        self, report: SourceTimeReported
    ) -> list[tuple[int, SourceTimeAnnounced]]:
        """A task of a source has moved on, or has nothing to read; what is to be sent."""
        splits = self._splits_of(report.run, report.task)
        return [] if splits is None else splits.time_reported(report)

    def source_task_ended(self, task: str) -> list[tuple[int, SourceTimeAnnounced]]:
        """A task has ended, in whatever way; what is to be sent to others of its source."""
        return [message for splits in self.splits for message in splits.task_ended(task)]

    def _splits_of(self, run: str, task: str) -> SplitAssignment | None:
        """The splits of the source that a task reads; None: reports on the task are ignored."""
        if self.state_of(run, task) is None:
            return None
        return next((splits for splits in self.splits if task in splits.source.slots), None)


class StartWatch:
    """How long an attempt may take to start: task managers to come, tasks to restore and open.

    Law: between ``begun`` and ``ended`` there is a deadline; until then people are reminded now and
    then of what the start waits for.
    """

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._by_ms: float | None = None
        self._remind_at_ms = 0.0

    @property
    def next_deadline_ms(self) -> float | None:
        """When to ask again; None: nothing is starting."""
        return None if self._by_ms is None else min(self._by_ms, self._remind_at_ms)

    def begun(self, now_ms: float) -> None:
        """A start begins."""
        self._by_ms = now_ms + self.timeout_ms
        self._remind_at_ms = now_ms + FIRST_REMINDER_MS

    def ended(self) -> None:
        """The start is over, or was given up. Idempotent."""
        self._by_ms = None

    def is_over(self, now_ms: float) -> bool:
        """Whether it has taken too long."""
        return self._by_ms is not None and self._by_ms <= now_ms

    def reminds(self, now_ms: float) -> bool:
        """Whether a reminder is due now."""
        if self._by_ms is None or now_ms < self._remind_at_ms:
            return False
        self._remind_at_ms = now_ms + NEXT_REMINDER_MS
        return True
