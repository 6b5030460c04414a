"""The metrics of jobs, with the names, meanings and Flink's equivalents of all of them.

``prometheus`` exposes them, and the table in docs/metrics.md is made of them. A table belongs to
one kind of subject: the job, its tasks, their gates, outputs and operators, parts of the last
checkpoint, processes. Law: see ``metric_family``.
"""

from dataclasses import dataclass
from typing import Final

from headgate.api.job import JobStatus
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.figures import (
    UNKNOWN,
    GateFigures,
    OperatorFigures,
    OutputFigures,
    TaskManagerFigures,
)
from headgate.base.job_records import CheckpointPart, CheckpointRecord, CheckpointsRecord
from headgate.base.messages import TaskFigures
from headgate.observe.metric_family import (
    JOB_LABELS,
    TASK_LABELS,
    MetricFamily,
    MetricKind,
    MetricMerge,
    SpecialMetric,
)

MAX, MIN = MetricMerge.MAX, MetricMerge.MIN


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is known of a job itself, when somebody asks."""

    status: JobStatus
    started_at_ms: int
    ended_at_ms: int | None
    restarts: int
    checkpoints: CheckpointsRecord

    @property
    def last_checkpoint(self) -> CheckpointRecord | None:
        """The newest that is complete; savepoints are not asked for."""
        for record in self.checkpoints.records:
            if record.kind == "checkpoint" and record.status == "completed":
                return record
        return None


def _known(value: float) -> float | None:
    return None if value == UNKNOWN else value


def _seconds(value_ms: float) -> float | None:
    return None if value_ms == UNKNOWN else value_ms / 1000


def _watermark(*watermarks_ms: int) -> int | None:
    """The smallest, if it is a time: neither "none yet" nor "the end"."""
    lowest_ms = min(watermarks_ms, default=MIN_WATERMARK_MS)
    return lowest_ms if MIN_WATERMARK_MS < lowest_ms < MAX_WATERMARK_MS else None


def _watermark_s(*watermarks_ms: int) -> float | None:
    watermark_ms = _watermark(*watermarks_ms)
    return None if watermark_ms is None else watermark_ms / 1000


def _latest_watermark(task: TaskFigures) -> int | None:
    """Of its inputs; a source has only that of its output."""
    return _watermark(*(task.input_watermarks_ms if task.gates else (task.output_watermark_ms,)))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _input_usage(task: TaskFigures) -> float | None:
    used = sum(gate.exclusive_in_use + gate.floating_in_use for gate in task.gates)
    return _share(used, sum(gate.exclusive_total + gate.pool_size for gate in task.gates))


def _output_usage(task: TaskFigures) -> float | None:
    used = sum(output.pool_in_use for output in task.outputs)
    return _share(used, sum(output.pool_size for output in task.outputs))


JOB_FAMILIES: Final[tuple[MetricFamily[JobRecord], ...]] = (
    MetricFamily(
        "headgate_job_start_timestamp_seconds",
        "When the job was started, in seconds since 1970.",
        lambda job: job.started_at_ms / 1000,
        flink="uptime",
    ),
    MetricFamily(
        "headgate_job_end_timestamp_seconds",
        "When the job has ended; missing while it runs.",
        lambda job: None if job.ended_at_ms is None else job.ended_at_ms / 1000,
    ),
    MetricFamily(
        "headgate_job_restarts_total",
        "Restarts after failures.",
        lambda job: job.restarts,
        flink="numRestarts",
    ),
    MetricFamily(
        "headgate_checkpoints_triggered_total",
        "Checkpoints that were begun; savepoints are not counted, here and below.",
        lambda job: job.checkpoints.triggered,
        flink="totalNumberOfCheckpoints",
    ),
    MetricFamily(
        "headgate_checkpoints_completed_total",
        "Checkpoints that were completed.",
        lambda job: job.checkpoints.completed,
        flink="numberOfCompletedCheckpoints",
    ),
    MetricFamily(
        "headgate_checkpoints_failed_total",
        "Checkpoints that have failed or were aborted.",
        lambda job: job.checkpoints.failed,
        flink="numberOfFailedCheckpoints",
    ),
    MetricFamily(
        "headgate_checkpoints_pending",
        "Checkpoints that are being taken.",
        lambda job: job.checkpoints.pending,
        flink="numberOfInProgressCheckpoints",
    ),
)

LAST_CHECKPOINT_FAMILIES: Final[tuple[MetricFamily[CheckpointRecord], ...]] = (
    MetricFamily(
        "headgate_checkpoint_id",
        "Number of the last completed checkpoint.",
        lambda last: last.checkpoint,
        flink="lastCompletedCheckpointId",
    ),
    MetricFamily(
        "headgate_checkpoint_duration_seconds",
        "How long the last completed checkpoint took, from its trigger until it was stored.",
        lambda last: last.took_ms / 1000,
        flink="lastCheckpointDuration",
    ),
    MetricFamily(
        "headgate_checkpoint_size_bytes",
        "State in the last completed checkpoint.",
        lambda last: last.state_bytes,
        flink="lastCheckpointFullSize",
    ),
    MetricFamily(
        "headgate_checkpoint_in_flight_bytes",
        "Records on their way that the last completed checkpoint has stored.",
        lambda last: last.in_flight_bytes,
        flink="lastCheckpointPersistedData",
    ),
    MetricFamily(
        "headgate_checkpoint_age_seconds",
        "How long ago the last completed checkpoint was triggered: a restart would repeat the "
        "records of this time.",
        lambda last: last.triggered_at_ms,
        is_moment=True,
    ),
)

TASK_FAMILIES: Final[tuple[MetricFamily[TaskFigures], ...]] = (
    MetricFamily(
        "headgate_task_records_in_total",
        "Records from other tasks; of a source, the records that it has read.",
        lambda task: task.records_in + task.records_made,
        flink="numRecordsIn",
    ),
    MetricFamily(
        "headgate_task_records_out_total",
        "Records to other tasks.",
        lambda task: task.records_out,
        flink="numRecordsOut",
    ),
    MetricFamily(
        "headgate_task_bytes_in_total",
        "Serialized records from other tasks.",
        lambda task: task.bytes_in,
        flink="numBytesIn",
    ),
    MetricFamily(
        "headgate_task_bytes_out_total",
        "Serialized records to other tasks.",
        lambda task: task.bytes_out,
        flink="numBytesOut",
    ),
    MetricFamily(
        "headgate_task_buffers_in_total",
        "Buffers from other tasks.",
        lambda task: task.buffers_in,
        flink="numBuffersInLocal + numBuffersInRemote",
    ),
    MetricFamily(
        "headgate_task_buffers_out_total",
        "Buffers to other tasks.",
        lambda task: task.buffers_out,
        flink="numBuffersOut",
    ),
    MetricFamily(
        "headgate_task_busy_seconds_total",
        "Time spent processing. Busy, back-pressured and idle time add up to the time that the "
        "subtasks have run.",
        lambda task: task.busy_ms / 1000,
        flink="accumulateBusyTimeMs, busyTimeMsPerSecond",
    ),
    MetricFamily(
        "headgate_task_backpressured_seconds_total",
        "Time spent waiting for a free output buffer, soft and hard.",
        lambda task: task.backpressured_ms / 1000,
        flink="accumulateBackPressuredTimeMs, backPressuredTimeMsPerSecond",
    ),
    MetricFamily(
        "headgate_task_soft_backpressured_seconds_total",
        "Time in which the next step was not begun, because an output had no free buffer.",
        lambda task: task.soft_backpressured_ms / 1000,
        flink="softBackPressuredTimeMsPerSecond",
    ),
    MetricFamily(
        "headgate_task_hard_backpressured_seconds_total",
        "Time blocked in the middle of a step, because an output had no free buffer.",
        lambda task: task.hard_backpressured_ms / 1000,
        flink="hardBackPressuredTimeMsPerSecond",
    ),
    MetricFamily(
        "headgate_task_idle_seconds_total",
        "Time spent waiting for input.",
        lambda task: task.idle_ms / 1000,
        flink="accumulateIdleTimeMs, idleTimeMsPerSecond",
    ),
    MetricFamily(
        "headgate_task_cpu_seconds_total",
        "CPU time of the tasks' threads. Much less than the busy time: the functions wait.",
        lambda task: task.cpu_ms / 1000,
    ),
    MetricFamily(
        "headgate_task_runnable_seconds_total",
        "Time in which the tasks' threads could have run, had a core been free.",
        lambda task: task.runnable_ms / 1000,
    ),
    MetricFamily(
        "headgate_task_commit_seconds_total",
        "Time spent committing what checkpoints had prepared.",
        lambda task: task.commit_ms / 1000,
    ),
    MetricFamily(
        "headgate_task_input_queued_buffers",
        "Buffers that have arrived and were not read yet.",
        lambda task: task.queued_in,
        flink="buffers.inputQueueLength",
    ),
    MetricFamily(
        "headgate_task_output_queued_buffers",
        "Buffers that are written and have not left yet.",
        lambda task: task.queued_out,
        flink="buffers.outputQueueLength",
    ),
    MetricFamily(
        "headgate_task_input_pool_usage_ratio",
        "Share of the input buffers, exclusive and floating, that hold data.",
        _input_usage,
        MAX,
        "buffers.inPoolUsage",
    ),
    MetricFamily(
        "headgate_task_output_pool_usage_ratio",
        "Share of the output buffers that are in use; above 1 with the overdraft.",
        _output_usage,
        MAX,
        "buffers.outPoolUsage",
    ),
    MetricFamily(
        "headgate_task_buffer_size_bytes",
        "What producers put into a buffer for a subtask at most (buffer debloating).",
        lambda task: task.buffer_size or None,
        MAX,
        "debloatedBufferSize",
    ),
    MetricFamily(
        "headgate_task_in_flight_seconds",
        "In about this time what waits in front of a subtask will be consumed.",
        lambda task: task.in_flight_ms / 1000,
        MAX,
        "estimatedTimeToConsumeBuffersMs",
    ),
    MetricFamily(
        "headgate_task_state_bytes",
        "State of the operators: as RocksDB estimates it, or as the last checkpoint had it.",
        lambda task: _known(task.state_bytes),
        flink="rocksdb.estimate-live-data-size",
    ),
    MetricFamily(
        "headgate_task_input_watermark_timestamp_seconds",
        "Watermark of the inputs, in seconds since 1970.",
        lambda task: _watermark_s(*task.input_watermarks_ms) if task.gates else None,
        MIN,
        "currentInputWatermark",
    ),
    MetricFamily(
        "headgate_task_output_watermark_timestamp_seconds",
        "Watermark of the output, in seconds since 1970.",
        lambda task: _watermark_s(task.output_watermark_ms),
        MIN,
        "currentOutputWatermark",
    ),
    MetricFamily(
        "headgate_watermark_lag_seconds",
        "How far the watermark of the inputs (of a source: of its output) is behind the clock.",
        _latest_watermark,
        MIN,
        "watermarkLag",
        is_moment=True,
    ),
    MetricFamily(
        "headgate_source_splits",
        "Splits that the source still reads.",
        lambda task: task.splits or None,
    ),
    MetricFamily(
        "headgate_source_unassigned_splits",
        "Splits of the source that no task has yet; counted with its first task.",
        lambda task: task.unassigned_splits or None,
        flink="unassignedSplits",
    ),
    MetricFamily(
        "headgate_source_lag_records",
        "Records that are left of the splits which tasks of the source have, where it knows.",
        lambda task: _known(task.lag_records),
        flink="pendingRecords",
    ),
    MetricFamily(
        "headgate_source_lag_bytes",
        "Bytes that are left of the splits which tasks of the source have, where it knows.",
        lambda task: _known(task.lag_bytes),
        flink="pendingBytes",
    ),
    MetricFamily(
        "headgate_source_lag_seconds",
        "How old the next record of the source is, where it knows.",
        lambda task: _seconds(task.lag_ms),
        MAX,
        "currentFetchEventTimeLag",
    ),
)

GATE_FAMILIES: Final[tuple[MetricFamily[GateFigures], ...]] = (
    MetricFamily(
        "headgate_channel_credits",
        "Buffers that the producers may send before they are granted more.",
        lambda gate: gate.credit,
    ),
    MetricFamily(
        "headgate_channel_backlog_buffers",
        "Buffers that still wait at producers in other processes.",
        lambda gate: gate.backlog,
    ),
    MetricFamily(
        "headgate_channel_queued_buffers",
        "Buffers that have arrived from other processes and were not read yet.",
        lambda gate: gate.queued_buffers,
        flink="buffers.inputQueueLength",
    ),
    MetricFamily(
        "headgate_channel_queued_bytes",
        "The same in bytes.",
        lambda gate: gate.queued_bytes,
        flink="buffers.inputQueueSize",
    ),
    MetricFamily(
        "headgate_channel_exclusive_buffers",
        "Buffers that belong to one channel each.",
        lambda gate: gate.exclusive_total,
    ),
    MetricFamily(
        "headgate_channel_exclusive_buffers_used",
        "Exclusive buffers that hold data.",
        lambda gate: gate.exclusive_in_use,
        flink="buffers.inputExclusiveBuffersUsage",
    ),
    MetricFamily(
        "headgate_channel_floating_buffers",
        "Buffers that the channels of a gate share, as many as the gate may have now.",
        lambda gate: gate.pool_size,
    ),
    MetricFamily(
        "headgate_channel_floating_buffers_used",
        "Floating buffers that hold data.",
        lambda gate: gate.floating_in_use,
        flink="buffers.inputFloatingBuffersUsage",
    ),
)

OUTPUT_FAMILIES: Final[tuple[MetricFamily[OutputFigures], ...]] = (
    MetricFamily(
        "headgate_output_records_total",
        "Records written to the output.",
        lambda output: output.records,
        flink="numRecordsOut",
    ),
    MetricFamily(
        "headgate_output_bytes_total",
        "Bytes written to the output.",
        lambda output: output.bytes,
        flink="numBytesOut",
    ),
    MetricFamily(
        "headgate_output_queued_buffers",
        "Buffers of the output that have not left yet.",
        lambda output: output.queued_buffers,
        flink="buffers.outputQueueLength",
    ),
    MetricFamily(
        "headgate_output_queued_bytes",
        "The same in bytes.",
        lambda output: output.queued_bytes,
        flink="buffers.outputQueueSize",
    ),
    MetricFamily(
        "headgate_output_pool_buffers",
        "Buffers that the output may have, without the overdraft.",
        lambda output: output.pool_size,
    ),
    MetricFamily(
        "headgate_output_pool_buffers_used",
        "Buffers that the output has, free ones not counted.",
        lambda output: output.pool_in_use,
    ),
)

OPERATOR_FAMILIES: Final[tuple[MetricFamily[OperatorFigures], ...]] = (
    MetricFamily(
        "headgate_operator_records_in_total",
        "Records into an operator of a chain.",
        lambda operator: operator.records_in,
        flink="numRecordsIn",
    ),
    MetricFamily(
        "headgate_operator_records_out_total",
        "Records out of an operator of a chain.",
        lambda operator: operator.records_out,
        flink="numRecordsOut",
    ),
    MetricFamily(
        "headgate_operator_records_skipped_total",
        "Records that an operator has failed for and left out, as its error policy says.",
        lambda operator: operator.skipped,
    ),
    MetricFamily(
        "headgate_operator_dead_letters_total",
        "Records that an operator has failed for and sent to its dead letters.",
        lambda operator: operator.dead_letters,
    ),
    MetricFamily(
        "headgate_operator_late_records_dropped_total",
        "Records, or rows of columns, that came too late for an operator and were dropped.",
        lambda operator: operator.late,
        flink="numLateRecordsDropped",
    ),
    MetricFamily(
        "headgate_operator_late_records_most_seconds",
        "How much too late the latest of these came: so much more lateness or out-of-orderness "
        "would have kept them all.",
        lambda operator: operator.most_late_ms / 1000,
        MAX,
    ),
)

PART_FAMILIES: Final[tuple[MetricFamily[CheckpointPart], ...]] = (
    MetricFamily(
        "headgate_task_checkpoint_duration_seconds",
        "Last completed checkpoint: from its trigger to the acknowledgement of a subtask.",
        lambda part: part.took_ms / 1000,
        MAX,
    ),
    MetricFamily(
        "headgate_task_checkpoint_alignment_seconds",
        "Last completed checkpoint: from the first barrier to the last one.",
        lambda part: part.align_ms / 1000,
        MAX,
        "checkpointAlignmentTime",
    ),
    MetricFamily(
        "headgate_task_checkpoint_sync_seconds",
        "Last completed checkpoint: how long processing stood still for the copy of the state.",
        lambda part: part.sync_ms / 1000,
        MAX,
    ),
    MetricFamily(
        "headgate_task_checkpoint_async_seconds",
        "Last completed checkpoint: how long the state was written in the background.",
        lambda part: part.async_ms / 1000,
        MAX,
    ),
    MetricFamily(
        "headgate_task_checkpoint_state_bytes",
        "Last completed checkpoint: state.",
        lambda part: part.state_bytes,
    ),
    MetricFamily(
        "headgate_task_checkpoint_in_flight_bytes",
        "Last completed checkpoint: stored records on their way.",
        lambda part: part.in_flight_bytes,
    ),
)

PROCESS_FAMILIES: Final[tuple[MetricFamily[TaskManagerFigures], ...]] = (
    MetricFamily(
        "headgate_taskmanager_cpu_seconds_total",
        "CPU time of all threads of the process.",
        lambda process: process.cpu_ms / 1000,
        flink="Status.JVM.CPU.Time",
    ),
    MetricFamily(
        "headgate_taskmanager_cpu_cores",
        "Cores that the process may use; task managers of one host share them.",
        lambda process: process.cores or None,
    ),
    MetricFamily(
        "headgate_taskmanager_memory_bytes",
        "Resident memory of the process.",
        lambda process: _known(process.memory_bytes),
        flink="Status.JVM.Memory.Heap.Used",
    ),
    MetricFamily(
        "headgate_taskmanager_network_buffers",
        "Segments of the memory for exchanged data.",
        lambda process: process.buffers,
        flink="Status.Shuffle.Netty.TotalMemorySegments",
    ),
    MetricFamily(
        "headgate_taskmanager_network_buffers_available",
        "Those of them that are free.",
        lambda process: process.buffers_free,
        flink="Status.Shuffle.Netty.AvailableMemorySegments",
    ),
)

BUILD: Final = SpecialMetric(
    "headgate_build_info",
    MetricKind.GAUGE,
    ("version", "python"),
    "Version of Headgate and of Python in the driver; always 1.",
)
JOB_STATUS: Final = SpecialMetric(
    "headgate_job_status",
    MetricKind.GAUGE,
    (*JOB_LABELS, "status"),
    "1 for the present status of the job, 0 for the others.",
    "runningState, restartingState, deployingState",
)
SUBTASKS: Final = SpecialMetric(
    "headgate_task_subtasks",
    MetricKind.GAUGE,
    (*TASK_LABELS, "state"),
    "Subtasks in a state; states that none of them is in are missing.",
)
LATENCY: Final = SpecialMetric(
    "headgate_record_latency_seconds",
    MetricKind.HISTOGRAM,
    TASK_LABELS,
    "How long latency markers took from their sources to the task; `metrics.latency.interval` "
    "turns them on.",
    "latency",
)
