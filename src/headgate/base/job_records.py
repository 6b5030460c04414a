"""What the driver keeps of a job for people to look at: failures, checkpoints, lines of the log.

Law: each list is bounded by whoever keeps it; times are milliseconds since 1970.
"""

import msgspec


class FailureRecord(msgspec.Struct, frozen=True):
    """A failure that ended an attempt of a job, or the job: the root cause of that end."""

    at_ms: int
    attempt: int
    """That it ended, or after which none could begin; the first is 0."""
    kind: str
    """The class of the exception, with its module."""
    message: str
    task: str = ""
    """The task that failed by itself; empty: none did, a process was lost or could not start."""
    vertex: int = -1
    subtask: int = -1
    host: str = ""
    """``host:pid`` of the task manager that it is about; empty: not known, or the driver."""
    operator: str = ""
    """Whose function raised it, if that is known."""
    record: str = ""
    """The record that the function was at, in short."""
    traceback: str = ""
    restarted: bool = False
    """Another attempt has begun after it."""


class CheckpointPart(msgspec.Struct, frozen=True, array_like=True):
    """One task's part of a checkpoint."""

    task: str
    vertex: int
    subtask: int
    took_ms: float
    """From the trigger to the acknowledgement, as the driver has seen them."""
    align_ms: float
    sync_ms: float
    async_ms: float
    state_bytes: int
    in_flight_bytes: int
    unaligned: bool


class CheckpointRecord(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint, pending or ended."""

    checkpoint: int
    kind: str
    """``checkpoint`` or ``savepoint``."""
    status: str
    """``in_progress``, ``completed`` or ``failed``."""
    triggered_at_ms: int
    took_ms: float
    """So far, or until it was stored or aborted."""
    state_bytes: int = 0
    in_flight_bytes: int = 0
    unaligned: bool = False
    path: str = ""
    """Where it is stored, or will be."""
    problem: str = ""
    """Why it has failed."""
    tasks: int = 0
    """Tasks that have to answer; those that had finished before it need not."""
    parts: tuple[CheckpointPart, ...] = ()
    """One for each task that has answered; of many tasks, only the newest checkpoints keep them."""


class CheckpointsRecord(msgspec.Struct, frozen=True):
    """Counts over the job's life, without savepoints, and the newest of both, newest first."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    pending: int = 0
    restored_from: str = ""
    """Path of what the present attempt was restored from; empty: it began from nothing."""
    records: tuple[CheckpointRecord, ...] = ()


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line of a worker's or the driver's log that belongs to the job."""

    number: int
    """Grows from line to line, so that one can ask for what is new."""
    at_ms: int
    level: str
    logger: str
    message: str
    task: str = ""
    """Name of the vertex, as the log format has it."""
    subtask: int = -1
    attempt: int = -1
    operator: str = ""
    host: str = ""
    """``driver``, or ``host:pid``."""
    traceback: str = ""
