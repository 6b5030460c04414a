"""The metrics of jobs in the formats that Prometheus scrapes; the page server's ``/metrics``.

Every metric follows from ``SOURCES``: the declarations in ``base/figures`` with their labels, and
three that no field declares; those of the user's functions come from ``user_metrics``. Figures of
subtasks are merged unless they are asked for one by one, so that the number of series depends on
the program and not on its parallelism. Law: a scrape reads what the driver has and asks no task; it
never fails because of a job; a job that has ended is shown for some minutes, so that its last
figures are scraped, and then no more.
"""

import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Final, TypeAlias

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from headgate import __version__
from headgate.api.job import JobStatus
from headgate.base.figures import (
    LATENCY_BOUNDS_MS,
    AsyncFigures,
    BatchFigures,
    GateFigures,
    LatencyFigures,
    MetricFamily,
    MetricKind,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
    metrics_of,
)
from headgate.base.job_records import CheckpointPart, CheckpointRecord, CheckpointsRecord
from headgate.base.messages import TaskFigures
from headgate.observe.observed import ObservedJob
from headgate.observe.user_metrics import Labels, UserMetrics, warn_once

JOB_LABELS: Final = ("job", "job_id")
PROCESS_LABELS: Final = (*JOB_LABELS, "slot", "host", "pid")
TASK_LABELS: Final = (*JOB_LABELS, "task", "vertex")
GATE_LABELS: Final = (*TASK_LABELS, "gate")
OUTPUT_LABELS: Final = (*TASK_LABELS, "output")
OPERATOR_LABELS: Final = (*TASK_LABELS, "operator")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is known of a job itself, when somebody asks."""

    status: JobStatus
    started_at_ms: Annotated[
        int,
        MetricFamily(
            "headgate_job_start_timestamp_seconds",
            "When the job was started, in seconds since 1970.",
            "uptime",
        ),
    ]
    ended_at_ms: Annotated[
        int | None,
        MetricFamily(
            "headgate_job_end_timestamp_seconds",
            "When the job has ended; missing while it runs.",
        ),
    ]
    restarts: Annotated[
        int, MetricFamily("headgate_job_restarts_total", "Restarts after failures.", "numRestarts")
    ]
    checkpoints: CheckpointsRecord

    @property
    def last_checkpoint(self) -> CheckpointRecord | None:
        """The newest that is complete; savepoints are not asked for."""
        for record in self.checkpoints.records:
            if record.kind == "checkpoint" and record.status == "completed":
                return record
        return None


@dataclass(frozen=True, slots=True)
class SpecialMetric:
    """One that is not read from a single figure; ``prometheus`` knows how it is made."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    flink: str = ""
    kind: MetricKind = MetricKind.GAUGE


BUILD: Final = SpecialMetric(
    "headgate_build_info",
    ("version", "python"),
    "Version of Headgate and of Python in the driver; always 1.",
)
JOB_STATUS: Final = SpecialMetric(
    "headgate_job_status",
    (*JOB_LABELS, "status"),
    "1 for the present status of the job, 0 for the others.",
    "runningState, restartingState, deployingState",
)
SUBTASKS: Final = SpecialMetric(
    "headgate_task_subtasks",
    (*TASK_LABELS, "state"),
    "Subtasks in a state; states that none of them is in are missing.",
)


TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
ENDED_MS: Final = 5 * 60_000
"""How long a job is shown after its end."""
ENDED_JOBS: Final = 20
"""How many of the jobs that have ended are shown, the latest."""
MAX_SUBTASKS: Final = 2_000
"""Most subtasks that are shown one by one; each has some sixty samples of 10 µs or more."""
MAX_PROCESSES: Final = 200
"""Most processes of a job that are shown beside sums over subtasks."""
BOUNDS: Final = (*(f"{bound_ms / 1000:g}" for bound_ms in LATENCY_BOUNDS_MS), "+Inf")


def exposition(jobs: Iterable[ObservedJob], *, subtasks: bool = False, accept: str = "") -> bytes:
    """All metrics of these jobs; ``accept``: the header by which Prometheus chooses the format."""
    collector = JobsCollector(jobs, time.time() * 1000, subtasks=subtasks)
    registry = CollectorRegistry()
    registry.register(collector)
    encode = openmetrics.generate_latest if _wants_openmetrics(accept) else generate_latest
    return encode(registry)


def content_type(accept: str = "") -> str:
    """Content type of what ``exposition`` returns for this header."""
    return openmetrics.CONTENT_TYPE_LATEST if _wants_openmetrics(accept) else TEXT


def _wants_openmetrics(accept: str) -> bool:
    """The library's own choice also takes versions and escapings, and fails if they are none."""
    return "application/openmetrics-text" in accept


def shown_jobs(jobs: Iterable[ObservedJob], now_ms: float) -> list[ObservedJob]:
    """The jobs that run or ended lately, the oldest first; of jobs with one id the newest."""
    latest = {job.job_id: job for job in sorted(jobs, key=lambda job: job.started_at_ms)}
    ended = sorted(
        (ended_at_ms, job.job_id)
        for job in latest.values()
        if (ended_at_ms := job.ended_at_ms) is not None
    )
    gone = {job_id for at_ms, job_id in ended if at_ms < now_ms - ENDED_MS}
    gone.update(job_id for _, job_id in ended[:-ENDED_JOBS])
    return [job for job_id, job in latest.items() if job_id not in gone]


class JobSnapshot:
    """Everything about a job that a scrape shows, asked for once."""

    def __init__(self, job: ObservedJob) -> None:
        self.name = job.graph.name
        self.labels = (_label(self.name), _label(job.job_id))
        self.tasks = job.figures()
        self.processes = job.task_managers()
        self.record = JobRecord(
            job.status(), job.started_at_ms, job.ended_at_ms, job.restarts(), job.checkpoints()
        )
        self._vertices = {
            vertex.id: (*self.labels, _label(vertex.name), str(vertex.id))
            for vertex in job.graph.vertices
        }

    def labels_of(self, part: TaskFigures | CheckpointPart) -> Labels:
        """Labels of the vertex that a subtask belongs to."""
        return self._vertices[part.vertex]


def _snapshots(jobs: Iterable[ObservedJob]) -> Iterator[JobSnapshot]:
    for job in jobs:
        try:
            yield JobSnapshot(job)
        except Exception as error:  # the others are shown all the same
            warn_once(f"job {job.job_id} is not shown to Prometheus: {type(error).__name__}")


@dataclass(slots=True)
class LabelledSubjects:
    """Subjects with the same labels."""

    all: list[object] = field(default_factory=list)
    running: list[object] = field(default_factory=list)
    """Without those of tasks that have ended: nothing waits there any more."""


Row: TypeAlias = tuple[Labels, object, bool]
"""Labels, whose figures, and whether it runs."""
Sample: TypeAlias = tuple[Labels, float]
Part: TypeAlias = tuple[Labels, object]


class JobsCollector(Collector):
    """What the jobs have to show at one moment, metric by metric."""

    def __init__(self, jobs: Iterable[ObservedJob], now_ms: float, *, subtasks: bool) -> None:
        self._jobs = list(_snapshots(shown_jobs(jobs, now_ms)))
        self._now_ms = now_ms
        self._subtasks = subtasks and self._are_few()
        self._tasks = [
            (job.labels_of(task), self._subtask(task), not task.state.has_ended, task)
            for job in self._jobs
            for task in job.tasks
        ]

    def collect(self) -> Iterator[Metric]:
        for source in SOURCES:
            if isinstance(source.metrics, SpecialMetric):
                yield _special(source.metrics, source.samples(self))
            else:
                rows = source.rows(self)
                yield from self._filled(source.metrics, self._names(source.labels), rows)
        yield from self._user_metrics()

    def _filled(self, kind: type, names: Labels, rows: Iterable[Row]) -> Iterator[Metric]:
        """The metrics of one kind of subject; those without a value are missing."""
        groups: defaultdict[Labels, LabelledSubjects] = defaultdict(LabelledSubjects)
        for labels, subject, is_running in rows:
            group = groups[labels]
            group.all.append(subject)
            if is_running:
                group.running.append(subject)
        for declared in metrics_of(kind):
            name, form = declared.name.removesuffix("_total"), declared.kind
            metric = Metric(name, declared.meaning, form.value)
            for labels, group in groups.items():
                labels_of = dict(zip(names, labels, strict=True))
                if form is MetricKind.HISTOGRAM:
                    _add_histogram(
                        metric, labels_of, [getattr(it, declared.read) for it in group.all]
                    )
                    continue
                subjects = group.running if form is MetricKind.GAUGE else group.all
                value = declared.shown(subjects, self._now_ms)
                if value is not None:
                    metric.add_sample(declared.name, labels_of, value)
            if metric.samples or form is MetricKind.HISTOGRAM:
                yield metric

    def _are_few(self) -> bool:
        """Whether there is room for all subtasks; if not, they are merged all the same."""
        subtasks = sum(len(job.tasks) for job in self._jobs)
        if subtasks > MAX_SUBTASKS:
            warn_once(
                f"Prometheus asks for figures of {subtasks:,} subtasks and gets sums, because "
                f"there are more than {MAX_SUBTASKS:,}; scrape /metrics without subtasks=true"
            )
        return subtasks <= MAX_SUBTASKS

    def _names(self, names: Labels) -> Labels:
        return (*names, "subtask") if self._subtasks and "task" in names else names

    def _subtask(self, part: TaskFigures | CheckpointPart) -> Labels:
        return (str(part.subtask),) if self._subtasks else ()

    def statuses(self) -> Iterator[Sample]:
        """Samples of every job for each status."""
        for job in self._jobs:
            for status in JobStatus:
                yield (*job.labels, status.name), int(status is job.record.status)

    def records(self, part_of: Callable[[JobRecord], object | None]) -> Iterator[Row]:
        """A part of the record of every job that has it."""
        for job in self._jobs:
            if (part := part_of(job.record)) is not None:
                yield job.labels, part, True

    def processes(self) -> Iterator[Row]:
        for job in self._jobs:
            if len(job.processes) > MAX_PROCESSES and not self._subtasks:
                warn_once(
                    f"job {job.name!r} has {len(job.processes):,} task managers; Prometheus gets "
                    f"figures of so many only from /metrics?subtasks=true"
                )
                continue
            for process in job.processes:
                place = (str(process.slot), _label(process.host), str(process.pid))
                yield (*job.labels, *place), process, job.record.ended_at_ms is None

    def states(self) -> Iterator[Sample]:
        for job in self._jobs:
            states = Counter((*job.labels_of(task), task.state.value) for task in job.tasks)
            yield from states.items()

    def parts(self, parts_of: Callable[[TaskFigures], Iterable[Part]]) -> Iterator[Row]:
        """The parts of every task of one kind, with labels that tell them apart."""
        for labels, subtask, is_running, task in self._tasks:
            for place, part in parts_of(task):
                yield (*labels, *place, *subtask), part, is_running

    def checkpoint_parts(self) -> Iterator[Row]:
        for job in self._jobs:
            last = job.record.last_checkpoint
            for part in () if last is None else last.parts:
                yield (*job.labels_of(part), *self._subtask(part)), part, True

    def _user_metrics(self) -> Iterator[Metric]:
        metrics = UserMetrics(self._names(OPERATOR_LABELS), merged=not self._subtasks)
        for job in self._jobs:
            metrics.begin_job(job.name)
            for task in job.tasks:
                labels, subtask = job.labels_of(task), self._subtask(task)
                for figure in task.user:
                    metrics.add((*labels, _label(figure.operator)), subtask, figure)
        return metrics.collect()


def _add_histogram(
    metric: Metric, labels: dict[str, str], measured: Iterable[LatencyFigures | None]
) -> None:
    """Add the samples of all histograms together; None: nothing was measured."""
    found = [latency for latency in measured if latency is not None]
    if found:
        counts = list(map(sum, zip(*(latency.counts for latency in found), strict=True)))
        for bound, count in zip(BOUNDS, accumulate(counts), strict=True):
            metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
        metric.add_sample(f"{metric.name}_count", labels, sum(counts))
        total_s = sum(latency.sum_ms for latency in found) / 1000
        metric.add_sample(f"{metric.name}_sum", labels, total_s)


def _special(metric: SpecialMetric, samples: Iterable[Sample]) -> Metric:
    family = Metric(metric.name, metric.meaning, metric.kind.value)
    for values, value in samples:
        family.add_sample(metric.name, dict(zip(metric.labels, values, strict=True)), value)
    return family


def _numbered(parts: Sequence[object]) -> list[Part]:
    return [((str(number),), part) for number, part in enumerate(parts)]


def _named(attribute: str, parts: Iterable[object]) -> list[Part]:
    """By name; the second and later ones of a name are numbered, so that they stay apart."""
    found: dict[str, object] = {}
    for part in parts:
        name = unique = getattr(part, attribute)
        number = 1
        while unique in found:
            number += 1
            unique = f"{name} #{number}"  # as metrics of users say it
        found[unique] = part
    return [((_label(name),), part) for name, part in found.items()]


def _label(text: str) -> str:
    """Half of a surrogate pair, which Python's texts may hold, cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Where the values of some metrics come from."""

    title: str
    """Title of their table in docs/metrics.md."""
    labels: Labels
    metrics: type | SpecialMetric
    """A struct whose fields declare them, or one metric."""
    rows: Callable[[JobsCollector], Iterable[Row]] = lambda collector: ()
    """If it is a struct."""
    samples: Callable[[JobsCollector], Iterable[Sample]] = lambda collector: ()
    """If it is one metric."""


def _of_tasks(
    title: str, labels: Labels, metrics: type, parts_of: Callable[[TaskFigures], Iterable[Part]]
) -> MetricSource:
    return MetricSource(title, labels, metrics, lambda collector: collector.parts(parts_of))


def _of_jobs(
    title: str, metrics: type, part_of: Callable[[JobRecord], object | None]
) -> MetricSource:
    return MetricSource(title, JOB_LABELS, metrics, lambda collector: collector.records(part_of))


_BUILD_SAMPLES: Final = (((__version__, platform.python_version()), 1),)
SOURCES: Final = (
    MetricSource("The job", JOB_LABELS, BUILD, samples=lambda collector: _BUILD_SAMPLES),
    MetricSource("The job", JOB_LABELS, JOB_STATUS, samples=JobsCollector.statuses),
    _of_jobs("The job", JobRecord, lambda record: record),
    _of_jobs("The job", CheckpointsRecord, lambda record: record.checkpoints),
    _of_jobs(
        "The last completed checkpoint", CheckpointRecord, lambda record: record.last_checkpoint
    ),
    MetricSource("Task managers", PROCESS_LABELS, TaskManagerFigures, JobsCollector.processes),
    MetricSource("Tasks", TASK_LABELS, SUBTASKS, samples=JobsCollector.states),
    _of_tasks("Tasks", TASK_LABELS, TaskFigures, lambda task: [((), task)]),
    _of_tasks("Inputs", GATE_LABELS, GateFigures, lambda task: _numbered(task.gates)),
    _of_tasks("Outputs", OUTPUT_LABELS, OutputFigures, lambda task: _numbered(task.outputs)),
    _of_tasks(
        "Operators", OPERATOR_LABELS, OperatorFigures, lambda task: _named("name", task.operators)
    ),
    _of_tasks(
        "Asynchronous calls",
        OPERATOR_LABELS,
        AsyncFigures,
        lambda task: _named("operator", task.async_calls),
    ),
    _of_tasks(
        "Calls in batches",
        OPERATOR_LABELS,
        BatchFigures,
        lambda task: _named("operator", task.batch_calls),
    ),
    MetricSource(
        "Tasks in the last completed checkpoint",
        TASK_LABELS,
        CheckpointPart,
        JobsCollector.checkpoint_parts,
    ),
)
"""All metrics but those of the user's functions, in the order of a scrape."""
