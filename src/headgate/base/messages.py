"""Messages between the driver and its task managers, in msgpack.

A task manager connects to the driver, both prove that they know the job's secret (``Hello`` to
``Welcome``), then it registers and gets its tasks, in frames that are sealed. Every message of a
job names its *run*, so that nothing of an earlier attempt is taken for the present one. Nothing
here is pickled, except what is bytes already: the job's code and an exception.
"""

from enum import Enum
from typing import Annotated, Final, TypeAlias

import msgspec

from headgate.base.checkpoints import (
    CheckpointFigures,
    CheckpointOptions,
    SplitData,
    SubtaskState,
    TaskRestore,
)
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.figures import (
    COUNT,
    MAX,
    MIN,
    SUM,
    UNKNOWN,
    AsyncFigures,
    BatchFigures,
    GateFigures,
    LatencyFigures,
    MetricFamily,
    MetricKind,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
)
from headgate.base.inspections import Answer, Found, Inspection, Question
from headgate.base.job_records import LogLine

CONTROL_VERSION: Final = 6
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

Address: TypeAlias = tuple[str, int]
"""Host (numeric) and port."""

Nonce: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
ProofBytes: TypeAlias = Annotated[
    bytes, msgspec.Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)
]


# Before both sides are proven.


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Task manager: I belong to this job."""

    version: int
    job: str
    nonce: Nonce


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """Driver: I know the secret; do you?"""

    nonce: Nonce
    proof: ProofBytes


class Proof(msgspec.Struct, frozen=True, tag=True):
    """Task manager: I know it, too."""

    proof: ProofBytes


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Driver: go on."""


# Parts of messages.


class TaskState(Enum):
    """How far a task has come; the table of its steps is in ``core/task/life_cycle``."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in (TaskState.FINISHED, TaskState.CANCELLED, TaskState.FAILED)


class ChannelOrder(msgspec.Struct, frozen=True, array_like=True):
    """One channel of a gate: which subpartition of which partition, made by which task."""

    partition: str
    subpartition: int
    producer: str


class OutputOrder(msgspec.Struct, frozen=True, array_like=True):
    """One partition that a task writes; ``kind`` is the name of a PartitionKind."""

    partition: str
    kind: str
    subpartitions: int


class TaskOrder(msgspec.Struct, frozen=True):
    """One task of the job, as the plan has placed it."""

    id: str
    vertex: int
    subtask: int
    slot: int
    outputs: tuple[OutputOrder, ...] = ()
    gates: tuple[tuple[ChannelOrder, ...], ...] = ()
    restore: TaskRestore | None = None
    """The state that it is restored with; None: it begins without state."""

    @property
    def producers(self) -> list[str]:
        """The tasks it reads from, each once, in the order of its channels."""
        return list(dict.fromkeys(channel.producer for gate in self.gates for channel in gate))


class CheckpointOrder(msgspec.Struct, frozen=True):
    """How the tasks of a run take checkpoints, and where they read and write them."""

    folder: str
    """The storage; empty: only savepoints are taken, each in a directory of its own."""
    job: str
    """Whose folder it is within the storage."""
    exactly_once: bool = True
    overtake_after_ms: int | None = None
    """When barriers begin to overtake records; 0: at once; None: never."""
    inline_bytes: int = 20 * 1024
    """So much state of a task travels in the metadata instead of a file."""
    incremental: bool = False
    restored_from: str = ""
    """The checkpoint or savepoint that ``TaskOrder.restore`` speaks of; empty: none."""
    timeout_ms: int = 600_000
    """What is complete must be committed within this time."""
    digests: bool = False
    """Whether tasks tell the digests of what they write, because the driver signs them."""


class Failure(msgspec.Struct, frozen=True):
    """An exception, reported to another process."""

    kind: str
    """The class of the exception, with its module."""
    message: str
    operator: str = ""
    """Whose function raised it, if that is known."""
    traceback: str = ""
    exception: bytes | None = None
    """Itself, pickled, if it can be."""
    is_consequence: bool = False
    """It follows from a failure elsewhere: a lost peer, a failed producer."""
    is_final: bool = False
    """It would be there again in every attempt: the program or its settings are wrong."""
    is_damage: bool = False
    """The checkpoint that the task was to go on from cannot be read."""
    is_outside: bool = False
    """Something that the job depends on has failed; it may be well again soon."""
    record: str = ""
    """The record that the function was at, in short; nothing: it is not known."""

    @property
    def frames(self) -> str:
        """The traceback; nothing if it is one line, which says what the message says."""
        text = self.traceback.rstrip()
        return text if "\n" in text else ""


class UserFigure(msgspec.Struct, frozen=True, array_like=True):
    """A counter, gauge, meter or distribution that a user's function has registered."""

    operator: str
    scope: tuple[str, ...]
    """The groups it is in."""
    name: str
    kind: str
    values: dict[str, int | float]
    """By part: ``count``, ``value``, ``rate``, ``sum``, ``min``, ``max``."""


class TaskFigures(msgspec.Struct, frozen=True):
    """Figures of one task: what it has done so far, and what waits at its inputs and outputs.

    In the driver, counts and times cover all attempts. Busy, back-pressured and idle time add up to
    the time that the task has run; soft and hard back pressure to ``backpressured_ms``.
    """

    task: str
    vertex: int
    subtask: int
    state: TaskState
    records_in: Annotated[
        int,
        MetricFamily(
            "headgate_task_records_in_total",
            "Records from other tasks; of a source, the records that it has read.",
            "numRecordsIn",
            read="records_taken",
        ),
    ] = 0
    records_out: Annotated[
        int,
        MetricFamily("headgate_task_records_out_total", "Records to other tasks.", "numRecordsOut"),
    ] = 0
    bytes_in: Annotated[
        int,
        MetricFamily(
            "headgate_task_bytes_in_total", "Serialized records from other tasks.", "numBytesIn"
        ),
    ] = 0
    bytes_out: Annotated[
        int,
        MetricFamily(
            "headgate_task_bytes_out_total", "Serialized records to other tasks.", "numBytesOut"
        ),
    ] = 0
    buffers_in: Annotated[
        int,
        MetricFamily(
            "headgate_task_buffers_in_total",
            "Buffers from other tasks.",
            "numBuffersInLocal + numBuffersInRemote",
        ),
    ] = 0
    buffers_out: Annotated[
        int,
        MetricFamily("headgate_task_buffers_out_total", "Buffers to other tasks.", "numBuffersOut"),
    ] = 0
    busy_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_busy_seconds_total",
            "Time spent processing. Busy, back-pressured and idle time add up to the time that "
            "the subtasks have run.",
            "accumulateBusyTimeMs, busyTimeMsPerSecond",
        ),
    ] = 0.0
    backpressured_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_backpressured_seconds_total",
            "Time spent waiting for a free output buffer, soft and hard.",
            "accumulateBackPressuredTimeMs, backPressuredTimeMsPerSecond",
        ),
    ] = 0.0
    soft_backpressured_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_soft_backpressured_seconds_total",
            "Time in which the next step was not begun, because an output had no free buffer.",
            "softBackPressuredTimeMsPerSecond",
        ),
    ] = 0.0
    hard_backpressured_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_hard_backpressured_seconds_total",
            "Time blocked in the middle of a step, because an output had no free buffer.",
            "hardBackPressuredTimeMsPerSecond",
        ),
    ] = 0.0
    idle_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_idle_seconds_total",
            "Time spent waiting for input.",
            "accumulateIdleTimeMs, idleTimeMsPerSecond",
        ),
    ] = 0.0
    cpu_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_cpu_seconds_total",
            "CPU time of the tasks' threads. Much less than the busy time: the functions wait.",
        ),
    ] = 0.0
    """CPU time of the task's thread; 0: the platform does not tell."""
    runnable_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_runnable_seconds_total",
            "Time in which the tasks' threads could have run, had a core been free.",
        ),
    ] = 0.0
    """How long the thread could have run, had a core been free; 0: the platform does not tell."""
    commit_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_commit_seconds_total",
            "Time spent committing what checkpoints had prepared.",
        ),
    ] = 0.0
    queued_in: Annotated[
        int,
        MetricFamily(
            "headgate_task_input_queued_buffers",
            "Buffers that have arrived and were not read yet.",
            "buffers.inputQueueLength",
        ),
    ] = 0
    queued_out: Annotated[
        int,
        MetricFamily(
            "headgate_task_output_queued_buffers",
            "Buffers that are written and have not left yet.",
            "buffers.outputQueueLength",
        ),
    ] = 0
    gates: Annotated[
        tuple[GateFigures, ...],
        MetricFamily(
            "headgate_task_input_pool_usage_ratio",
            "Share of the input buffers, exclusive and floating, that hold data.",
            "buffers.inPoolUsage",
            MAX,
            read="input_usage",
        ),
    ] = ()
    outputs: Annotated[
        tuple[OutputFigures, ...],
        COUNT,
        MetricFamily(
            "headgate_task_output_pool_usage_ratio",
            "Share of the output buffers that are in use; above 1 with the overdraft.",
            "buffers.outPoolUsage",
            MAX,
            read="output_usage",
        ),
    ] = ()
    """In the order of ``JobEdge.output``."""
    buffer_size: Annotated[
        int,
        MetricFamily(
            "headgate_task_buffer_size_bytes",
            "What producers put into a buffer for a subtask at most (buffer debloating).",
            "debloatedBufferSize",
            MAX,
            unknown=0,
        ),
    ] = 0
    """Bytes that producers put into a buffer for this task at most; 0: it has no say."""
    in_flight_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_in_flight_seconds",
            "In about this time what waits in front of a subtask will be consumed.",
            "estimatedTimeToConsumeBuffersMs",
            MAX,
        ),
    ] = 0.0
    """In about this time it will have consumed what waits in front of it, at both ends."""
    state_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_task_state_bytes",
            "State of the operators: as RocksDB estimates it, or as the last checkpoint had it.",
            "rocksdb.estimate-live-data-size",
        ),
    ] = UNKNOWN
    input_watermarks_ms: Annotated[
        tuple[int, ...],
        MetricFamily(
            "headgate_task_input_watermark_timestamp_seconds",
            "Watermark of the inputs, in seconds since 1970.",
            "currentInputWatermark",
            MIN,
            read="input_time_ms",
        ),
    ] = ()
    """The last watermark of each input."""
    output_watermark_ms: Annotated[
        int,
        MetricFamily(
            "headgate_task_output_watermark_timestamp_seconds",
            "Watermark of the output, in seconds since 1970.",
            "currentOutputWatermark",
            MIN,
            read="output_time_ms",
        ),
        MetricFamily(
            "headgate_watermark_lag_seconds",
            "How far the watermark of the inputs (of a source: of its output) is behind the clock.",
            "watermarkLag",
            MIN,
            read="event_time_ms",
            is_age=True,
        ),
    ] = MIN_WATERMARK_MS
    splits: Annotated[
        int,
        MetricFamily("headgate_source_splits", "Splits that the source still reads.", unknown=0),
    ] = 0
    """Splits that its source still reads; 0: it has no source, or that has ended."""
    unassigned_splits: Annotated[
        int,
        MetricFamily(
            "headgate_source_unassigned_splits",
            "Splits of the source that no task has yet; counted with its first task.",
            "unassignedSplits",
            unknown=0,
        ),
    ] = 0
    """Splits of its source that no task has yet; the driver counts them with the first task."""
    lag_records: Annotated[
        int,
        MetricFamily(
            "headgate_source_lag_records",
            "Records that are left of the splits which tasks of the source have, where it knows.",
            "pendingRecords",
        ),
    ] = UNKNOWN
    lag_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_source_lag_bytes",
            "Bytes that are left of the splits which tasks of the source have, where it knows.",
            "pendingBytes",
        ),
    ] = UNKNOWN
    lag_ms: Annotated[
        float,
        MetricFamily(
            "headgate_source_lag_seconds",
            "How old the next record of the source is, where it knows.",
            "currentFetchEventTimeLag",
            MAX,
        ),
    ] = UNKNOWN
    latency: Annotated[
        LatencyFigures | None,
        MetricFamily(
            "headgate_record_latency_seconds",
            "How long latency markers took from their sources to the task; "
            "`metrics.latency.interval` turns them on.",
            "latency",
            declared_kind=MetricKind.HISTOGRAM,
            attempts=SUM,
        ),
    ] = None
    latency_p50_ms: float = 0.0
    """From the sources to here, by the latency markers of the last half minute; 0: none came."""
    latency_p99_ms: float = 0.0
    records_made: Annotated[int, COUNT] = 0
    """Records of its source; a task that has one reads none from others."""
    user: tuple[UserFigure, ...] = ()
    """Figures that the user's functions have registered."""
    slot: int = 0
    """The slot, and so the task manager, that it runs in."""
    operators: Annotated[tuple[OperatorFigures, ...], COUNT] = ()
    """In the order of the chain, its head first."""
    async_calls: Annotated[tuple[AsyncFigures, ...], COUNT] = ()
    """Operators that make asynchronous calls."""
    batch_calls: Annotated[tuple[BatchFigures, ...], COUNT] = ()
    """Operators that make asynchronous calls in batches."""
    declared_rate: float = UNKNOWN
    """Records a second that its source gives at most, in all tasks together, as it says itself."""

    @property
    def records_taken(self) -> int:
        """From other tasks, or from the outside."""
        return self.records_in + self.records_made

    @property
    def full_ms(self) -> float:
        """Its records waited for a place in a queue of asynchronous calls."""
        return sum(calls.full_ms for calls in self.async_calls) if self.async_calls else 0.0

    @property
    def throttled_ms(self) -> float:
        """A batch of records was ready, and the rate limit of its calls allowed none."""
        return sum(batch.throttled_ms for batch in self.batch_calls) if self.batch_calls else 0.0

    @property
    def input_usage(self) -> float | None:
        used = sum(gate.exclusive_in_use + gate.floating_in_use for gate in self.gates)
        total = sum(gate.exclusive_total + gate.pool_size for gate in self.gates)
        return used / total if total else None

    @property
    def output_usage(self) -> float | None:
        total = sum(output.pool_size for output in self.outputs)
        return sum(output.pool_in_use for output in self.outputs) / total if total else None

    @property
    def input_time_ms(self) -> int | None:
        return _time(*self.input_watermarks_ms) if self.gates else None

    @property
    def output_time_ms(self) -> int | None:
        return _time(self.output_watermark_ms)

    @property
    def event_time_ms(self) -> int | None:
        """The event time of its inputs; a source has only that of its output."""
        return _time(*self.input_watermarks_ms) if self.gates else self.output_time_ms


def _time(*watermarks_ms: int) -> int | None:
    """The smallest, if it is a time: neither "none yet" nor "the end"."""
    lowest_ms = min(watermarks_ms, default=MIN_WATERMARK_MS)
    return lowest_ms if MIN_WATERMARK_MS < lowest_ms < MAX_WATERMARK_MS else None


class RunMessage(msgspec.Struct, frozen=True, tag=True):
    """Base of messages that concern one run of the job; ``run`` names it."""

    run: str


# Task manager → driver.


class Register(msgspec.Struct, frozen=True, tag=True):
    """A task manager is ready and asks for the tasks of this slot."""

    stage: str
    """Which execution of the job this is; the run is the job's, the stage's, and counted."""
    slot: int
    data_address: Address
    pid: int = 0
    host: str = ""


class StateLineOpened(msgspec.Struct, frozen=True, tag=True):
    """Reads of state may be asked for on this connection; sent instead of ``Register``.

    By a task manager that has registered, on another connection.
    """

    stage: str
    slot: int
    pid: int
    host: str


class TaskManagerFailed(msgspec.Struct, frozen=True, tag=True):
    """A task manager cannot serve this slot; sent instead of ``Register``."""

    stage: str
    slot: int
    failure: Failure


class TaskChanged(RunMessage, frozen=True):
    """A task has reached another state."""

    task: str
    state: TaskState
    failure: Failure | None = None


class Metrics(RunMessage, frozen=True):
    """Figures of all tasks here, and of their process."""

    figures: list[TaskFigures]
    process: TaskManagerFigures = TaskManagerFigures()


class TimeReported(RunMessage, frozen=True):
    """The watermark of a source task that is aligned with a group; None: it is idle."""

    task: str
    group: str
    watermark_ms: int | None


class CheckpointAcked(RunMessage, frozen=True):
    """A task has written its part of a checkpoint."""

    checkpoint: int
    state: SubtaskState
    figures: CheckpointFigures


class CheckpointDeclined(RunMessage, frozen=True):
    """A task cannot take part in a checkpoint."""

    checkpoint: int
    task: str
    reason: str
    subsumed: bool = False
    """Because a newer one has reached it first."""


class CheckpointWanted(RunMessage, frozen=True):
    """A task waits for a complete checkpoint before it can finish."""

    task: str


class SplitsWanted(RunMessage, frozen=True):
    """A task of a source has opened, or has (nearly) read the splits that it was given."""

    task: str
    count: int
    """So many more; 0: none now."""
    held: int
    """Splits that it has and has not read to their ends."""


class SourceTimeReported(RunMessage, frozen=True):
    """The watermark of a task of an endless source whose splits the driver hands out."""

    task: str
    received: int
    """Splits that it was assigned in this run, all in all."""
    watermark_ms: int
    """What it has emitted; if it rests, the furthest that any of its splits has reached."""
    rests: bool
    """It has nothing to read: no split, or idle ones only."""


class RowsSent(RunMessage, frozen=True):
    """This process has handed so many rows to Spark, all in all, in a run that wants only some."""

    slot: int
    rows: int


class Inspected(RunMessage, frozen=True):
    """What was found at a task; exactly one for each ``Inspect``."""

    id: int
    task: str
    found: Found | None = None
    problem: str = ""
    """Why nothing was found."""


class Logged(RunMessage, frozen=True):
    """Lines of the log of this process, warnings and worse unless the settings say otherwise.

    ``run`` is empty before the first run, and after the last.
    """

    lines: list[LogLine]
    """Their numbers are the driver's."""


# Driver → task manager.


class Deploy(RunMessage, frozen=True):
    """Run these tasks."""

    job: str
    attempt: int
    parameters: dict[str, str]
    tasks: list[TaskOrder]
    places: dict[str, Address | None]
    """Where their producers run, None: here. Who is missing gets a place with ``Placed``."""
    code: bytes | None
    """The job's vertices, shipped; None: they came with an earlier message."""
    checkpoints: CheckpointOrder | None = None
    """None: none are taken, neither by the clock nor by people."""
    rows_wanted: int | None = None
    """How many rows of a DataFrame are enough, all tasks together; None: all of them."""


class Placed(RunMessage, frozen=True):
    """Addresses of producers that were not deployed before; None: the same process."""

    places: dict[str, Address | None]


class TimeAnnounced(RunMessage, frozen=True):
    """The watermark of the slowest source of a group; None: no source waits."""

    group: str
    watermark_ms: int | None


class SplitsAssigned(RunMessage, frozen=True):
    """Splits that a task is to read from now on, after those that it has."""

    task: str
    splits: tuple[SplitData, ...]
    backlog: bool
    """Whether there are others that no task has yet, or none were looked for yet."""
    no_more: bool
    """Whether these are the last ones of the source, for all its tasks."""


class SourceTimeAnnounced(RunMessage, frozen=True):
    """The watermark of the tasks of an endless source that have something to read."""

    task: str
    watermark_ms: int
    """A task that rests emits it as its own."""
    all_rest: bool
    """None of them has anything to read."""
    followed: bool
    """Some task rests: tasks that do not rest report their watermarks."""


class CheckpointTriggered(RunMessage, frozen=True):
    """A task is to begin a checkpoint: a source, or one whose producers have all finished."""

    task: str
    checkpoint: int
    options: CheckpointOptions


class CheckpointCompleted(RunMessage, frozen=True):
    """It is stored: what was prepared for it, and for earlier ones, is to be committed."""

    checkpoint: int


class CheckpointAborted(RunMessage, frozen=True):
    """The checkpoint is aborted."""

    checkpoint: int
    reason: str


class Inspect(RunMessage, frozen=True):
    """A question about a task that runs."""

    id: int
    """Identifies the question; the answer names it."""
    task: str
    what: Inspection


class Cancel(RunMessage, frozen=True):
    """End all tasks and report when they have ended."""

    reason: str
    is_patient: bool = False
    """Whether user code may take its time: the process has rows that would be lost with it."""


class Shutdown(RunMessage, frozen=True):
    """The run is over: close everything and leave."""

    problem: str = ""
    """Why it has not finished; nothing if it has."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The driver has no use for this task manager."""

    reason: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Sent both ways, so that a silent peer is one that is lost."""


Greeting: TypeAlias = Hello | Challenge | Proof | Welcome
ToDriver: TypeAlias = (
    Register
    | StateLineOpened
    | TaskManagerFailed
    | TaskChanged
    | Metrics
    | TimeReported
    | CheckpointAcked
    | CheckpointDeclined
    | CheckpointWanted
    | SplitsWanted
    | SourceTimeReported
    | RowsSent
    | Inspected
    | Logged
    | Heartbeat
    | Question
)
ForSources: TypeAlias = TimeAnnounced | SplitsAssigned | SourceTimeAnnounced
OnCheckpoints: TypeAlias = CheckpointTriggered | CheckpointCompleted | CheckpointAborted
ForTasks: TypeAlias = ForSources | OnCheckpoints
"""Orders that tasks carry out while they run, each in its turn."""
OfRun: TypeAlias = Deploy | Placed | ForTasks | Cancel
"""Orders to the tasks of one run."""
ToTaskManager: TypeAlias = OfRun | Inspect | Shutdown | Refused | Heartbeat
ToVisitor: TypeAlias = Answer | Refused | Heartbeat
"""To a client that only asks a question."""
ControlMessage: TypeAlias = Greeting | ToDriver | ToTaskManager | ToVisitor


class ControlTimes(msgspec.Struct, frozen=True):
    """How long the two sides wait for each other, and how often they report."""

    prove_ms: int = 5_000
    """For a stranger to prove itself and to register."""
    connect_ms: int = 20_000
    """For a task manager to reach the driver, all attempts together."""
    heartbeat_interval_ms: int = 2_000
    heartbeat_timeout_ms: int = 50_000
    """A side that is silent this long is given up."""
    register_ms: int = 300_000
    """After the first task manager, for all others of the run to come."""
    storage_ms: int = 60_000
    """For the storage of checkpoints to answer, before people are told that it does not."""
    start_ms: int = 3_600_000
    """For all task managers to come, and then for all tasks to restore their state and open."""
    settle_ms: int = 1_000
    """After a failure that may follow from another, for the other one to be told."""
    loss_ms: int = 100
    """After the loss of a task manager, which hardly follows from another failure."""
    cancel_ms: int = 30_000
    """After a cancellation, for the user's code to come back."""
    lost_ms: int = 5_000
    """After a cancellation because the driver is gone."""
    leave_ms: int = 5_000
    """For tasks that have told their end to leave their threads, and then for their task manager to
    leave; at least, as a user may give a cancellation less than a busy machine takes for these."""
    metrics_ms: int = 1_000
    """Between two messages with figures."""
    marker_ms: int = 0
    """Between two latency markers of a source; 0: it sends none."""
