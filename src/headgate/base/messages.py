"""What the driver and its task managers tell each other, in msgpack.

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
from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.figures import (
    UNKNOWN,
    AsyncFigures,
    BatchFigures,
    GateFigures,
    LatencyFigures,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
)
from headgate.base.inspections import Found, Inspection
from headgate.base.job_records import LogLine
from headgate.base.questions import Answer, Question

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
    """Task manager: so do I."""

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
    """What it gets back of a checkpoint; None: it begins from nothing."""

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
    """It follows from trouble elsewhere: a lost peer, a failed producer."""
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
    """What one task has done so far, and what waits at its two ends now.

    In the driver, counts and times cover all attempts. Busy, back-pressured and idle time add up to
    the time that the task has run; soft and hard back pressure to ``backpressured_ms``.
    """

    task: str
    vertex: int
    subtask: int
    state: TaskState
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    buffers_in: int = 0
    buffers_out: int = 0
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0
    soft_backpressured_ms: float = 0.0
    """It did not begin a step because an output had no free buffer."""
    hard_backpressured_ms: float = 0.0
    """It was blocked in the middle of a step, because an output had no free buffer."""
    idle_ms: float = 0.0
    cpu_ms: float = 0.0
    """CPU time of the task's thread; 0: the platform does not tell."""
    runnable_ms: float = 0.0
    """How long the thread could have run, had a core been free; 0: the platform does not tell."""
    commit_ms: float = 0.0
    """How long its operators have committed what checkpoints had prepared."""
    queued_in: int = 0
    """Buffers that have arrived and were not read yet."""
    queued_out: int = 0
    """Buffers that are written and have not left yet."""
    buffer_size: int = 0
    """Bytes that producers put into a buffer for this task at most; 0: it has no say."""
    in_flight_ms: float = 0.0
    """In about this time it will have consumed what waits in front of it, at both ends."""
    latency_p50_ms: float = 0.0
    """From the sources to here, by the latency markers of the last half minute; 0: none came."""
    latency_p99_ms: float = 0.0
    input_watermarks_ms: tuple[int, ...] = ()
    """The last watermark of each input."""
    output_watermark_ms: int = MIN_WATERMARK_MS
    records_made: int = 0
    """Records of its source; a task that has one reads none from others."""
    user: tuple[UserFigure, ...] = ()
    """Those of the user's functions."""
    slot: int = 0
    """The slot, and so the task manager, that it runs in."""
    gates: tuple[GateFigures, ...] = ()
    outputs: tuple[OutputFigures, ...] = ()
    """In the order of ``JobEdge.output``."""
    operators: tuple[OperatorFigures, ...] = ()
    """In the order of the chain, its head first."""
    async_calls: tuple[AsyncFigures, ...] = ()
    """One for each operator that makes asynchronous calls."""
    latency: LatencyFigures | None = None
    """None: no latency marker has come."""
    state_bytes: int = UNKNOWN
    """State of its operators: as RocksDB estimates it, or as the last checkpoint had it."""
    splits: int = 0
    """Splits that its source still reads; 0: it has no source, or that has ended."""
    unassigned_splits: int = 0
    """Splits of its source that no task has yet; the driver counts them with the first task."""
    lag_records: int = UNKNOWN
    """Records that its source has not read yet, as far as the source knows."""
    lag_bytes: int = UNKNOWN
    """Bytes that its source has not read yet."""
    lag_ms: float = UNKNOWN
    """How old the next record of its source is."""
    batch_calls: tuple[BatchFigures, ...] = ()
    """One for each operator that makes asynchronous calls in batches."""
    declared_rate: float = UNKNOWN
    """Records a second that its source gives at most, in all tasks together, as it says itself."""


# Task manager → driver.


class Register(msgspec.Struct, frozen=True, tag=True):
    """I am here and want the tasks of this slot."""

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
    """I cannot serve this slot; sent instead of ``Register``."""

    stage: str
    slot: int
    failure: Failure


class TaskChanged(msgspec.Struct, frozen=True, tag=True):
    """A task has reached another state."""

    run: str
    task: str
    state: TaskState
    failure: Failure | None = None


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """Figures of all tasks here, and of their process."""

    run: str
    figures: list[TaskFigures]
    process: TaskManagerFigures = TaskManagerFigures()


class TimeReported(msgspec.Struct, frozen=True, tag=True):
    """How far a source task is that is aligned with a group; None: it is idle."""

    run: str
    task: str
    group: str
    watermark_ms: int | None


class CheckpointAcked(msgspec.Struct, frozen=True, tag=True):
    """A task has written its part of a checkpoint."""

    run: str
    checkpoint: int
    state: SubtaskState
    figures: CheckpointFigures


class CheckpointDeclined(msgspec.Struct, frozen=True, tag=True):
    """A task cannot take part in a checkpoint."""

    run: str
    checkpoint: int
    task: str
    reason: str
    subsumed: bool = False
    """Because a newer one has reached it first."""


class CheckpointWanted(msgspec.Struct, frozen=True, tag=True):
    """A task waits for a complete checkpoint before it can finish."""

    run: str
    task: str


class SplitsWanted(msgspec.Struct, frozen=True, tag=True):
    """A task of a source has opened, or has (nearly) read the splits that it was given."""

    run: str
    task: str
    count: int
    """So many more; 0: none now."""
    held: int
    """Splits that it has and has not read to their ends."""


class SourceTimeReported(msgspec.Struct, frozen=True, tag=True):
    """How far a task of an endless source is whose splits the driver hands out."""

    run: str
    task: str
    received: int
    """Splits that it was assigned in this run, all in all."""
    watermark_ms: int
    """What it has emitted; if it rests, the furthest that any of its splits has reached."""
    rests: bool
    """It has nothing to read: no split, or idle ones only."""


class RowsSent(msgspec.Struct, frozen=True, tag=True):
    """This process has handed so many rows to Spark, all in all, in a run that wants only some."""

    run: str
    slot: int
    rows: int


class Inspected(msgspec.Struct, frozen=True, tag=True):
    """What was found at a task; exactly one for each ``Inspect``."""

    run: str
    id: int
    task: str
    found: Found | None = None
    problem: str = ""
    """Why nothing was found."""


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Lines of the log of this process, warnings and worse unless the settings say otherwise."""

    run: str
    """Empty before the first run, and after the last."""
    lines: list[LogLine]
    """Their numbers are the driver's."""


# Driver → task manager.


class Deploy(msgspec.Struct, frozen=True, tag=True):
    """Run these tasks."""

    run: str
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


class Placed(msgspec.Struct, frozen=True, tag=True):
    """Producers that had no place have one now; None: here."""

    run: str
    places: dict[str, Address | None]


class TimeAnnounced(msgspec.Struct, frozen=True, tag=True):
    """How far the slowest source of a group is; None: there is nobody to wait for."""

    run: str
    group: str
    watermark_ms: int | None


class SplitsAssigned(msgspec.Struct, frozen=True, tag=True):
    """Splits that a task is to read from now on, after those that it has."""

    run: str
    task: str
    splits: tuple[SplitData, ...]
    backlog: bool
    """Whether there are others that no task has yet, or none were looked for yet."""
    no_more: bool
    """Whether these are the last ones of the source, for all its tasks."""


class SourceTimeAnnounced(msgspec.Struct, frozen=True, tag=True):
    """How far the tasks of an endless source are that have something to read."""

    run: str
    task: str
    watermark_ms: int
    """A task that rests emits it as its own."""
    all_rest: bool
    """None of them has anything to read."""
    followed: bool
    """Some task rests: one that does not is to report how far it is."""


class CheckpointTriggered(msgspec.Struct, frozen=True, tag=True):
    """A task is to begin a checkpoint: a source, or one whose producers have all finished."""

    run: str
    task: str
    checkpoint: int
    options: CheckpointOptions


class CheckpointCompleted(msgspec.Struct, frozen=True, tag=True):
    """It is stored: what was prepared for it, and for earlier ones, is to be committed."""

    run: str
    checkpoint: int


class CheckpointAborted(msgspec.Struct, frozen=True, tag=True):
    """The checkpoint is aborted."""

    run: str
    checkpoint: int
    reason: str


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Look at a task while it runs."""

    run: str
    id: int
    """Identifies the question; the answer names it."""
    task: str
    what: Inspection


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End all tasks and tell when they have ended."""

    run: str
    reason: str
    is_patient: bool = False
    """Whether user code may take its time: the process has rows that would be lost with it."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """The run is over; close everything and go."""

    run: str
    problem: str = ""
    """Why it has not finished; nothing if it has."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The driver has no use for this task manager."""

    reason: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Both ways: I live."""


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
OfRun: TypeAlias = (
    Deploy
    | Placed
    | TimeAnnounced
    | SplitsAssigned
    | SourceTimeAnnounced
    | CheckpointTriggered
    | CheckpointCompleted
    | CheckpointAborted
    | Cancel
)
"""Orders to the tasks of one run."""
ToTaskManager: TypeAlias = OfRun | Inspect | Shutdown | Refused | Heartbeat
ToVisitor: TypeAlias = Answer | Refused | Heartbeat
"""To somebody who has only a question."""
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
