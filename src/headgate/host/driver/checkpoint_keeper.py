"""What the runs of a job share in the driver: recovery, records, a thread for the storage.

Law: one thread does what was asked for, in that order, and holds no lock meanwhile; a slow storage
delays nothing but checkpoints, and a plan that waits for them. The lock guards the recovery and all
machines that share it. Of each attempt that has failed the root cause is kept, not what followed
from it; the newest ``FAILURES_KEPT`` are kept, and their texts are bounded.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from headgate.base.checkpoints import CheckpointKind
from headgate.base.errors import CheckpointError, JobTakenOver, StorageUnusable
from headgate.base.figures import added, only_counts
from headgate.base.job_records import CheckpointRecord, CheckpointsRecord, FailureRecord
from headgate.base.messages import Failure, TaskFigures, TaskOrder, TaskState, UserFigure
from headgate.base.redaction import without_secrets
from headgate.control.checkpoint_history import CheckpointStatistics, retains_checkpoints
from headgate.control.effects import StoreCheckpoint
from headgate.control.life_cycle import JobState
from headgate.control.recovery import Recovery
from headgate.core.chain.log_facts import log_always_with
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.net.loop import now_ms, wall_ms

log = logging.getLogger(__name__)

CLOSE_S: Final = 10.0
"""How long the storage may take to finish at the end of the job."""
LOOK_S: Final = 0.1
"""Between two looks at whether a wait is over."""
TaskReports: TypeAlias = tuple[TaskFigures | None, TaskFigures | None]
"""A task's sum over earlier attempts, and its last report in the present attempt."""
_COUNTED: Final = ("count", "sum")
"""Parts of a user's metrics that only grow, unless the user counts down."""
_COUNTERS: Final = ("counter", "distribution", "meter")
FAILURES_KEPT: Final = 32
MESSAGE_CHARS: Final = 4_000
TRACEBACK_CHARS: Final = 20_000
"""The last of them: there it was raised."""


class CheckpointKeeper:
    """Any thread may call any method; whoever opens it closes it."""

    def __init__(self, recovery: Recovery, storage: JobCheckpoints, job: str = "") -> None:
        """``job``: its name, for lines of the log."""
        self.recovery = recovery
        self.storage = storage
        self.lock = threading.Lock()
        self.figures = JobFigures()
        """Figures of the job's tasks, over all its runs; under the lock."""
        self.records = JobRecords()
        """What the job has met, over all its runs."""
        self._is_dropped = False  # whether its checkpoints went with the job
        self._log_facts = {"job": job or storage.job, "job_id": storage.job}
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = self._closed = False
        self._starting = threading.Lock()  # guards the three above

    @property
    def latest(self) -> StoreCheckpoint | None:
        """The checkpoint that a new run restores."""
        with self.lock:
            return self.recovery.history.latest

    def pass_over(self, checkpoint: int) -> bool:
        """Skip a damaged checkpoint; returns whether the job may go on without it."""
        with self.lock:
            return self.recovery.pass_over(checkpoint)

    @property
    def restarts(self) -> int:
        return self.recovery.restarts

    def statistics(self) -> CheckpointStatistics:
        with self.lock:
            return self.recovery.statistics()

    def checkpoints(self, restored_from: str) -> CheckpointsRecord:
        """As people look at them; ``restored_from``: what the present attempt goes on from."""
        with self.lock:
            counts, history = self.recovery.statistics(), self.recovery.history
            records = history.log.records(now_ms())
            kept = {metadata.checkpoint for metadata in history.complete}
        return CheckpointsRecord(
            triggered=counts.triggered,
            completed=counts.completed,
            failed=counts.failed,
            pending=counts.pending,
            restored_from=without_secrets(restored_from),
            records=tuple(
                structs.replace(record, path=self._path_of(record, kept)) for record in records
            ),
        )

    def _path_of(self, record: CheckpointRecord, kept: set[int]) -> str:
        """Where it is; nothing if it is not stored, or not any more."""
        if record.kind == CheckpointKind.SAVEPOINT.value:
            return "" if record.status == "failed" else without_secrets(record.path)
        if self._is_dropped or record.checkpoint not in kept or not self.storage.uri:
            return ""
        return self.storage.location(record.checkpoint, "").shown

    def put(self, act: Callable[[], None]) -> None:
        """Run this on the storage thread, after all that was put before; never waits."""
        with self._starting:
            if self._closed:
                log.debug("job %s has ended; a late storage access is dropped", self.storage.job)
                return
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve_storage,
                    name=f"headgate-storage-{self.storage.job}",
                    daemon=True,
                )
                self._thread.start()
        self._queue.put(act)

    def settled(self) -> threading.Event:
        """Set when everything that was put before is done."""
        done = threading.Event()
        self.put(done.set)
        return done

    def await_settled(self, timeout_s: float, is_over: threading.Event) -> None:
        """Wait for that, or for ``is_over``. Raises StorageUnusable after that time.

        A checkpoint that is still being stored may become the newest one at any moment; a run that
        restored an older one meanwhile would remove what its sinks have prepared for it.
        """
        settled, deadline = self.settled(), time.monotonic() + timeout_s
        while not settled.wait(LOOK_S) and not is_over.is_set():
            if time.monotonic() > deadline:
                raise StorageUnusable(
                    self.storage.shown,
                    f"has not answered for {timeout_s:g} s",
                    "the job waits for it; check that the storage is there and can be written",
                )

    def close(self, state: JobState) -> None:
        """The job has reached its final state: drop what is not needed any more. Idempotent."""
        with self._starting:
            is_first, self._closing = not self._closing, True
            if self._thread is None and not self.storage.uri:
                self._closed = True  # the storage was never used
        if is_first and not self._closed:
            # Twice, because calls that are queued already may put others.
            self.put(lambda: self.put(lambda: self._finish(state)))
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S)
            if thread.is_alive():
                log.warning(
                    "the storage of job %s is slow; checkpoints that nobody needs may stay there",
                    self.storage.job,
                    extra=self._log_facts,
                )

    def _finish(self, state: JobState) -> None:
        self._closed = True
        self._queue.put(None)
        stays, latest = retains_checkpoints(state, self.recovery.settings.retention), self.latest
        is_closed = self._run_logged(partial(self.storage.close, stays))
        self._is_dropped = not (stays and self.storage.is_lasting)
        if latest is not None and is_closed and not self._is_dropped:
            where = self.storage.location(latest.metadata.checkpoint, latest.directory).shown
            log.info("job %s is over; it can go on from %s", self.storage.job, where)

    def _serve_storage(self) -> None:
        log_always_with(self._log_facts)
        while (act := self._queue.get()) is not None:
            self._run_logged(act)

    def _run_logged(self, act: Callable[[], None]) -> bool:
        """Whether it succeeded."""
        try:
            act()
            return True
        except (CheckpointError, JobTakenOver) as error:
            log.warning("job %s: %s", self.storage.job, error)
        except Exception:
            log.exception("job %s: an access to its checkpoint storage failed", self.storage.job)
        return False


class JobFigures:
    """The metrics of a job's tasks, over all its attempts.

    Used under the lock of its runs, except for ``latest``, which takes its time: thousands of tasks
    must not keep the job's messages waiting because somebody looks at it.

    In the workers, every attempt counts from zero. Law: a count never falls: those of earlier
    attempts are added, including what is repeated after a restart. What is not a count (queue
    lengths, watermarks, a user's gauge) is that of the current attempt.
    """

    def __init__(self) -> None:
        self._now: dict[str, TaskFigures] = {}
        self._before: dict[str, TaskFigures] = {}
        self._sums: dict[str, tuple[TaskReports, TaskFigures]] = {}
        """What was added up last of each task, for others who ask before its next report."""

    def measured(self, figures: Iterable[TaskFigures]) -> None:
        """Tasks of the current attempt have reported."""
        self._now.update((task.task, task) for task in figures)

    def attempt_ended(self) -> None:
        """Another one begins."""
        for task, figures in self._now.items():
            self._before[task] = added_figures(self._before.get(task), figures)
        self._now.clear()

    def reported(self, tasks: Iterable[str]) -> list[TaskReports]:
        """What these tasks reported, in their order, to give to ``latest`` without the lock."""
        return [(self._before.get(task), self._now.get(task)) for task in tasks]

    def latest(self, reported: Iterable[TaskReports]) -> list[TaskFigures]:
        """In the same order; without tasks that have never reported."""
        found: list[TaskFigures] = []
        for reports in reported:
            before, now = reports
            if before is None:
                found += () if now is None else (now,)
                continue
            last = self._sums.get(before.task)
            if last is None or last[0][0] is not before or last[0][1] is not now:
                figures = _waiting(before) if now is None else added_figures(before, now)
                last = self._sums[before.task] = reports, figures
            found.append(last[1])
        return found


def added_figures(before: TaskFigures | None, now: TaskFigures) -> TaskFigures:
    """What a task has done before and now; what is not a count is that of now."""
    if before is None:
        return now
    return structs.replace(added(before, now), user=_added_users(before.user, now.user))


def _waiting(before: TaskFigures) -> TaskFigures:
    """The figures of a task that has not reported since the restart."""
    state, user, slot = TaskState.DEPLOYING, before.user, before.slot
    return structs.replace(only_counts(before), state=state, user=user, slot=slot)


def _added_users(
    before: tuple[UserFigure, ...], now: tuple[UserFigure, ...]
) -> tuple[UserFigure, ...]:
    known = {(figure.operator, figure.scope, figure.name): figure for figure in before}
    added = []
    for figure in now:
        old = known.pop((figure.operator, figure.scope, figure.name), None)
        if old is not None and old.kind == figure.kind and figure.kind in _COUNTERS:
            values = {
                part: value + old.values.get(part, 0) if part in _COUNTED else value
                for part, value in figure.values.items()
            }
            figure = structs.replace(figure, values=values)
        added.append(figure)
    # A metric that is not registered yet in this attempt keeps its count.
    return (*added, *(figure for figure in known.values() if figure.kind in _COUNTERS))


class JobRecords:
    """Lives as long as anybody looks at the job. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._state: JobState | None = None
        self._reached_ms: dict[JobState, int] = {}
        self._failures: deque[FailureRecord] = deque(maxlen=FAILURES_KEPT)

    def reached(self, state: JobState) -> None:
        """The job is in this state now; says nothing new if it was before."""
        with self._lock:
            if state is not self._state:
                self._state = state
                self._reached_ms[state] = wall_ms()

    def state_times(self) -> dict[JobState, int]:
        """When each state was last reached."""
        with self._lock:
            return dict(self._reached_ms)

    def attempt_begun(self) -> None:
        """Whatever has failed before, the job goes on."""
        with self._lock:
            for number, record in enumerate(self._failures):
                if not record.restarted:
                    self._failures[number] = structs.replace(record, restarted=True)

    def failed(
        self, failure: Failure, attempt: int, task: TaskOrder | None = None, host: str = ""
    ) -> None:
        """An attempt has ended with this, or another one could not begin."""
        message, trace = failure.message, failure.traceback.rstrip()
        record = FailureRecord(
            at_ms=wall_ms(),
            attempt=attempt,
            kind=failure.kind,
            message=message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}…",
            task="" if task is None else task.id,
            vertex=-1 if task is None else task.vertex,
            subtask=-1 if task is None else task.subtask,
            host=host,
            operator=failure.operator,
            record=failure.record,
            traceback=trace if len(trace) <= TRACEBACK_CHARS else f"…{trace[-TRACEBACK_CHARS:]}",
        )
        self.add(record)

    def add(self, record: FailureRecord) -> None:
        """What was recorded of a run that is a part of this job."""
        with self._lock:
            self._failures.append(record)

    def failures(self) -> list[FailureRecord]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._failures))
