"""What the REST API answers about jobs and their vertices, as structs.

Names and shapes are Flink's where they fit; ``json_objects`` puts dashes into the names. Times are
milliseconds since 1970, durations milliseconds, and shares of time lie between 0 and 1. Law: an
answer says the same whether a driver gives it of a job that runs, or a history server from an
archive.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from headgate.base.figures import (
    AsyncFigures,
    BatchFigures,
    GateFigures,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
)
from headgate.base.inspections import ChannelTable, WaitingRecords
from headgate.base.job_records import CheckpointRecord, FailureRecord, LogLine
from headgate.base.messages import UserFigure
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.flame import FlameNode


class Answer(msgspec.Struct, frozen=True):
    """Base of all answers."""


class Problems(Answer, frozen=True):
    """Instead of an answer: what is wrong with the request, and what to do about it."""

    errors: list[str]


class Features(Answer, frozen=True):
    """What this server can do beyond showing."""

    web_cancel: bool
    web_savepoint: bool
    peek: bool


class PageConfig(Answer, frozen=True):
    """What the page needs to know before it has a token."""

    version: str
    refresh_interval: int
    features: Features
    needs_token: bool


class ClusterOverview(Answer, frozen=True):
    """How many jobs there are, by what has become of them."""

    version: str
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int


class JobId(Answer, frozen=True):
    """A job, and the name of its JobStatus."""

    id: str
    status: str


class JobIds(Answer, frozen=True):
    """All jobs that the server knows, the newest first."""

    jobs: list[JobId]


class TaskCounts(Answer, frozen=True):
    """Tasks by state."""

    total: int
    created: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0


class JobTimes(Answer, frozen=True):
    """What all answers about a job begin with."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int
    """-1: it has not ended."""
    duration: int


class JobSummary(JobTimes, frozen=True):
    """One job in a list."""

    last_modification: int
    """When its state changed last."""
    tasks: TaskCounts
    why: str = ""
    """What limits it, in a few words; nothing: that is not known."""


class JobSummaries(Answer, frozen=True):
    """All jobs that the server knows, the newest first."""

    jobs: list[JobSummary]


class Rates(Answer, frozen=True):
    """Over the last ten seconds; of a job that has ended, over its life."""

    in_per_s: float = 0.0
    """Records; of a source, those that it has made."""
    out_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0


class Totals(Answer, frozen=True):
    """Counts and times since the job began, over all attempts."""

    read_records: int = 0
    """For a source, the records that it has made."""
    read_bytes: int = 0
    write_records: int = 0
    write_bytes: int = 0
    accumulated_busy_time: float = 0.0
    accumulated_backpressured_time: float = 0.0
    accumulated_idle_time: float = 0.0


class OperatorDetails(Answer, frozen=True):
    """One operator of a chain, all its subtasks together."""

    # In the order of ``OperatorFigures``, from which they are filled.

    name: str
    records_in: int
    records_out: int
    records_skipped: int = 0
    dead_letters: int = 0
    late_records_dropped: int = 0
    most_late_ms: int = 0
    """How much too late the latest of them came."""


class TasksActivity(Answer, frozen=True, kw_only=True):
    """What vertices and subtasks have in common; shares are those of the last ten seconds."""

    status: str
    metrics: Totals
    rates: Rates
    busy: float
    backpressured: float
    soft_backpressured: float
    hard_backpressured: float
    idle: float
    cpu: float
    watermark: int | None
    """The lowest of all tasks; null: there is none yet."""
    watermark_lag_ms: float | None
    latency_p50_ms: float | None
    """From the sources to here, by the latency markers of the last half minute; null: none came."""
    latency_p99_ms: float | None
    state_bytes: int | None
    """Null: unknown."""
    lag_records: int | None = None
    """What a source has not read yet of what waits outside; null: unknown."""
    lag_bytes: int | None = None
    lag_ms: float | None = None


class VertexDetails(TasksActivity, frozen=True, kw_only=True):
    """One vertex of the job graph: all its subtasks together."""

    id: str
    name: str
    operators: list[OperatorDetails]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    is_source: bool
    tasks: dict[str, int]
    """How many subtasks are in which state."""
    column: int
    """Where it stands in a layered drawing, from left to right, and below from top to bottom."""
    row: int
    max_busy: float
    """Busy share of the busiest subtask."""
    max_backpressured: float


class EdgeDetails(Answer, frozen=True):
    """One edge of the job graph: all its channels together."""

    source: str
    target: str
    ship: str
    output: int
    gate: int
    records_per_s: float
    bytes_per_s: float
    backlog: int
    """Buffers that wait at both ends."""


class JobDetails(JobTimes, frozen=True):
    """A job with its graph, as the page draws it every second."""

    now: int
    timestamps: dict[str, int]
    """When each JobStatus was last reached."""
    restarts: int
    batch: bool
    vertices: list[VertexDetails]
    edges: list[EdgeDetails]
    latest_failure: FailureRecord | None
    why: Diagnosis | None
    """What limits it, from counters alone; null: nobody has looked at it yet."""

    @property
    def seconds(self) -> float:
        """How long it has run."""
        end_ms = self.end_time if self.end_time > 0 else self.now
        return max(0, end_ms - self.start_time) / 1000


class SubtaskDetails(TasksActivity, frozen=True, kw_only=True):
    """One task."""

    # Fields that are named as in ``TaskFigures`` are filled from there.
    subtask: int
    slot: int
    host: str
    """``host:pid`` of its task manager; nothing: unknown."""
    input_watermarks: list[int | None]
    queued_in: int
    queued_out: int
    buffer_size: int
    in_flight_ms: float
    gates: Sequence[GateFigures]
    outputs: Sequence[OutputFigures]
    operators: Sequence[OperatorFigures]
    async_calls: Sequence[AsyncFigures]
    batch_calls: Sequence[BatchFigures]
    user: Sequence[UserFigure]


class VertexSubtasks(VertexDetails, frozen=True, kw_only=True):
    """A vertex with its subtasks, those that have reported."""

    subtasks: list[SubtaskDetails]
    now: int


class SubtaskBackpressure(Answer, frozen=True):
    """How much of its time a subtask waits for buffers; ratios are over the last ten seconds."""

    subtask: int
    backpressure_level: str
    """``ok`` up to a tenth of the time, ``low`` up to a half, ``high`` above."""
    ratio: float
    idle_ratio: float
    busy_ratio: float
    soft_ratio: float
    hard_ratio: float


class VertexBackpressure(Answer, frozen=True):
    """Back pressure of a vertex, as Flink's path of that name answers it."""

    status: str
    backpressure_level: str
    """The level of the subtask that waits most."""
    end_timestamp: int
    subtasks: list[SubtaskBackpressure]


class MetricValue(Answer, frozen=True):
    """A metric; without a value if only names were asked for."""

    id: str
    value: str | None = None


class MetricSummary(Answer, frozen=True):
    """A metric of all subtasks of a vertex together; only its name if that was asked for."""

    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None


class SeriesPoint(msgspec.Struct, frozen=True, array_like=True):
    """A moment, or the mean of several."""

    at_ms: int
    """Milliseconds since 1970."""
    in_per_s: float
    """Records of all sources."""
    out_per_s: float
    """Records into the vertices without outputs."""
    latency_p50_ms: float
    """Latency at the vertices without outputs; -1: none was measured."""
    latency_p99_ms: float
    watermark_lag_ms: float
    """-1: there is no watermark."""
    vertices: tuple[tuple[float, float, float, float], ...]
    """By vertex: records in a second, busy, back-pressured, idle."""


class JobSeries(msgspec.Struct, frozen=True):
    """All points, the oldest first."""

    vertices: tuple[str, ...]
    """Their names."""
    points: tuple[SeriesPoint, ...]
    restarts: tuple[int, ...] = ()
    """When the job was seen to have restarted, since 1970; the last hundred."""


class JobConfiguration(Answer, frozen=True):
    """Settings of a job as they were given; secrets are hidden."""

    jid: str
    name: str
    settings: dict[str, str]


class PlanGraph(Answer, frozen=True):
    """The job graph as Flink's JSON plan has it."""

    jid: str
    name: str
    type: str
    """``STREAMING`` or ``BATCH``."""
    nodes: list[dict[str, Any]]


class JobPlan(Answer, frozen=True):
    """The job graph, and a drawing of it."""

    plan: PlanGraph
    svg: str


class JobExceptions(Answer, frozen=True):
    """Why attempts of the job have failed, the newest first."""

    exceptions: list[FailureRecord]
    truncated: bool
    """There were more."""


class CheckpointCount(Answer, frozen=True):
    """Over the life of the job, without savepoints."""

    triggered: int
    completed: int
    failed: int
    in_progress: int


class CheckpointOverview(Answer, frozen=True):
    """The newest first, without the parts of their tasks."""

    counts: CheckpointCount
    restored_from: str
    history: list[CheckpointRecord]


class TaskManagerDetails(TaskManagerFigures, frozen=True, kw_only=True):
    """A process, and the tasks in it."""

    tasks: list[str]


class JobTaskManagers(Answer, frozen=True):
    """The processes of the present attempt that have reported."""

    taskmanagers: list[TaskManagerDetails]


class JobLogLines(Answer, frozen=True):
    """Lines of the log that belong to the job, the oldest first."""

    lines: list[LogLine]
    next: int
    """``after`` of the next request."""


class FlameGraph(Answer, frozen=True):
    """Where the tasks of a vertex spend their time."""

    samples: int
    wall_ms: float
    cpu_ms: float
    subtasks: list[int]
    """The subtasks that were sampled."""
    data: FlameNode


class SubtaskWaiting(WaitingRecords, frozen=True, kw_only=True):
    """What waits in front of a subtask."""

    subtask: int


class SubtaskChannels(ChannelTable, frozen=True, kw_only=True):
    """Channels of a subtask."""

    subtask: int


class RequestId(Answer, frozen=True):
    """What was asked for is under way; its result is asked for by this id."""

    request_id: str


class RequestStatus(Answer, frozen=True):
    """Whether it is done."""

    id: str
    """``IN_PROGRESS`` or ``COMPLETED``."""


class SavepointResult(Answer, frozen=True):
    """Where the savepoint is, or why there is none."""

    location: str | None = None
    failure_cause: str | None = None


class SavepointStatus(Answer, frozen=True):
    """How far a savepoint has come."""

    status: RequestStatus
    operation: SavepointResult | None = None


class StopOrder(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Body of a request to end a job with a savepoint."""

    target_directory: str | None = None
    """Null: below that of the settings."""
    drain: bool = False
    """Before the job ends, all windows and timers fire."""


class SavepointOrder(StopOrder, frozen=True):
    """Body of a request for a savepoint."""

    cancel_job: bool = False
    """The job ends with the savepoint."""
