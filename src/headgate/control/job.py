"""One run of a job, as the driver coordinates it: events come in, effects go out.

Law: a run ends once, with every deployed task ended, lost with its task manager, or given up after
its time. It ends with the first failure of the best rank: a task's own before a lost task manager
before a mere consequence (a lost peer, a failed producer). After a failure of a lesser rank, tasks
are cancelled only after a moment, so that a better cause can still be reported. A failed run whose
task managers are all there restarts in place if its recovery says so. Every report names its
attempt; reports of earlier attempts are ignored. A run that wants only some rows has finished when
its processes have sent as many, whatever becomes of its tasks then; it waits for them as long as it
would have without the limit, as a process that is ended takes its rows with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from headgate.base.checkpoints import SplitData, Stop
from headgate.base.errors import (
    CheckpointsFailed,
    RunSuperseded,
    StartTimedOut,
    TaskManagerLost,
)
from headgate.base.life_cycle import next_state
from headgate.base.messages import (
    Address,
    Cancel,
    ControlTimes,
    Deploy,
    Failure,
    Placed,
    Shutdown,
    SourceTimeAnnounced,
    SourceTimeReported,
    SplitsAssigned,
    SplitsWanted,
    TaskState,
    TimeAnnounced,
)
from headgate.control.attempt import Attempt, StartWatch
from headgate.control.checkpoint_coordinator import CheckpointCoordinator, CheckpointReport
from headgate.control.deployment import RunPlan, TaskManagers
from headgate.control.effects import (
    AttemptFailed,
    CheckpointEffect,
    Effect,
    EndDiscovery,
    FailRun,
    FailureRank,
    Outcome,
    Replan,
    RunEnded,
    SavepointDone,
    Send,
    StartDiscovery,
    StoreCheckpoint,
    Warn,
    failure_of,
    rank_of,
)
from headgate.control.life_cycle import TRANSITIONS, JobState, RunTransition
from headgate.control.recovery import Recovery

AWAITED_SHOWN: Final = 5
"""So many tasks that have not opened are named."""

_STORING: Final = "checkpoint {} waits for the storage to take its metadata"


class JobRun:
    """The coordinator of one run. Whoever drives it calls ``tick`` at ``next_deadline_ms``."""

    def __init__(
        self, plan: RunPlan, times: ControlTimes, recovery: Recovery | None = None
    ) -> None:
        """Without a ``recovery`` it takes no checkpoints and is never restarted."""
        self.state = JobState.CREATED
        self._times = times
        self._recovery = recovery
        self._attempt = Attempt(plan, recovery)
        self._managers = TaskManagers(plan.slots)
        self._storing: dict[int, CheckpointCoordinator] = {}  # what the storage has to answer for
        self._outcome = Outcome(JobState.FAILED)
        self._rank = FailureRank.CONSEQUENCE
        self._failed_ms = 0.0
        self._cancel_wanted = ""
        self._is_planning = False
        self._settled_at_ms: float | None = None
        self._clean_by_ms: float | None = None
        self._restart_at_ms: float | None = None
        self._is_discovering = False
        self._start = StartWatch(times.start_ms)
        self._awaits_storage: dict[str, tuple[float, float]] = {}  # since when, next warning
        self._rows: dict[int, int] = {}  # handed to Spark, by slot

    @property
    def plan(self) -> RunPlan:
        """The plan of the present attempt."""
        return self._attempt.plan

    @property
    def states(self) -> dict[str, TaskState]:
        """States of the tasks of the present attempt."""
        return self._attempt.states

    @property
    def _is_over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self.state.has_ended or self.state.is_ending

    @property
    def next_deadline_ms(self) -> float | None:
        """When ``tick`` has something to do."""
        times = [
            self._managers.register_by_ms,
            self._settled_at_ms,
            self._clean_by_ms,
            self._start.next_deadline_ms,
            *(at_ms for _, at_ms in self._awaits_storage.values()),
        ]
        if self._clean_by_ms is None and not self._is_planning:
            times.append(self._restart_at_ms)
        if self._attempt.checkpoints is not None:
            times.append(self._attempt.checkpoints.next_deadline_ms)
        return min((time for time in times if time is not None), default=None)

    def knows(self, slot: int) -> bool:
        """Whether a task manager has registered for the slot, also one that is lost."""
        return self._managers.knows(slot)

    def refusal(self, slot: int) -> str | None:
        """Why a task manager may not register for this slot now; None: it may."""
        if self._is_over:
            return f"the run is {self.state.value}"
        return self._managers.refusal(slot)

    def slot_of(self, task: str) -> tuple[int, str]:
        """Where a task runs, for who wants to look at it; or why nobody can now."""
        placed = self._attempt.tasks.get(task)
        if placed is None:
            return -1, "the job has no such task"
        state = self.states[task]
        if self.state.has_ended or self.state is JobState.RESTARTING:
            return -1, f"the run is {self.state.value}"
        if state is TaskState.CREATED or placed.slot not in self._managers.here:
            return -1, "it is not deployed yet"
        return (-1, f"it is {state.value}") if state.has_ended else (placed.slot, "")

    # Reports of task managers and tasks.

    def begun(self, now_ms: float) -> list[Effect]:
        """Spark has been asked to start the task managers.

        A job that reads the rows of a query is not timed: Spark runs the query first.
        """
        recovery = self._recovery
        if self.state is JobState.CREATED and recovery is not None and recovery.in_place:
            self._start.begun(now_ms)
        return []

    def manager_registered(self, slot: int, address: Address, now_ms: float) -> list[Effect]:
        """The task manager of a slot is there (``refusal`` had nothing against it)."""
        problem = self.refusal(slot)
        assert problem is None, problem
        if not self._managers.here:
            self._start.begun(now_ms)
        self._managers.registered(slot, address, now_ms + self._times.register_ms)
        placement = self._attempt.placement
        effects = self._deploy(placement.arrived(slot, address), now_ms)
        if placement.is_complete:
            self._managers.register_by_ms = None
        return effects + self._advance(now_ms) + self._end_if_enough(now_ms)

    def manager_failed(self, slot: int, failure: Failure, now_ms: float) -> list[Effect]:
        """A task manager could not start; it does not register any more."""
        if self.state.has_ended or slot in self._managers.here:
            return []
        self._managers.is_broken = True
        return self._fail(failure, "", rank_of(failure), now_ms, slot=slot)

    def manager_lost(self, slot: int, problem: str, now_ms: float) -> list[Effect]:
        """The connection to a task manager has ended, or it is silent; its tasks are gone."""
        if not self._managers.lost(slot) or self.state.has_ended:
            return []
        self._attempt.lost(slot)
        error = TaskManagerLost(f"the task manager of slot {slot}", problem)
        failure, settle_ms = failure_of(error), self._times.loss_ms
        return self._fail(failure, "", FailureRank.LOSS, now_ms, settle_ms, slot)

    def task_changed(
        self, run: str, task: str, state: TaskState, failure: Failure | None, now_ms: float
    ) -> list[Effect]:
        """A task manager reports; reports on another run, or after the task's end, are ignored."""
        attempt = self._attempt
        if attempt.state_of(run, task) is None or self.state.has_ended:
            return []
        if self.state.is_ending and failure is not None and failure.is_consequence:
            state = TaskState.CANCELLED  # its neighbour was cancelled a moment before it
        attempt.states[task] = state
        effects: list[Effect] = []
        if state.has_ended:
            effects += self._send(attempt.alignment.ended(task))
            effects += self._send(attempt.source_task_ended(task))
        if state is TaskState.FINISHED and not self.state.is_ending:
            orders = attempt.placement.finished(attempt.tasks[task].vertex)
            effects += self._deploy(orders, now_ms)
            if attempt.checkpoints is not None:
                effects += self._carry_out(attempt.checkpoints.task_finished(task, now_ms), now_ms)
        elif state is TaskState.FAILED:
            cause = failure or Failure("unknown", "the task failed and gave no reason")
            return self._fail(cause, task, rank_of(cause), now_ms)
        elif state is TaskState.CANCELLED and not self.state.is_ending:
            cause = Failure("unknown", "the task was cancelled by its task manager")
            return self._fail(cause, task, FailureRank.CONSEQUENCE, now_ms)
        return effects + self._advance(now_ms)

    def time_reported(
        self, run: str, task: str, group: str, watermark_ms: int | None
    ) -> list[Effect]:
        """A source task reports its watermark to its group; None: it is idle."""
        attempt = self._attempt
        if attempt.state_of(run, task) is None or self.state.has_ended:
            return []
        slot = attempt.tasks[task].slot
        return self._send(attempt.alignment.reported(group, task, slot, watermark_ms))

    # Splits of sources that the driver hands out.

    @property
    def unassigned_splits(self) -> dict[str, int]:
        """Splits of each source that no task has yet, by the source's first task."""
        return {
            next(iter(splits.source.slots)): splits.unassigned for splits in self._attempt.splits
        }

    def splits_wanted(self, wanted: SplitsWanted) -> list[Effect]:
        """A task of a source has opened, or has (nearly) read its splits."""
        if self._is_over:
            return []
        return self._send(self._attempt.splits_wanted(wanted))

    def source_time_reported(self, report: SourceTimeReported) -> list[Effect]:
        """A task of a source has moved on, or has nothing to read."""
        if self._is_over:
            return []
        return self._send(self._attempt.source_time_reported(report))

    def splits_discovered(
        self, run: str, uid: str, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> list[Effect]:
        """The enumerator of a source has found splits; ``is_last``: it is not asked again."""
        assignment = self._attempt.assignment_of(run, uid)
        if assignment is None or self._is_over:
            return []
        return self._send(assignment.discovered(position, splits, is_last))

    def discovery_failed(self, run: str, failure: Failure, now_ms: float) -> list[Effect]:
        """An enumerator could not look for splits, and the source has none from before."""
        if run != self.plan.run or self.state.has_ended:
            return []
        return self._fail(failure, "", FailureRank.OWN, now_ms)

    def rows_sent(self, run: str, slot: int, rows: int, now_ms: float) -> list[Effect]:
        """A process has handed so many rows to Spark; the run ends as soon as these are enough."""
        if run != self.plan.run:
            return []
        self._rows[slot] = rows
        return self._end_if_enough(now_ms)

    @property
    def _has_enough(self) -> bool:
        wanted = self.plan.rows_wanted
        return wanted is not None and sum(self._rows.values()) >= wanted

    def _end_if_enough(self, now_ms: float) -> list[Effect]:
        """A task manager that came after the end would be taken for the next attempt."""
        if self._is_over or not self._has_enough or not self._attempt.placement.is_complete:
            return []
        return self._cancel(Outcome(JobState.FINISHED), "it has produced enough rows", now_ms)

    # Reports on checkpoints.

    def checkpoint_reported(self, report: CheckpointReport, now_ms: float) -> list[Effect]:
        """A task manager reports; reports on another run are ignored."""
        checkpoints = self._attempt.checkpoints
        if checkpoints is None or report.run != self.plan.run:
            return []
        return self._carry_out(checkpoints.reported(report, now_ms), now_ms)

    def savepoint_wanted(self, directory: str, stop: Stop, now_ms: float) -> list[Effect]:
        """Somebody wants a savepoint in a directory of its own, and perhaps the job to end."""
        if self.state is JobState.RESTARTING or self._is_over:
            return [SavepointDone(directory, None, f"the job is {self.state.value}")]
        checkpoints = self._attempt.checkpoints
        if checkpoints is None:
            return [SavepointDone(directory, None, "this job cannot take savepoints")]
        return self._carry_out(checkpoints.savepoint_wanted(directory, stop, now_ms), now_ms)

    def stored(self, checkpoint: int, problem: str, now_ms: float) -> list[Effect]:
        """The storage has written the metadata, in time or not; or it says why it could not."""
        checkpoints = self._storing.pop(checkpoint)
        self._awaits_storage.pop(_STORING.format(checkpoint), None)
        if problem:
            wanted = checkpoints.store_failed(checkpoint, problem, now_ms)
        else:
            wanted = checkpoints.stored(checkpoint, now_ms)
        return self._carry_out(wanted, now_ms) + self._advance(now_ms)

    # Events of the run as a whole.

    def failed(self, failure: Failure, now_ms: float) -> list[Effect]:
        """Spark reports that the task managers, or some of them, have failed."""
        if self.state.has_ended:
            return []
        self._managers.is_broken = True
        if failure.is_final:  # no other worker can do better, whatever has become of some of them
            return self._fail(failure, "", FailureRank.OWN, now_ms)
        known = self._outcome.failure
        if self.state is JobState.FAILING and self._rank is FailureRank.LOSS and known is not None:
            # Which one is gone is known already; whoever has started it may know why.
            message = f"{known.message} ({failure.message})"
            self._outcome = replace(self._outcome, failure=structs.replace(known, message=message))
        return self._fail(failure, "", FailureRank.LOSS, now_ms)

    def planned(self, plan: RunPlan, now_ms: float) -> list[Effect]:
        """The next attempt is planned; it is deployed to the task managers that are here."""
        self._is_planning = False
        if self.state is not JobState.RESTARTING:
            return []
        self._restart_at_ms = None
        self._attempt = Attempt(plan, self._recovery)
        self._start.begun(now_ms)
        orders = self._attempt.placement.all_arrived(self._managers.here)
        return self._deploy(orders, now_ms) + self._advance(now_ms)

    def plan_failed(self, failure: Failure, now_ms: float) -> list[Effect]:
        """The next attempt could not be planned; if the failure is final, there is none."""
        self._is_planning = False
        if self.state is not JobState.RESTARTING:
            return []
        self._restart_at_ms = None
        return self._fail(failure, "", FailureRank.OWN, now_ms)

    def cancel(self, reason: str, now_ms: float) -> list[Effect]:
        """Somebody wants the run to end."""
        self._cancel_wanted = self._cancel_wanted or reason
        ends_early = self.state.is_ending and self._outcome.state is JobState.FINISHED
        if self.state.has_ended or (self.state.is_ending and not ends_early):
            return []
        return self._cancel(Outcome(JobState.CANCELLED, reason=reason), reason, now_ms)

    def _cancel(self, outcome: Outcome, reason: str, now_ms: float) -> list[Effect]:
        self._move(RunTransition.CANCEL)
        self._managers.register_by_ms = self._restart_at_ms = None
        self._start.ended()
        self._outcome = outcome
        effects = self._end_attempt(reason, now_ms)
        return effects + self._cancel_all(reason, now_ms) + self._advance(now_ms)

    def superseded(self, slot: int, now_ms: float) -> list[Effect]:
        """A new attempt has begun; this one is dead."""
        if self.state.has_ended:
            return []
        if not self.state.is_ending:
            self._move(RunTransition.FAILURE)
            self._outcome = Outcome(JobState.FAILED, failure_of(RunSuperseded(slot)))
        elif self._outcome.state is JobState.FINISHED:
            self._outcome = Outcome(JobState.CANCELLED, reason=str(RunSuperseded(slot)))
        return self._end(RunTransition.GIVEN_UP, now_ms)

    def given_up(self, reason: str, now_ms: float) -> list[Effect]:
        """The driver closes: end at once and wait for nobody."""
        if self.state.has_ended:
            return []
        if not self.state.is_ending or self._outcome.state is JobState.FINISHED:
            self._outcome = Outcome(JobState.CANCELLED, reason=reason)
        return self._end(RunTransition.GIVEN_UP, now_ms)

    def tick(self, now_ms: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        if _is_over(self._managers.register_by_ms, now_ms):
            self._managers.is_broken = True
            slots = ", ".join(map(str, self._attempt.placement.missing()))
            problem = f"it did not register within {self._times.register_ms} ms of the first one"
            error = TaskManagerLost(f"the task manager of slot {slots}", problem)
            effects += self._fail(failure_of(error), "", FailureRank.LOSS, now_ms)
        if self._start.is_over(now_ms):
            # Who plans may never answer; another run has somebody else to ask.
            self._managers.is_broken = self._managers.is_broken or self._is_planning
            failure = failure_of(StartTimedOut(self._awaited(), self._times.start_ms))
            effects += self._fail(failure, "", FailureRank.OWN, now_ms)
        elif self._start.reminds(now_ms):
            effects.append(Warn(f"the job has not started yet; it waits for {self._awaited()}"))
        if _is_over(self._settled_at_ms, now_ms):
            self._settled_at_ms = None
            effects += self._cancel_all("the job has failed", now_ms)
        effects += self._warn_of_storage(now_ms)
        checkpoints = self._attempt.checkpoints
        if checkpoints is not None and _is_over(checkpoints.next_deadline_ms, now_ms):
            effects += self._carry_out(checkpoints.tick(now_ms), now_ms)
        return effects + self._advance(now_ms)

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        has_finished = self._attempt.has_finished or self._has_enough
        assert self.state is not JobState.FINISHED or has_finished
        if self.state in (JobState.FAILING, JobState.FAILED):
            assert self._outcome.failure is not None
        if self.state in (JobState.DEPLOYING, JobState.RUNNING):
            assert TaskState.FAILED not in self.states.values(), "a dead attempt goes on"
        if self.state is JobState.RESTARTING:
            assert self._attempt.is_clean and not self._managers.is_broken
        if self.state.has_ended:
            assert self.next_deadline_ms is None
        if self._attempt.checkpoints is not None:
            self._attempt.checkpoints.check()
        for splits in self._attempt.splits:
            splits.check()

    # Reactions.

    def _fail(
        self,
        failure: Failure,
        task: str,
        rank: FailureRank,
        now_ms: float,
        settle_ms: int | None = None,
        slot: int | None = None,
    ) -> list[Effect]:
        was_ending, was_settling = self.state.is_ending, self._settled_at_ms is not None
        was_restarting = self.state is JobState.RESTARTING
        self._move(RunTransition.FAILURE)
        self._managers.register_by_ms = None
        self._start.ended()
        if self.state is JobState.CANCELLING:
            return self._advance(now_ms)
        if not was_ending or rank < self._rank:
            self._rank = rank
            self._outcome = Outcome(JobState.FAILED, failure, task, slot)
        effects: list[Effect] = []
        if not was_ending:
            self._failed_ms = now_ms
            effects = self._end_attempt(failure.message, now_ms)
        if was_restarting:
            pass  # no task is left to cancel, and none that could report a better cause
        elif rank is FailureRank.OWN and (was_settling or not was_ending):
            self._settled_at_ms = None
            effects += self._cancel_all("the job has failed", now_ms)
        elif was_settling or not was_ending:
            settled_ms = now_ms + (self._times.settle_ms if settle_ms is None else settle_ms)
            self._settled_at_ms = min(settled_ms, self._settled_at_ms or settled_ms)
        return effects + self._advance(now_ms)

    def _cancel_all(self, reason: str, now_ms: float) -> list[Effect]:
        is_patient = self._outcome.state is JobState.FINISHED
        self._clean_by_ms = None if is_patient else now_ms + self._times.cancel_ms
        message = Cancel(self.plan.run, reason, is_patient)
        return [Send(slot, message) for slot in self._managers.here]

    def _advance(self, now_ms: float) -> list[Effect]:
        """Go to the next state if what the run waits for has happened."""
        attempt = self._attempt
        if self.state.has_ended:
            return []
        if self.state is JobState.RESTARTING:
            return self._plan_restart(now_ms)
        if self.state.is_ending:
            is_over = attempt.is_clean or _is_over(self._clean_by_ms, now_ms)
            return self._stop(now_ms) if is_over and self._settled_at_ms is None else []
        if self.state is JobState.RUNNING and not attempt.starting:
            self._start.ended()  # of the tasks that followed others that have finished
        if attempt.has_finished:
            self._outcome = Outcome(JobState.FINISHED)
            return self._end(RunTransition.COMPLETED, now_ms)
        if self.state is JobState.DEPLOYING and attempt.has_started:
            self._move(RunTransition.STARTED)
            self._start.ended()
            effects = self._send(attempt.alignment.all_started())
            if attempt.checkpoints is not None:
                effects += self._carry_out(attempt.checkpoints.started(now_ms), now_ms)
            return effects
        return []

    def _stop(self, now_ms: float) -> list[Effect]:
        """All tasks have ended or are given up: end the run, or begin anew."""
        recovery, failure = self._recovery, self._outcome.failure
        if self._outcome.state is JobState.FINISHED:
            return self._end(RunTransition.COMPLETED, now_ms)
        if recovery is None or failure is None:
            return self._end(RunTransition.CLEANED_UP, now_ms)
        if self._restart_at_ms is None:  # else it is the loss of one that was to begin anew
            pause_ms = recovery.failed(failure, self.plan.restored, now_ms)
            if pause_ms is None:
                self._outcome = replace(self._outcome, reason=recovery.problem)
                return self._end(RunTransition.CLEANED_UP, now_ms)
            self._restart_at_ms = max(now_ms, self._failed_ms + pause_ms)
        in_ms = max(0.0, self._restart_at_ms - now_ms)
        effects: list[Effect] = []
        if not self._cancel_wanted:
            effects.append(Warn(recovery.story(failure, self.plan.restored, in_ms)))
        is_whole = not self._managers.is_broken and self._attempt.placement.is_complete
        if not is_whole or not recovery.in_place or not self._attempt.is_clean:
            self._outcome = replace(self._outcome, restart_in_ms=in_ms)
            return effects + self._end(RunTransition.CLEANED_UP, now_ms)
        effects.append(AttemptFailed(self._outcome))
        self._move(RunTransition.RESTART)
        self._clean_by_ms = now_ms + self._times.cancel_ms if self._storing else None
        effects += self.cancel(self._cancel_wanted, now_ms) if self._cancel_wanted else []
        return effects + self._advance(now_ms)

    def _awaited(self) -> str:
        """What the start waits for: slots without a task manager, or tasks that have not opened."""
        if self._is_planning:
            return "the storage of its checkpoints, to plan the next attempt"
        missing = ", ".join(map(str, self._attempt.placement.missing()))
        if missing:
            return f"the task managers of slots {missing}, which Spark has not started"
        attempt = self._attempt
        opening = [f"{task} (slot {attempt.tasks[task].slot})" for task in attempt.starting]
        more = f" and {len(opening) - AWAITED_SHOWN} others" if opening[AWAITED_SHOWN:] else ""
        return (
            f"the tasks {', '.join(opening[:AWAITED_SHOWN])}{more} to restore their state and open"
        )

    def _plan_restart(self, now_ms: float) -> list[Effect]:
        """Ask for a plan once the pause is over and the storage has answered, or had its time."""
        if not self._storing or _is_over(self._clean_by_ms, now_ms):
            self._clean_by_ms = None
        waits = self._clean_by_ms is not None or not _is_over(self._restart_at_ms, now_ms)
        if self._is_planning or waits:
            return []
        self._is_planning = True
        self._start.begun(now_ms)
        return [Replan()]

    def _carry_out(self, wanted: list[CheckpointEffect], now_ms: float) -> list[Effect]:
        """Carry out, or pass on, what the checkpoint coordinator wants."""
        effects: list[Effect] = []
        for effect in wanted:
            match effect:
                case FailRun(reason):
                    error = CheckpointsFailed(reason)
                    effects += self._fail(failure_of(error), "", FailureRank.OWN, now_ms)
                case StoreCheckpoint(metadata):
                    checkpoints = self._attempt.checkpoints
                    assert checkpoints is not None
                    self._storing[metadata.checkpoint] = checkpoints
                    waits = _STORING.format(metadata.checkpoint)
                    self._awaits_storage[waits] = now_ms, now_ms + self._times.storage_ms
                    effects.append(effect)
                case Send(slot) if slot not in self._managers.here:
                    pass
                case _:
                    effects.append(effect)
        return effects

    def _end_attempt(self, reason: str, now_ms: float) -> list[Effect]:
        """It is over, or about to be."""
        checkpoints, effects = self._attempt.checkpoints, list[Effect]()
        if checkpoints is not None:
            effects += self._carry_out(checkpoints.run_ending(reason, now_ms), now_ms)
        if self._is_discovering:
            self._is_discovering = False
            effects.append(EndDiscovery())
        return effects

    def _send(
        self, messages: Sequence[tuple[int, SplitsAssigned | TimeAnnounced | SourceTimeAnnounced]]
    ) -> list[Effect]:
        return [Send(slot, message) for slot, message in messages if slot in self._managers.here]

    def _warn_of_storage(self, now_ms: float) -> list[Effect]:
        """The storage is slow to answer; the answer may still come, so this only warns."""
        effects: list[Effect] = []
        for waits, (since_ms, at_ms) in self._awaits_storage.items():
            if at_ms <= now_ms:
                self._awaits_storage[waits] = since_ms, now_ms + self._times.storage_ms
                text = f"{waits}, and has had no answer for {now_ms - since_ms:.0f} ms"
                effects.append(Warn(f"{text}; check that the storage is there and can be written"))
        return effects

    def _deploy(self, orders: list[tuple[int, Deploy | Placed]], now_ms: float) -> list[Effect]:
        for _, order in orders:
            if isinstance(order, Deploy):
                self._move(RunTransition.DEPLOYED)
                self._start.begun(now_ms)
        self._attempt.deployed(orders)
        effects: list[Effect] = [Send(slot, order) for slot, order in orders]
        if orders and not self._is_discovering:
            self._is_discovering = bool(self.plan.sources)
            effects += [StartDiscovery(self.plan.run, source) for source in self.plan.sources]
        return effects

    def _end(self, how: RunTransition, now_ms: float) -> list[Effect]:
        self._move(how)
        assert self._outcome.state is self.state, f"{self._outcome} while {self.state.value}"
        self._managers.register_by_ms = self._settled_at_ms = None
        self._clean_by_ms = self._restart_at_ms = None
        self._start.ended()
        problem = self._outcome.problem
        why = problem or "it has finished"
        effects = self._end_attempt(why, now_ms)
        message = Shutdown(self.plan.run, problem)
        shutdown = [Send(slot, message) for slot in self._managers.here]
        self._awaits_storage.clear()
        return [*effects, *shutdown, RunEnded(self._outcome)]

    def _move(self, what: RunTransition) -> None:
        self.state = next_state(TRANSITIONS, self.state, what, f"run {self.plan.run}")


def _is_over(deadline_ms: float | None, now_ms: float) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
