"""One run of a job, seen from the driver: told what happened, it answers with what to do.

Law: a run ends once, with every deployed task ended, lost with its task manager, or given up after
its time. The failure that it ends with is the first of the best kind: a task's own before a lost
task manager before what merely follows (a lost peer, a failed producer). While there is only one of
the lesser kinds, nothing is cancelled for ``settle_ms``, so that a better one can be told.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from headgate.base.job_errors import RunSuperseded, TaskManagerLost
from headgate.base.messages import (
    Address,
    Cancel,
    ControlTimes,
    Deploy,
    Failure,
    Placed,
    Shutdown,
    TimeAnnounced,
)
from headgate.base.states import TaskState
from headgate.control.alignment import Alignment
from headgate.control.deployment import Placement, RunPlan
from headgate.control.life import LIFE, Happening, JobState


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended: FINISHED, CANCELLED with a reason, or FAILED with the root cause."""

    state: JobState
    failure: Failure | None = None
    task: str = ""
    """The task that failed, if it was one."""
    reason: str = ""

    @property
    def is_own_failure(self) -> bool:
        """Whether a task failed by itself, not because of others or with its process."""
        failure = self.failure
        return bool(self.task) and failure is not None and not failure.is_consequence

    @property
    def problem(self) -> str:
        """Why the run has not finished, in words; nothing if it has."""
        if self.state is JobState.FINISHED:
            return ""
        if self.failure is None:
            return f"the run was {self.state.value}: {self.reason}"
        trace = self.failure.traceback.rstrip()
        return f"{self.failure.message}\n\n{trace}" if trace else self.failure.message


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the task manager of this slot."""

    slot: int
    message: Deploy | Placed | TimeAnnounced | Cancel | Shutdown


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over; nothing follows."""

    outcome: Outcome


Effect: TypeAlias = Send | Ended


class Rank(IntEnum):
    """How well a failure explains the end of a run; the least is the best."""

    OWN = 0
    LOSS = 1
    CONSEQUENCE = 2


class JobRun:
    """The coordinator of one run. Whoever drives it calls ``tick`` at ``next_deadline_ms``."""

    def __init__(self, plan: RunPlan, times: ControlTimes) -> None:
        assert plan.tasks, "a job without tasks"
        self.plan = plan
        self.state = JobState.CREATED
        self.states = {task.id: TaskState.CREATED for task in plan.tasks}
        self._tasks = {task.id: task for task in plan.tasks}
        self._times = times
        self._placement = Placement(plan)
        self._alignment = Alignment(plan.run)
        self._here: list[int] = []  # slots whose task manager is there
        self._gone: list[int] = []
        self._outcome = Outcome(JobState.FAILED)
        self._rank = Rank.CONSEQUENCE
        self._register_by_ms: float | None = None
        self._settled_at_ms: float | None = None
        self._clean_by_ms: float | None = None

    @property
    def next_deadline_ms(self) -> float | None:
        """When ``tick`` has something to do."""
        times = [self._register_by_ms, self._settled_at_ms, self._clean_by_ms]
        return min((time for time in times if time is not None), default=None)

    def knows(self, slot: int) -> bool:
        """Whether a task manager has registered for the slot, also one that is lost."""
        return slot in self._here or slot in self._gone

    def refusal(self, slot: int) -> str | None:
        """Why a task manager may not register for this slot now; None: it may."""
        if not 0 <= slot < self.plan.slots:
            return f"there is no slot {slot}; the job has {self.plan.slots}"
        if self.state.has_ended or self.state.is_ending:
            return f"the run is {self.state.value}"
        if self.knows(slot):
            return f"slot {slot} is taken"
        return None

    # What happens.

    def manager_registered(self, slot: int, address: Address, now_ms: float) -> list[Effect]:
        """The task manager of a slot is there (``refusal`` had nothing against it)."""
        problem = self.refusal(slot)
        assert problem is None, problem
        if not self._here:
            self._register_by_ms = now_ms + self._times.register_ms
        self._here.append(slot)
        effects = self._carry_out(self._placement.arrived(slot, address))
        if self._placement.is_complete:
            self._register_by_ms = None
        return effects + self._look_around(now_ms)

    def manager_failed(self, slot: int, failure: Failure, now_ms: float) -> list[Effect]:
        """A task manager could not start; it does not register any more."""
        if self.state.has_ended or slot in self._here:
            return []
        return self._fail(failure, "", _rank(failure), now_ms)

    def manager_lost(self, slot: int, problem: str, now_ms: float) -> list[Effect]:
        """The connection to a task manager has ended, or it is silent; its tasks are gone."""
        if slot not in self._here:
            return []
        self._here.remove(slot)
        self._gone.append(slot)
        if self.state.has_ended:
            return []
        for task in self.plan.tasks:
            state = self.states[task.id]
            if task.slot == slot and state is not TaskState.CREATED and not state.has_ended:
                self.states[task.id] = TaskState.FAILED
        error = TaskManagerLost(f"the task manager of slot {slot}", problem)
        return self._fail(_failure(error), "", Rank.LOSS, now_ms)

    def task_changed(
        self, run: str, task: str, state: TaskState, failure: Failure | None, now_ms: float
    ) -> list[Effect]:
        """A task manager reports; what is of another run, or behind the task's end, is ignored."""
        known = self.states.get(task)
        if run != self.plan.run or known is None or self.state.has_ended:
            return []
        if known is TaskState.CREATED or known.has_ended:
            return []
        if self.state.is_ending and failure is not None and failure.is_consequence:
            state = TaskState.CANCELLED  # its neighbour was cancelled a moment before it
        self.states[task] = state
        effects = self._announce(self._alignment.ended(task)) if state.has_ended else []
        if state is TaskState.FINISHED and not self.state.is_ending:
            effects += self._carry_out(self._placement.finished(self._tasks[task].vertex))
        elif state is TaskState.FAILED:
            cause = failure or Failure("unknown", "the task failed and gave no reason")
            return self._fail(cause, task, _rank(cause), now_ms)
        elif state is TaskState.CANCELLED and not self.state.is_ending:
            cause = Failure("unknown", "the task was cancelled by its task manager")
            return self._fail(cause, task, Rank.CONSEQUENCE, now_ms)
        return effects + self._look_around(now_ms)

    def time_reported(
        self, run: str, task: str, group: str, watermark_ms: int | None
    ) -> list[Effect]:
        """A source task tells its group how far it is; None: it is idle."""
        known = self.states.get(task)
        if run != self.plan.run or known is None or known.has_ended or self.state.has_ended:
            return []
        slot = self._tasks[task].slot
        return self._announce(self._alignment.reported(group, task, slot, watermark_ms))

    def failed(self, failure: Failure, now_ms: float) -> list[Effect]:
        """Whoever has started the task managers says that they, or some of them, have failed."""
        return [] if self.state.has_ended else self._fail(failure, "", Rank.LOSS, now_ms)

    def cancel(self, reason: str, now_ms: float) -> list[Effect]:
        """Somebody wants the run to end."""
        if self.state.has_ended or self.state.is_ending:
            return []
        self._happened(Happening.CANCEL)
        self._register_by_ms = None
        self._outcome = Outcome(JobState.CANCELLED, reason=reason)
        return self._cancel_all(reason, now_ms) + self._look_around(now_ms)

    def superseded(self, slot: int) -> list[Effect]:
        """A new attempt has begun; this one is dead."""
        if self.state.has_ended:
            return []
        if not self.state.is_ending:
            self._happened(Happening.FAILURE)
            self._outcome = Outcome(JobState.FAILED, _failure(RunSuperseded(slot)))
        return self._end(Happening.GIVEN_UP)

    def given_up(self, reason: str) -> list[Effect]:
        """The driver closes: end at once and wait for nobody."""
        if self.state.has_ended:
            return []
        if not self.state.is_ending:
            self._outcome = Outcome(JobState.CANCELLED, reason=reason)
        return self._end(Happening.GIVEN_UP)

    def tick(self, now_ms: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        if _is_over(self._register_by_ms, now_ms):
            slots = ", ".join(map(str, self._placement.missing()))
            problem = f"it did not register within {self._times.register_ms} ms of the first one"
            error = TaskManagerLost(f"the task manager of slot {slots}", problem)
            effects += self._fail(_failure(error), "", Rank.LOSS, now_ms)
        if _is_over(self._settled_at_ms, now_ms):
            self._settled_at_ms = None
            effects += self._cancel_all("the job has failed", now_ms)
        return effects + self._look_around(now_ms)

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        if self.state is JobState.FINISHED:
            assert all(state is TaskState.FINISHED for state in self.states.values())
        if self.state in (JobState.FAILING, JobState.FAILED):
            assert self._outcome.failure is not None
        if self.state.has_ended:
            assert self.next_deadline_ms is None

    # What follows.

    def _fail(self, failure: Failure, task: str, rank: Rank, now_ms: float) -> list[Effect]:
        was_ending, was_settling = self.state.is_ending, self._settled_at_ms is not None
        self._happened(Happening.FAILURE)
        self._register_by_ms = None
        if self.state is JobState.CANCELLING:
            return self._look_around(now_ms)
        if not was_ending or rank < self._rank:
            self._rank = rank
            self._outcome = Outcome(JobState.FAILED, failure, task)
        effects: list[Effect] = []
        if rank is Rank.OWN and (was_settling or not was_ending):
            self._settled_at_ms = None
            effects = self._cancel_all("the job has failed", now_ms)
        elif not was_ending:
            self._settled_at_ms = now_ms + self._times.settle_ms
        return effects + self._look_around(now_ms)

    def _cancel_all(self, reason: str, now_ms: float) -> list[Effect]:
        self._clean_by_ms = now_ms + self._times.cancel_ms
        return [Send(slot, Cancel(self.plan.run, reason)) for slot in self._here]

    def _look_around(self, now_ms: float) -> list[Effect]:
        """Whether what was waited for has come about."""
        if self.state.has_ended:
            return []
        if self.state.is_ending:
            deployed = [state for state in self.states.values() if state is not TaskState.CREATED]
            is_clean = all(state.has_ended for state in deployed)
            if self._settled_at_ms is None and (is_clean or _is_over(self._clean_by_ms, now_ms)):
                return self._end(Happening.CLEANED_UP)
            return []
        if all(state is TaskState.FINISHED for state in self.states.values()):
            self._outcome = Outcome(JobState.FINISHED)
            return self._end(Happening.COMPLETED)
        if self.state is JobState.DEPLOYING and self._all_started():
            self._happened(Happening.STARTED)
            return self._announce(self._alignment.all_started())
        return []

    def _all_started(self) -> bool:
        waiting = [TaskState.DEPLOYING]
        if not self.plan.batch:  # there, later tasks are deployed when earlier ones have finished
            waiting.append(TaskState.CREATED)
        return self._placement.is_complete and not any(
            state in waiting for state in self.states.values()
        )

    def _announce(self, told: list[tuple[int, TimeAnnounced]]) -> list[Effect]:
        return [Send(slot, message) for slot, message in told if slot in self._here]

    def _carry_out(self, orders: list[tuple[int, Deploy | Placed]]) -> list[Effect]:
        for _, order in orders:
            if isinstance(order, Deploy):
                self._happened(Happening.DEPLOYED)
                self.states.update((task.id, TaskState.DEPLOYING) for task in order.tasks)
        return [Send(slot, order) for slot, order in orders]

    def _end(self, how: Happening) -> list[Effect]:
        self._happened(how)
        self._register_by_ms = self._settled_at_ms = self._clean_by_ms = None
        assert self._outcome.state is self.state, f"{self._outcome} while {self.state.value}"
        message = Shutdown(self.plan.run, self._outcome.problem)
        shutdown = [Send(slot, message) for slot in self._here]
        return [*shutdown, Ended(self._outcome)]

    def _happened(self, what: Happening) -> None:
        state = LIFE.get((self.state, what))
        assert state is not None, f"run {self.plan.run}: {what.name} while {self.state.value}"
        self.state = state


def _rank(failure: Failure) -> Rank:
    return Rank.CONSEQUENCE if failure.is_consequence else Rank.OWN


def _failure(error: Exception) -> Failure:
    return Failure(f"{type(error).__module__}.{type(error).__qualname__}", str(error))


def _is_over(deadline_ms: float | None, now_ms: float) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
