"""A job as observers see it: the page, the terminal, the analysis; and its metrics by name.

Law: looking at a job never blocks, raises or harms it, from any thread and also after its end. The
name of a metric says whose it is: ``<vertex>.<subtask>.…`` of a task, ``job.…`` of the job.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from msgspec import structs

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointRecord, CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures
from headgate.control.checkpoint_history import CheckpointStatistics
from headgate.plan.job_graph import JobGraph


class DiagnosedJob(Protocol):
    """What ``JobObserver`` needs of a job. Times are milliseconds since 1970."""

    @property
    def graph(self) -> JobGraph: ...

    def status(self) -> JobStatus: ...

    def waits_for(self) -> str:
        """What its start has to wait for, such as slots; nothing: it need not wait."""

    def has_ended(self) -> bool: ...

    def figures(self) -> list[TaskFigures]:
        """The latest of each task; counts cover all attempts."""

    def task_managers(self) -> list[TaskManagerFigures]:
        """The processes of the present attempt; those that have not reported yet are missing."""

    def restarts(self) -> int: ...

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        """Look at a running task; the future fails with ``InspectionFailed`` if nobody can."""


class WatchedJob(DiagnosedJob, Protocol):
    """What is shown of a job in a terminal or a notebook."""

    @property
    def started_at_ms(self) -> int: ...

    @property
    def ended_at_ms(self) -> int | None:
        """None: it has not ended."""


class ObservedJob(WatchedJob, Protocol):
    """What the page, the REST API and Prometheus need of a job."""

    @property
    def job_id(self) -> str: ...

    @property
    def configuration(self) -> Mapping[str, str]:
        """As the program and its surroundings have set it; the values of secrets are hidden."""

    def state_times(self) -> Mapping[str, int]:
        """When each state was last reached, by the name of its ``JobStatus``."""

    def failures(self) -> list[FailureRecord]:
        """The root cause of each attempt that has failed, the newest first; 32 at most."""

    def checkpoints(self) -> CheckpointsRecord:
        """Counts, and the newest 20 checkpoints and savepoints."""

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Lines with a number above ``after``, the oldest first."""

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        """What a keyed state holds at these keys, which people have typed; waits.

        Raises StateUnreadable.
        """

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        """Take a savepoint; raises SettingsInvalid or StorageUnusable if it cannot be written."""

    def cancel_soon(self, reason: str) -> None:
        """Ask all tasks to end, without waiting for it."""


def task_metrics(graph: JobGraph, figures: Iterable[TaskFigures]) -> Mapping[str, object]:
    """``<vertex>.<subtask>.<figure>``, also ``….gates.0.credit``, ``….outputs.0.records``.

    Those of the user's functions: ``<vertex>.<subtask>.<operator>.<groups>.<name>.<part>``.
    """
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    found: dict[str, object] = {}
    for task_figures in figures:
        task = f"{names[task_figures.vertex]}.{task_figures.subtask}"
        for key in task_figures.__struct_fields__:
            if key not in ("task", "vertex", "subtask", "user", *_PARTS, "latency"):
                found[f"{task}.{key}"] = getattr(task_figures, key)
        for parts in _PARTS:
            for number, part in enumerate(getattr(task_figures, parts)):
                values = structs.asdict(part).items()
                found.update({f"{task}.{parts}.{number}.{key}": value for key, value in values})
        for figure in task_figures.user:
            name = ".".join((task, figure.operator, *figure.scope, figure.name))
            found.update({f"{name}.{part}": value for part, value in figure.values.items()})
    return found


_PARTS: Final = ("gates", "outputs", "operators", "async_calls", "batch_calls")
"""Figures that a task has several of."""


def job_metrics(
    restarts: int,
    counts: CheckpointStatistics | CheckpointsRecord,
    last: CheckpointRecord | None,
) -> dict[str, object]:
    """``job.restarts``, ``job.checkpoints.<figure>``, ``job.checkpoints.last.<figure>``.

    ``last`` is the checkpoint that was stored last. Its align, sync and async times are those of
    its slowest task.
    """
    found: dict[str, object] = {"job.restarts": restarts}
    for key in ("triggered", "completed", "failed", "pending"):
        found[f"job.checkpoints.{key}"] = getattr(counts, key)
    if last is not None:
        prefix = "job.checkpoints.last"
        for key in ("checkpoint", "kind", "took_ms", "state_bytes", "in_flight_bytes", "unaligned"):
            found[f"{prefix}.{key}"] = getattr(last, key)
        for key in ("align_ms", "sync_ms", "async_ms"):
            slowest = max((getattr(part, key) for part in last.parts), default=0.0)
            found[f"{prefix}.{key}"] = slowest
    return found
