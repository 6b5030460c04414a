"""One action on a DataFrame that ends a stream, as its observers see it.

Nothing runs before an action, and each one is a job of its own to them, with a run of its own. If
Spark tries a stage again, that is another job as well. One that Spark has no slots for is a job
before its run has begun. Law: a job that has ended holds neither its run nor its DataFrame. It
takes no checkpoints, and whoever cancels it ends Spark's stage.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import SavepointFailed
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.driver_run import RunKey, call_safely
from headgate.host.driver.inspections import refused
from headgate.host.driver.job_records import JobRecords, wall_ms
from headgate.host.driver.state_texts import shown_state
from headgate.spark.job import STATUS, PreparedJob

CANCEL_S: Final = 30.0
"""How long whoever cancels an action waits for its end."""


class ActionRun(Protocol):
    """What runs for an action: the run of a barrier stage, or those of all partitions."""

    @property
    def key(self) -> RunKey: ...
    @property
    def records(self) -> JobRecords: ...
    @property
    def state(self) -> JobState: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def figures(self) -> list[TaskFigures]: ...
    @property
    def task_managers(self) -> list[TaskManagerFigures]: ...

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back when it has ended, at once if it has."""

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]":
        """See ``DriverRun``."""

    def cancel(self, reason: str) -> None:
        """Ask all tasks to end."""


class FrameJob:
    """See ``ObservedJob``."""

    def __init__(
        self,
        prepared: PreparedJob,
        label: str,
        withdraw: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """``label``: tells it from others of the DataFrame; ``withdraw``: ends what has no run."""
        self.job_id = f"{prepared.job_id}-{label}"
        self.graph = prepared.graph.outline()
        self.configuration: Mapping[str, str] = prepared.configuration
        self.started_at_ms = wall_ms()
        self.ended_at_ms: int | None = None
        self.reason = ""
        """What it waits for, in words."""
        self._attempt = 0
        self._records = JobRecords()
        self._records.reached(JobState.CREATED)
        self._log = prepared.log
        self._withdraw = withdraw
        self._status = JobStatus.CREATED  # as long as there is no run
        self._figures: list[TaskFigures] = []
        self._run: ActionRun | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._done = threading.Event()

    def begin(self, run: ActionRun) -> None:
        """Its run has just begun."""
        self._attempt, self._records, self.reason = run.key.generation, run.records, ""
        self._run = run
        run.when_ended(self._run_ended)

    def withdrawn(self) -> None:
        """Its action is over, and no run has begun."""
        self._records.reached(JobState.CANCELLED)
        self._end(JobStatus.CANCELED)

    def _run_ended(self) -> None:
        """A task's last figures come before its end."""
        if (run := self._run) is not None and run.outcome is not None:
            self._figures = run.figures
            self._end(STATUS[run.outcome.state])

    def _end(self, status: JobStatus) -> None:
        with self._lock:
            self._status, self.ended_at_ms = status, wall_ms()
            self._run, self.reason, self._withdraw = None, "", lambda reason: None
            self._done.set()
            listeners, self._listeners = self._listeners, []
        for call in listeners:
            call_safely(call)

    @property
    def name(self) -> str:
        return self.graph.name

    def status(self) -> JobStatus:
        return self._status if (run := self._run) is None else STATUS[run.state]

    def state_times(self) -> Mapping[str, int]:
        """When each state was reached, by the name of its ``JobStatus``."""
        times = self._records.state_times()
        return {STATUS[state].name: at_ms for state, at_ms in times.items()}

    def has_ended(self) -> bool:
        return self._done.is_set()

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back at its end, at once if it has ended; on any thread."""
        with self._lock:
            if not self._done.is_set():
                self._listeners.append(call)
                return
        call()

    def figures(self) -> list[TaskFigures]:
        """The latest figures of each task."""
        return list(self._figures) if (run := self._run) is None else run.figures

    def task_managers(self) -> list[TaskManagerFigures]:
        """Its processes, while it runs."""
        return [] if (run := self._run) is None else run.task_managers

    def waits_for(self) -> str:
        """What Spark has no room for; it begins when its first task manager has registered."""
        return self.reason

    def restarts(self) -> int:
        """So often has Spark tried the stage before."""
        return self._attempt

    def failures(self) -> list[FailureRecord]:
        """Why it has failed, if it has."""
        return self._records.failures()

    def checkpoints(self) -> CheckpointsRecord:
        """It takes none."""
        return CheckpointsRecord()

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Of all actions on the DataFrame, the oldest first."""
        return self._log.lines(after, limit)

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        """See ``DriverRun.inspect``."""
        if (run := self._run) is None:
            return refused(task, f"the job is {self._status.name.lower()}")
        return run.inspect(task, what, timeout_s)

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        """See ``ObservedJob``."""
        return shown_state(self, operator, state, keys, key_type, timeout_s)

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        """There are none."""
        failed: Future[str] = Future()
        problem = "a job that is a part of a DataFrame has no savepoints"
        failed.set_exception(SavepointFailed(directory or "", problem))
        return failed

    def wait(self, timeout_s: float | None = None) -> None:
        """Until it has ended; whoever executes the action gets its error."""
        self._done.wait(timeout_s)

    def cancel(self, reason: str, *, suspend: bool = False) -> None:
        """Ask all tasks to end and wait for it; ``suspend`` makes no difference here."""
        self.cancel_soon(reason)
        self.wait(CANCEL_S)

    def cancel_soon(self, reason: str) -> None:
        """Ask all tasks to end; the action on the DataFrame fails."""
        if (run := self._run) is not None:
            run.cancel(reason)
        else:
            self._withdraw(reason)
