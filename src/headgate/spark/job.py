"""A job on Spark: its barrier job, the run of its tasks, and how both end together.

The Spark job runs on a thread of its own; Spark starts the task managers, which register with the
coordinator in this process. Law: when ``wait`` returns, the tasks have ended and Spark's job too,
or it was cancelled.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.api.job import JobExecutionResult, JobStatus
from headgate.base.job_errors import JobCancelled, JobFailed
from headgate.base.messages import Failure, TaskFigures
from headgate.control.job import Outcome
from headgate.control.life import JobState
from headgate.host.control_run import Run
from headgate.host.orders import describe, revive
from headgate.plan.job_graph import JobGraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SPARK_END_S: Final = 10.0
"""How long Spark's job may take to end after its task managers have been told to."""
SPARK_FAILED_S: Final = 1.5
"""The same for a run that has not finished; Spark may even be about to try its stage again."""
SPARK_CANCEL_S: Final = 30.0
EXIT_S: Final = 5.0
"""How long a program that ends waits for the jobs that it leaves behind."""
DESCRIBED_CHARS: Final = 300

STATUS: Final = {
    JobState.CREATED: JobStatus.CREATED,
    JobState.DEPLOYING: JobStatus.INITIALIZING,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.CANCELLING: JobStatus.CANCELLING,
    JobState.FAILING: JobStatus.FAILING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.CANCELLED: JobStatus.CANCELED,
    JobState.FAILED: JobStatus.FAILED,
}


_running: dict[str, "SparkJob"] = {}


class SparkJob:
    """A running job, as the API sees it."""

    def __init__(
        self,
        session: "SparkSession",
        job_id: str,
        graph: JobGraph,
        run: Run,
        submit: Callable[[], Any],
        on_ended: Callable[[], None],
    ) -> None:
        """``submit`` runs the Spark job and returns at its end; ``on_ended`` frees what it held."""
        from pyspark import InheritableThread

        self.job_id = job_id
        self.graph = graph
        self.run = run
        self._session = session
        self._submit = submit
        self._on_ended = on_ended
        self._began = time.monotonic()
        self._ended = 0.0
        self._freeing = threading.Lock()
        self._freed = False
        _running[job_id] = self
        run.when_ended(self._note_end)
        # Only this kind of thread takes the user's job group, tags and pool over to Spark.
        self._thread = InheritableThread(target=self._run_spark, name=f"headgate-spark-{job_id}")
        self._thread.daemon = True
        self._thread.start()

    @property
    def name(self) -> str:
        return self.graph.name

    def status(self) -> JobStatus:
        return STATUS[self.run.state]

    def figures(self) -> list[TaskFigures]:
        """The latest figures of each task."""
        return self.run.figures

    def metrics(self) -> Mapping[str, object]:
        """Figures by name: ``<vertex>.<subtask>.<figure>``.

        Those of the user's functions: ``<vertex>.<subtask>.<operator>.<groups>.<name>.<part>``.
        """
        names = {vertex.id: vertex.name for vertex in self.graph.vertices}
        found: dict[str, object] = {}
        for one in self.figures():
            task = f"{names[one.vertex]}.{one.subtask}"
            for key in one.__struct_fields__:
                if key not in ("task", "vertex", "subtask", "user"):
                    found[f"{task}.{key}"] = getattr(one, key)
            for figure in one.user:
                name = ".".join((task, figure.operator, *figure.scope, figure.name))
                found.update({f"{name}.{part}": value for part, value in figure.values.items()})
        return found

    def cancel(self, reason: str = "the user asked for it") -> None:
        """Ask all tasks to end; returns when they have."""
        self.run.cancel(reason)
        self.run.wait()
        self._end_spark()

    def wait(self, timeout_s: float | None = None) -> JobExecutionResult:
        """Until the job ends; raises what made it fail. Ctrl-C cancels the job."""
        try:
            outcome = self.run.wait(timeout_s)
        except KeyboardInterrupt:
            self.cancel("the user interrupted it")
            raise
        if outcome is None:
            raise TimeoutError(f"job {self.name!r} has not ended within {timeout_s} s")
        self._end_spark()
        return self._result(outcome)

    def has_ended(self) -> bool:
        return self.run.outcome is not None

    def _result(self, outcome: Outcome) -> JobExecutionResult:
        elapsed_ms = int(((self._ended or time.monotonic()) - self._began) * 1000)
        if outcome.state is JobState.FINISHED:
            return JobExecutionResult(self.job_id, elapsed_ms)
        if outcome.state is JobState.CANCELLED:
            raise JobCancelled(self.name, outcome.reason)
        raise failure_error(self.name, outcome.failure, outcome.task)

    def _run_spark(self) -> None:
        context = self._session.sparkContext
        group = f"headgate-{self.job_id}"
        context.setJobGroup(group, description(self.graph), interruptOnCancel=True)
        try:
            self._submit()
        except Exception as error:
            log.debug("Spark's job of %s has ended: %s", self.name, error)
            self.run.fail(spark_failure(error))
        else:
            if self.run.wait(SPARK_END_S) is None:
                self.run.fail(describe(RuntimeError("Spark's job ended before the tasks did")))
        self.run.wait()
        self._free()  # also if nobody waits for the job

    def _end_spark(self) -> None:
        """After the end of the run: see to it that Spark's job has ended as well."""
        if self.status() is JobStatus.FINISHED:
            self._thread.join(SPARK_END_S)
        else:
            self._thread.join(0.1 if self.run.is_gone else SPARK_FAILED_S)
        if self._thread.is_alive():
            self._session.sparkContext.cancelJobGroup(f"headgate-{self.job_id}")
            self._thread.join(SPARK_CANCEL_S)
        self._free()

    def _free(self) -> None:
        with self._freeing:
            if self._freed:
                return
            self._freed = True
        _running.pop(self.job_id, None)
        self._on_ended()

    def _note_end(self) -> None:
        self._ended = time.monotonic()


def end_jobs(reason: str) -> None:
    """Cancel what still runs of this process and wait for it, but not for long."""
    jobs = list(_running.values())
    for job in jobs:
        job.run.cancel(reason)
    deadline = time.monotonic() + EXIT_S
    for job in jobs:
        job.run.wait(max(0.0, deadline - time.monotonic()))
        job._thread.join(max(0.0, deadline - time.monotonic()))


def description(graph: JobGraph) -> str:
    """What Spark's own page says about the job: its name and its vertices."""
    vertices = "; ".join(f"{vertex.name} ({vertex.parallelism})" for vertex in graph.vertices)
    short = vertices if len(vertices) <= DESCRIBED_CHARS else f"{vertices[:DESCRIBED_CHARS]}…"
    return f"Headgate: {graph.name} [{short}]"


def failure_error(job: str, failure: Failure | None, task: str = "") -> JobFailed:
    """What to raise for a failed job: the cause's own traceback first, then where it was."""
    if failure is None:
        return JobFailed(job, "no cause was told")
    error = JobFailed(job, failure.message, failure.operator, failure.traceback)
    error.__cause__ = revive(failure)
    return error


def spark_failure(error: BaseException) -> Failure:
    """Spark's own words about the end of its job, without pages of Java."""
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line for line in text.splitlines() if line.strip()]
    short = next((line for line in lines if "Exception" in line or "Error" in line), "")
    message = f"Spark ended the job: {(short or text)[:2000].strip()}"
    return Failure(
        kind=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message,
        traceback="",
        is_consequence=True,
    )
