"""One action on a DataFrame that ends a stream, as its observers see it.

Nothing runs before an action, and each one is a job of its own to them, with a run of its own. If
Spark tries a stage again, that is another job as well. Law: a job that has ended holds neither its
run nor its DataFrame. It takes no checkpoints, and whoever cancels it ends Spark's stage.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import SavepointFailed
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures
from headgate.host.driver.driver_run import DriverRun
from headgate.host.driver.inspections import refused
from headgate.host.driver.job_records import wall_ms
from headgate.spark.job import STATUS, PreparedJob


class FrameJob:
    """See ``ObservedJob``."""

    def __init__(self, prepared: PreparedJob, run: DriverRun) -> None:
        """The run has just begun."""
        again = f"-{run.key.generation}" if run.key.generation else ""
        self.job_id = f"{prepared.job_id}-{run.key.stage}{again}"
        self.graph = prepared.graph.outline()
        self.configuration: Mapping[str, str] = prepared.configuration
        self.started_at_ms = wall_ms()
        self.ended_at_ms: int | None = None
        self._attempt = run.key.generation
        self._records = run.records
        self._log = prepared.log
        self._status = JobStatus.CREATED  # of a run that has ended
        self._figures: list[TaskFigures] = []
        self._run: DriverRun | None = run
        run.when_ended(self._ended)

    def _ended(self) -> None:
        """A task's last figures come before its end."""
        if (run := self._run) is not None and run.outcome is not None:
            self._status, self._figures = STATUS[run.outcome.state], run.figures
            self.ended_at_ms = wall_ms()
            self._run = None

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
        return self._run is None

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back at its end, at once if it has ended; on any thread."""
        if (run := self._run) is None:
            call()
        else:
            run.when_ended(call)

    def figures(self) -> list[TaskFigures]:
        """The latest figures of each task."""
        return list(self._figures) if (run := self._run) is None else run.figures

    def task_managers(self) -> list[TaskManagerFigures]:
        """Its processes, while it runs."""
        return [] if (run := self._run) is None else run.task_managers

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

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        """There are none."""
        failed: Future[str] = Future()
        problem = "a job that is a part of a DataFrame has no savepoints"
        failed.set_exception(SavepointFailed(directory or "", problem))
        return failed

    def cancel_soon(self, reason: str) -> None:
        """Ask all tasks to end; the action on the DataFrame fails."""
        if (run := self._run) is not None:
            run.cancel(reason)
