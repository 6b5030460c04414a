"""Records that the driver keeps of a job for people: failures, checkpoints, lines of the log.

Law: each list is bounded by whoever keeps it; times are milliseconds since 1970.
"""

from typing import Annotated

import msgspec

from headgate.base.figures import MAX, MetricFamily


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
    took_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_checkpoint_duration_seconds",
            "Last completed checkpoint: from its trigger to the acknowledgement of a subtask.",
            merge=MAX,
        ),
    ]
    """From the trigger to the acknowledgement, as the driver has seen them."""
    align_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_checkpoint_alignment_seconds",
            "Last completed checkpoint: from the first barrier to the last one.",
            "checkpointAlignmentTime",
            MAX,
        ),
    ]
    sync_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_checkpoint_sync_seconds",
            "Last completed checkpoint: how long processing stood still for the copy of the state.",
            merge=MAX,
        ),
    ]
    async_ms: Annotated[
        float,
        MetricFamily(
            "headgate_task_checkpoint_async_seconds",
            "Last completed checkpoint: how long the state was written in the background.",
            merge=MAX,
        ),
    ]
    state_bytes: Annotated[
        int,
        MetricFamily("headgate_task_checkpoint_state_bytes", "Last completed checkpoint: state."),
    ]
    in_flight_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_task_checkpoint_in_flight_bytes",
            "Last completed checkpoint: stored records on their way.",
        ),
    ]
    unaligned: bool


class CheckpointRecord(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint, pending or ended."""

    checkpoint: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoint_id",
            "Number of the last completed checkpoint.",
            "lastCompletedCheckpointId",
        ),
    ]
    kind: str
    """``checkpoint`` or ``savepoint``."""
    status: str
    """``in_progress``, ``completed`` or ``failed``."""
    triggered_at_ms: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoint_age_seconds",
            "How long ago the last completed checkpoint was triggered: a restart would repeat the "
            "records of this time.",
            is_age=True,
        ),
    ]
    took_ms: Annotated[
        float,
        MetricFamily(
            "headgate_checkpoint_duration_seconds",
            "How long the last completed checkpoint took, from its trigger until it was stored.",
            "lastCheckpointDuration",
        ),
    ]
    """So far, or until it was stored or aborted."""
    state_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoint_size_bytes",
            "State in the last completed checkpoint.",
            "lastCheckpointFullSize",
        ),
    ] = 0
    in_flight_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoint_in_flight_bytes",
            "Records on their way that the last completed checkpoint has stored.",
            "lastCheckpointPersistedData",
        ),
    ] = 0
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

    triggered: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoints_triggered_total",
            "Checkpoints that were begun; savepoints are not counted, here and below.",
            "totalNumberOfCheckpoints",
        ),
    ] = 0
    completed: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoints_completed_total",
            "Checkpoints that were completed.",
            "numberOfCompletedCheckpoints",
        ),
    ] = 0
    failed: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoints_failed_total",
            "Checkpoints that have failed or were aborted.",
            "numberOfFailedCheckpoints",
        ),
    ] = 0
    pending: Annotated[
        int,
        MetricFamily(
            "headgate_checkpoints_pending",
            "Checkpoints that are being taken.",
            "numberOfInProgressCheckpoints",
        ),
    ] = 0
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
