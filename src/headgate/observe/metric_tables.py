"""Whose metrics Prometheus gets, under which labels, and the few that no field declares.

All others stand in the table of ``base/figures``. Law: figures of subtasks are merged, so that the
number of series depends on the program and not on its parallelism.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from headgate.api.job import JobStatus
from headgate.base.figures import MetricFamily, MetricKind
from headgate.base.job_records import CheckpointRecord, CheckpointsRecord

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
