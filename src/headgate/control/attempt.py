"""One attempt of a run: its tasks, from their deployment to their end, and its checkpoints.

Law: a task goes from one state to the next and never back; what is told of it before its deployment
or after its end is ignored, and so is what is told of another attempt.
"""

from collections.abc import Mapping
from typing import TypeAlias

from headgate.base.checkpoints import Stop
from headgate.base.messages import (
    Address,
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
    Deploy,
    Placed,
    TaskState,
)
from headgate.control.alignment import WatermarkAlignment
from headgate.control.checkpoint_effects import (
    AbortCheckpoint,
    CheckpointEffect,
    CompleteCheckpoint,
    Discard,
    Drop,
    SavepointDone,
    TriggerCheckpoint,
)
from headgate.control.deployment import RunPlan, TaskPlaces
from headgate.control.recovery import Recovery
from headgate.control.run_effects import Effect, Send

CheckpointReport: TypeAlias = CheckpointAcked | CheckpointDeclined | CheckpointWanted
_PassedOn: TypeAlias = (
    TriggerCheckpoint | CompleteCheckpoint | AbortCheckpoint | Drop | Discard | SavepointDone
)


class Attempt:
    """What there is once for every attempt."""

    def __init__(self, plan: RunPlan, recovery: Recovery | None) -> None:
        assert plan.tasks, "a job without tasks"
        self.plan = plan
        self.states = {task.id: TaskState.CREATED for task in plan.tasks}
        self.tasks = {task.id: task for task in plan.tasks}
        self.placement = TaskPlaces(plan)
        self.alignment = WatermarkAlignment(plan.run)
        self.checkpoints = (
            recovery.checkpoints(plan.checkpointed)
            if recovery is not None and plan.checkpointed is not None
            else None
        )

    # Tasks.

    def state_of(self, run: str, task: str) -> TaskState | None:
        """Of a task that lives; None: nothing that is told of it counts."""
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
        """These orders are given."""
        for _, order in orders:
            if isinstance(order, Deploy):
                self.states.update((task.id, TaskState.DEPLOYING) for task in order.tasks)

    def lost(self, slot: int) -> None:
        """The tasks of a slot are gone with its task manager."""
        for task in self.plan.tasks:
            if task.slot == slot and self.state_of(self.plan.run, task.id) is not None:
                self.states[task.id] = TaskState.FAILED

    # Checkpoints.

    def started(self, now_ms: float) -> list[CheckpointEffect]:
        """All tasks are there."""
        return [] if self.checkpoints is None else self.checkpoints.started(now_ms)

    def task_finished(self, task: str, now_ms: float) -> list[CheckpointEffect]:
        """One task has."""
        return [] if self.checkpoints is None else self.checkpoints.task_finished(task, now_ms)

    def told(self, report: CheckpointReport, now_ms: float) -> list[CheckpointEffect]:
        """What a task manager says about a checkpoint."""
        checkpoints = self.checkpoints
        if checkpoints is None or report.run != self.plan.run:
            return []
        match report:
            case CheckpointAcked():
                return checkpoints.acked(report.checkpoint, report.state, report.figures, now_ms)
            case CheckpointDeclined(_, checkpoint, task, reason, subsumed):
                return checkpoints.declined(checkpoint, task, reason, now_ms, subsumed=subsumed)
            case CheckpointWanted():
                return checkpoints.checkpoint_wanted(now_ms)

    def savepoint_wanted(self, directory: str, stop: Stop, now_ms: float) -> list[CheckpointEffect]:
        """Somebody wants one."""
        if self.checkpoints is None:
            return [SavepointDone(directory, None, "a job of this kind has no savepoints")]
        return self.checkpoints.savepoint_wanted(directory, stop, now_ms)

    def ending(self, reason: str) -> list[CheckpointEffect]:
        """The attempt is over, or about to be."""
        return [] if self.checkpoints is None else self.checkpoints.run_ending(reason)

    def passed_on(self, effect: _PassedOn, here: Mapping[int, Address]) -> list[Effect]:
        """What the coordinator of checkpoints wants, with messages for those that are here."""
        run = self.plan.run
        match effect:
            case TriggerCheckpoint(slot, task, checkpoint, options):
                message = CheckpointTriggered(run, task, checkpoint, options)
                return [Send(slot, message)] if slot in here else []
            case CompleteCheckpoint(checkpoint):
                return [Send(slot, CheckpointCompleted(run, checkpoint)) for slot in here]
            case AbortCheckpoint(checkpoint, reason):
                return [Send(slot, CheckpointAborted(run, checkpoint, reason)) for slot in here]
            case Drop() | Discard() | SavepointDone():
                return [effect]
