"""The checkpoint coordinator of one run: events come in, effects go out.

Law: complete checkpoints have every task once, and growing numbers; a newer one that is stored ends
the older ones that are not, but no savepoint. Checkpoints are triggered at the interval, never
within the minimum pause after another has ended, and never with more in progress than allowed.
While a savepoint is taken, or waits for those before it to end, nothing else is begun: its barriers
are not overtaken. The storage answers whatever is handed to it, in time or not.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.base.checkpoints import (
    CheckpointFigures,
    CheckpointKind,
    CheckpointOptions,
    SourceState,
    Stop,
    SubtaskState,
    pieces_of,
)
from headgate.base.messages import (
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
)
from headgate.base.recovery_settings import CheckpointSettings, Consistency
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import (
    CheckpointEffect,
    DiscardStates,
    DropCheckpoint,
    FailRun,
    SavepointDone,
    Send,
    StoreCheckpoint,
)
from headgate.control.pending_checkpoint import (
    CheckpointedJob,
    CheckpointedTasks,
    PendingCheckpoint,
)
from headgate.control.stopping import Stopping

CheckpointReport: TypeAlias = CheckpointAcked | CheckpointDeclined | CheckpointWanted

REMEMBERED: Final = 1000
"""Aborted checkpoints whose late answers are still recognised."""


class CheckpointCoordinator:
    """Whoever drives it carries out the effects and calls ``tick`` at ``next_deadline_ms``."""

    def __init__(
        self,
        run: str,
        job: CheckpointedJob,
        settings: CheckpointSettings,
        history: CheckpointHistory,
        wall_ms: Callable[[], int],
        sources: Callable[[], tuple[SourceState, ...]] = tuple,
    ) -> None:
        """``wall_ms``: the time since 1970, as people and barriers tell it.

        ``sources``: what the driver holds of them, asked in the step that triggers a checkpoint.
        """
        self._run = run
        self._job = job
        self._slots = sorted({member.slot for member in job.members})
        self._settings = settings
        self._history = history
        self._log = history.log
        self._wall_ms = wall_ms
        self._sources = sources
        self._tasks = CheckpointedTasks(job.members)
        self._pending: dict[int, PendingCheckpoint] = {}  # in the order of their numbers
        self._given_up: dict[int, str] = {}  # and the directories of savepoints among them
        self._is_running = self._is_failing = False
        self._ended_because = ""
        self._stopping = Stopping()
        self._due_ms: float | None = None
        self._paused_until_ms = 0.0
        self._failures = 0  # in a row

    @property
    def next_deadline_ms(self) -> float | None:
        """When ``tick`` has something to do."""
        times = [
            pending.began_ms + self._settings.timeout_ms
            for pending in self._pending.values()
            if not pending.is_storing
        ]
        if self._due_ms is not None and self._may_begin:
            times.append(max(self._due_ms, self._paused_until_ms))
        return min(times, default=None)

    @property
    def is_storing(self) -> bool:
        """Whether the storage still owes an answer; a new run waits for it."""
        return any(pending.is_storing for pending in self._pending.values())

    # Reports.

    def started(self, now_ms: float) -> list[CheckpointEffect]:
        """All tasks of the run are there."""
        self._is_running = True
        if self._settings.is_enabled:
            first_ms = now_ms + self._settings.interval_ms
            self._due_ms = first_ms if self._due_ms is None else min(self._due_ms, first_ms)
        return self._trigger_due(now_ms)

    def tick(self, now_ms: float) -> list[CheckpointEffect]:
        """Time has passed."""
        effects: list[CheckpointEffect] = []
        timeout_ms = self._settings.timeout_ms
        for pending in list(self._pending.values()):
            if not pending.is_storing and pending.began_ms + timeout_ms <= now_ms:
                waiting = _names(pending.missing)
                reason = f"it was not complete after {timeout_ms} ms; it still waits for {waiting}"
                effects += self._give_up(pending, reason, now_ms)
        return effects + self._trigger_due(now_ms)

    def reported(self, report: CheckpointReport, now_ms: float) -> list[CheckpointEffect]:
        """A task manager reports."""
        match report:
            case CheckpointAcked(_, checkpoint, state, figures):
                return self.acked(checkpoint, state, figures, now_ms)
            case CheckpointDeclined(_, checkpoint, task, reason, subsumed):
                return self.declined(checkpoint, task, reason, now_ms, subsumed=subsumed)
            case CheckpointWanted():
                return self.checkpoint_wanted(now_ms)

    def acked(
        self, checkpoint: int, state: SubtaskState, figures: CheckpointFigures, now_ms: float
    ) -> list[CheckpointEffect]:
        """A task has written its part."""
        pending = self._pending.get(checkpoint)
        if state.task not in self._tasks.members:
            return []
        if pending is None:  # what is of earlier runs is left to the storage's own cleaning
            return self._discard(checkpoint, (state,)) if checkpoint in self._given_up else []
        pending.acked(state, figures, now_ms)
        return self._store_if_acknowledged(pending, now_ms) + self._trigger_due(now_ms)

    def declined(
        self, checkpoint: int, task: str, reason: str, now_ms: float, *, subsumed: bool = False
    ) -> list[CheckpointEffect]:
        """A task cannot take part; ``subsumed``: because a newer one has reached it first."""
        pending = self._pending.get(checkpoint)
        if pending is None or pending.is_storing:
            return []
        why = f"task {task} declined it: {reason}"
        return self._give_up(pending, why, now_ms, counts=not subsumed) + self._trigger_due(now_ms)

    def task_finished(self, task: str, now_ms: float) -> list[CheckpointEffect]:
        """A task has finished; what it had taken of a checkpoint was acknowledged before."""
        effects: list[CheckpointEffect] = []
        if self._tasks.task_finished(task):
            for pending in list(self._pending.values()):
                if not pending.is_storing:
                    pending.finished(task)
                    effects += self._trigger_heads(pending)
                    effects += self._store_if_acknowledged(pending, now_ms)
        return effects + self._trigger_due(now_ms)

    def checkpoint_wanted(self, now_ms: float) -> list[CheckpointEffect]:
        """A task waits for a complete checkpoint, to commit or to finish: not for the interval."""
        if self._settings.is_enabled and not self._ended_because:  # perhaps some do not run yet
            self._due_ms = now_ms if self._due_ms is None else min(self._due_ms, now_ms)
        return self._trigger_due(now_ms)

    def savepoint_wanted(self, directory: str, stop: Stop, now_ms: float) -> list[CheckpointEffect]:
        """Somebody wants a savepoint in a directory of its own, and perhaps the job to end."""
        self._stopping.savepoint_wanted(directory, stop)
        return self._trigger_due(now_ms)

    def stored(self, checkpoint: int, now_ms: float) -> list[CheckpointEffect]:
        """The metadata is written: the checkpoint is complete."""
        pending = self._pending.pop(checkpoint)
        metadata = pending.metadata
        assert metadata is not None, f"checkpoint {checkpoint} was not to be stored"
        self._paused_until_ms = now_ms + self._settings.min_pause_ms
        if pending.subsumed:
            self._log.aborted(pending, "a newer one was complete first", now_ms, counts=False)
            return [DropCheckpoint(metadata), *self._trigger_due(now_ms)]
        self._log.stored(pending, now_ms)
        effects: list[CheckpointEffect] = []
        stops = self._stopping.stored(checkpoint)
        if not self._ended_because and (stops or not pending.is_savepoint):
            effects += self._tell_all(CheckpointCompleted(self._run, checkpoint))
        if pending.is_savepoint:
            directory = pending.options.directory
            if stops:
                self._history.stopped_with(StoreCheckpoint(metadata, directory, ends_job=True))
                effects += self._subsume(checkpoint, now_ms)
            return [*effects, SavepointDone(directory, checkpoint), *self._trigger_due(now_ms)]
        self._failures = 0
        effects += self._history.completed(metadata)
        return effects + self._subsume(checkpoint, now_ms) + self._trigger_due(now_ms)

    def store_failed(self, checkpoint: int, reason: str, now_ms: float) -> list[CheckpointEffect]:
        """The metadata could not be written, or it is not known whether it was."""
        pending = self._pending[checkpoint]
        metadata, directory = pending.metadata, pending.options.directory
        assert metadata is not None, f"checkpoint {checkpoint} was not to be stored"
        effects: list[CheckpointEffect] = [DropCheckpoint(metadata, directory)]
        pending.states = {}  # the drop takes their files along
        why = f"it could not be stored: {reason}"
        counts = not pending.subsumed and not self._ended_because
        effects += self._give_up(pending, why, now_ms, counts=counts)
        return effects + self._trigger_due(now_ms)

    def run_ending(self, reason: str, now_ms: float) -> list[CheckpointEffect]:
        """The run fails, is cancelled, or has finished; only what is being stored goes on."""
        if self._ended_because:
            return []
        self._ended_because = reason
        self._due_ms = None
        effects: list[CheckpointEffect] = []
        for pending in list(self._pending.values()):
            if not pending.is_storing:
                why = f"the run has ended: {reason}"
                effects += self._forget(pending, why, now_ms, counts=False)
        return effects + self._refuse_wanted(f"the run has ended: {reason}")

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        kept = [pending for pending in self._pending.values() if not pending.is_storing]
        assert sum(not pending.is_savepoint for pending in self._pending.values()) <= self._limit
        assert len(kept) == 1 or not any(pending.is_savepoint for pending in kept)
        assert list(self._pending) == sorted(self._pending)
        assert not any(pending.is_fully_acknowledged for pending in kept)
        assert not (kept and self._ended_because)
        self._stopping.check()
        self._log.check()

    # Reactions.

    @property
    def _limit(self) -> int:
        """So many may be on their way; barriers that overtake, or a pause, leave room for one."""
        settings = self._settings
        alone = settings.min_pause_ms > 0 or self._overtake_after_ms is not None
        return 1 if alone else settings.max_concurrent

    @property
    def _overtake_after_ms(self) -> int | None:
        settings = self._settings
        is_exact = settings.mode is Consistency.EXACTLY_ONCE
        return settings.aligned_timeout_ms if settings.unaligned and is_exact else None

    @property
    def _takes_more(self) -> bool:
        """Whether anything may be begun at all."""
        is_over = self._is_failing or self._ended_because or self._tasks.all_finished
        return self._is_running and not is_over and not self._stopping.refusal

    @property
    def _may_begin(self) -> bool:
        """Whether the clock may begin a checkpoint."""
        unstored = [pending for pending in self._pending.values() if not pending.is_storing]
        is_reserved = self._stopping.wanted or any(pending.is_savepoint for pending in unstored)
        if is_reserved or not self._takes_more:
            return False
        return sum(not p.is_savepoint for p in self._pending.values()) < self._limit

    def _trigger_due(self, now_ms: float) -> list[CheckpointEffect]:
        """Begin what is due and may be begun."""
        if not self._takes_more:
            waits = not self._is_running and not self._ended_because
            return [] if waits else self._refuse_wanted(self._why_no_savepoint())
        if self._stopping.wanted:
            if not all(pending.is_storing for pending in self._pending.values()):
                return []
            directory, stop = self._stopping.next_wanted()
            options = CheckpointOptions(
                self._wall_ms(), CheckpointKind.SAVEPOINT, stop, directory=directory
            )
            # Whoever wants another one now is told at once if the job ends with this.
            return self._begin(options, now_ms) + self._trigger_due(now_ms)
        due_ms = self._due_ms
        if due_ms is None or not self._may_begin or max(due_ms, self._paused_until_ms) > now_ms:
            return []
        self._due_ms = now_ms + self._settings.interval_ms
        options = CheckpointOptions(
            self._wall_ms(),
            exactly_once=self._settings.mode is Consistency.EXACTLY_ONCE,
            overtake_after_ms=self._overtake_after_ms,
        )
        return self._begin(options, now_ms)

    def _begin(self, options: CheckpointOptions, now_ms: float) -> list[CheckpointEffect]:
        checkpoint = self._history.new_id()
        pending = PendingCheckpoint(checkpoint, options, now_ms, self._tasks, self._sources())
        self._pending[checkpoint] = pending
        self._log.begun(pending)
        self._stopping.begun(checkpoint, options.stop)
        return self._trigger_heads(pending)

    def _trigger_heads(self, pending: PendingCheckpoint) -> list[CheckpointEffect]:
        return [
            Send(
                member.slot,
                CheckpointTriggered(self._run, member.task, pending.checkpoint, pending.options),
            )
            for member in pending.untriggered_heads()
        ]

    def _tell_all(self, message: CheckpointCompleted | CheckpointAborted) -> list[CheckpointEffect]:
        return [Send(slot, message) for slot in self._slots]

    def _store_if_acknowledged(
        self, pending: PendingCheckpoint, now_ms: float
    ) -> list[CheckpointEffect]:
        """Store a checkpoint as soon as all its tasks have answered."""
        if pending.is_storing or not pending.is_fully_acknowledged:
            return []
        if problem := pending.contradiction():
            return self._give_up(pending, problem, now_ms)
        metadata = pending.complete(self._job, self._wall_ms())
        return [StoreCheckpoint(metadata, pending.options.directory, pending.options.stop.ends)]

    def _subsume(self, checkpoint: int, now_ms: float) -> list[CheckpointEffect]:
        """End the older ones; one that is being stored is dropped when it is."""
        effects: list[CheckpointEffect] = []
        for pending in list(self._pending.values()):
            if pending.checkpoint < checkpoint and not pending.is_savepoint:
                if pending.is_storing:
                    pending.subsumed = True
                else:
                    why = f"checkpoint {checkpoint} was complete first"
                    effects += self._give_up(pending, why, now_ms, counts=False)
        return effects

    def _give_up(
        self, pending: PendingCheckpoint, reason: str, now_ms: float, *, counts: bool = True
    ) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        if not self._ended_because:
            effects += self._tell_all(CheckpointAborted(self._run, pending.checkpoint, reason))
        effects += self._forget(pending, reason, now_ms, counts=counts)
        self._paused_until_ms = now_ms + self._settings.min_pause_ms
        if self._stopping.given_up(pending.checkpoint) and not self._ended_because:
            # Windows and timers have fired at the end of event time, which has not come.
            effects += self._fail(f"event time was ended for a savepoint that has failed: {reason}")
        elif counts and not pending.is_savepoint:
            effects += self._count_failure(pending.checkpoint, reason)
        return effects

    def _forget(
        self, pending: PendingCheckpoint, reason: str, now_ms: float, *, counts: bool
    ) -> list[CheckpointEffect]:
        del self._pending[pending.checkpoint]
        self._log.aborted(pending, reason, now_ms, counts=counts)
        directory = pending.options.directory
        self._given_up[pending.checkpoint] = directory
        if len(self._given_up) > REMEMBERED:
            del self._given_up[min(self._given_up)]
        effects = self._discard(pending.checkpoint, tuple(pending.states.values()))
        if pending.is_savepoint:
            effects.append(SavepointDone(directory, None, reason))
        return effects

    def _discard(self, checkpoint: int, states: tuple[SubtaskState, ...]) -> list[CheckpointEffect]:
        written = tuple(s for s in states if any(piece.path for piece in pieces_of(s)))
        return [DiscardStates(checkpoint, written, self._given_up[checkpoint])] if written else []

    def _count_failure(self, checkpoint: int, reason: str) -> list[CheckpointEffect]:
        self._failures += 1
        tolerable = self._settings.tolerable_failures
        if self._failures <= tolerable:
            return []
        return self._fail(
            f"checkpoint {checkpoint} has failed: {reason} ({self._failures} in a row; "
            f"execution.checkpointing.tolerable-failed-checkpoints is {tolerable})"
        )

    def _fail(self, reason: str) -> list[CheckpointEffect]:
        is_news, self._is_failing = not self._is_failing, True
        return [FailRun(reason)] if is_news else []

    def _refuse_wanted(self, reason: str) -> list[CheckpointEffect]:
        refused = self._stopping.refuse_wanted()
        return [SavepointDone(directory, None, reason) for directory in refused]

    def _why_no_savepoint(self) -> str:
        if self._ended_because:
            return f"the run has ended: {self._ended_because}"
        if refusal := self._stopping.refusal:
            return refusal
        return "the job is failing" if self._is_failing else "all tasks of the job have finished"


def _names(tasks: list[str]) -> str:
    shown = ", ".join(tasks[:8])
    return f"tasks {shown}" + (f" and {len(tasks) - 8} more" if len(tasks) > 8 else "")
