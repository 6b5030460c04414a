"""One action on a DataFrame that ends a stream, as its observers see it.

Nothing runs before an action, and each one is a job of its own to them. It has one run, that of a
barrier stage, or one for each process that computes partitions; these come and go until the query
ends. If Spark tries a barrier stage again, that is another job. One that Spark has no slots for is
a job before its first run. Law: a job that has ended holds neither its runs nor its DataFrame, and
has the last figures of all of them. It takes no checkpoints.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import SavepointFailed
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_keeper import added_figures
from headgate.host.driver.driver_run import DriverRun, RunKey, call_safely
from headgate.host.driver.inspections import refused
from headgate.host.driver.state_reads import shown_state
from headgate.host.net.loop import wall_ms
from headgate.spark.job import STATUS, PreparedJob

CANCEL_S: Final = 30.0
"""How long whoever cancels an action waits for its end."""
OVER: Final = "its query has ended"


class FrameJob:
    """See ``ObservedJob``. Any thread may call any method."""

    def __init__(
        self, prepared: PreparedJob, label: str, withdraw: Callable[[str], None], attempt: int = 0
    ) -> None:
        """``label``: tells it from others of the DataFrame; ``withdraw``: ends its query in Spark.

        ``attempt``: how often Spark has tried its stage before.
        """
        self.job_id = f"{prepared.job_id}-{label}"
        self.graph = prepared.graph.outline()
        self.configuration: Mapping[str, str] = prepared.configuration
        self.started_at_ms = wall_ms()
        self.ended_at_ms: int | None = None
        self.reason = ""
        """What it waits for, in words."""
        self._attempt = attempt
        self._log = prepared.log
        self._withdraw = withdraw
        self._done = threading.Event()
        self._lock = threading.Lock()  # of what follows
        self._state = JobState.CREATED
        self._reached = {JobState.CREATED: self.started_at_ms}
        self._failures: list[FailureRecord] = []
        self._runs: dict[str, DriverRun] = {}  # that have not ended, by key
        self._figures: dict[str, TaskFigures] = {}  # by task: of runs that have ended
        self._query_has_ended = False
        self._listeners: list[Callable[[], None]] = []

    # What happens to it.

    def begin(self, run: DriverRun) -> None:
        """A run has just begun."""
        with self._lock:
            problem = OVER if self._query_has_ended else ""
            if self._done.is_set():
                problem = f"the job is {self._state.value}"
            else:
                self._runs[str(run.key)] = run
                self._state, self.reason = JobState.RUNNING, ""
        if problem:  # Spark does not wait for its processes
            run.cancel(problem)

    def run_ended(self, key: RunKey, outcome: Outcome, *, ends_job: bool) -> bool:
        """A run has ended, after its last figures; says whether the job ends with it."""
        with self._lock:
            if (run := self._runs.pop(str(key), None)) is None:
                return False
            _add(self._figures, run.figures)
            self._reached = _times(self._reached, run)
            is_last = self._query_has_ended and not self._runs
            ends_job = ends_job and not self._query_has_ended
            if ends_job:
                self._failures = run.records.failures()
        if ends_job or is_last:
            self._end(outcome.state if ends_job else JobState.FINISHED)
        return ends_job

    def query_ended(self) -> None:
        """Spark needs nothing more of it: its processes send their last figures, and leave."""
        with self._lock:
            self._query_has_ended, runs = True, list(self._runs.values())
        for run in runs:
            run.cancel(OVER)
        if not runs:
            has_begun = self._state is not JobState.CREATED
            self._end(JobState.FINISHED if has_begun else JobState.CANCELLED)

    @property
    def is_idle(self) -> bool:
        """Whether it has no run at the moment."""
        return not self._runs

    def _end(self, state: JobState) -> None:
        with self._lock:
            if self._done.is_set():
                return
            for run in self._runs.values():
                _add(self._figures, run.figures)
            self._state, self.ended_at_ms = state, wall_ms()
            self._reached[state] = self.ended_at_ms
            self._runs, self.reason, self._withdraw = {}, "", lambda reason: None
            self._done.set()
            listeners, self._listeners = self._listeners, []
        for call in listeners:
            call_safely(call)

    # What observers see.

    @property
    def name(self) -> str:
        return self.graph.name

    def status(self) -> JobStatus:
        with self._lock:
            states = [run.state for run in self._runs.values()]
            state = self._state
        is_on_its_way = state is JobState.RUNNING and states and JobState.RUNNING not in states
        if is_on_its_way and not states[-1].has_ended:
            state = states[-1]
        return STATUS[state]

    def state_times(self) -> Mapping[str, int]:
        """When each state was reached, by the name of its ``JobStatus``."""
        with self._lock:
            times = dict(self._reached)
            for run in self._runs.values():
                times = _times(times, run)
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
        """What each task has done in all runs."""
        with self._lock:
            sums, runs = dict(self._figures), list(self._runs.values())
        for run in runs:
            _add(sums, run.figures)
        return sorted(sums.values(), key=lambda figures: (figures.vertex, figures.subtask))

    def task_managers(self) -> list[TaskManagerFigures]:
        """Its processes, while it runs."""
        with self._lock:
            runs = list(self._runs.values())
        return [manager for run in runs for manager in run.task_managers]

    def waits_for(self) -> str:
        """What Spark has no room for; it begins when its first task manager has registered."""
        return self.reason

    def restarts(self) -> int:
        """How often Spark has tried the stage before."""
        return self._attempt

    def failures(self) -> list[FailureRecord]:
        """Why it has failed, if it has."""
        return list(self._failures)

    def checkpoints(self) -> CheckpointsRecord:
        """It takes none."""
        return CheckpointsRecord()

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Lines of all actions on the DataFrame, the oldest first."""
        return self._log.lines(after, limit)

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        """See ``DriverRun.inspect``."""
        with self._lock:
            run = next((run for run in self._runs.values() if task in run.tasks), None)
            state = self._state
        if run is not None:
            return run.inspect(task, what, timeout_s)
        if state is JobState.RUNNING:
            return refused(task, "it does not run at the moment")
        return refused(task, f"the job is {STATUS[state].name.lower()}")

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
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.cancel(reason)
        if not runs:
            self._withdraw(reason)
            self._end(JobState.CANCELLED)


def _add(sums: dict[str, TaskFigures], more: Sequence[TaskFigures]) -> None:
    for figures in more:
        sums[figures.task] = added_figures(sums.get(figures.task), figures)


def _times(reached: Mapping[JobState, int], run: DriverRun) -> dict[JobState, int]:
    """A job's times with those of one of its runs, whose end need not be that of the job."""
    own = run.records.state_times()
    return {**{state: own[state] for state in own if not state.has_ended}, **reached}
