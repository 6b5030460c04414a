"""A job that stands still: what observers see of it is what a test has put there."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures
from headgate.plan.job_graph import JobGraph
from tests.observe.kit import three_vertices

STARTED_AT_MS = 1_700_000_000_000


@dataclass
class StillJob:
    """Nobody can look closer at it or stop it."""

    tasks: Sequence[TaskFigures] = ()
    job_id: str = "job-1"
    graph: JobGraph = field(default_factory=three_vertices)
    started_at_ms: int = STARTED_AT_MS
    ended_at_ms: int | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)
    state: JobStatus = JobStatus.RUNNING
    processes: Sequence[TaskManagerFigures] = ()
    restarted: int = 0
    waiting: str = ""
    record: CheckpointsRecord = field(default_factory=CheckpointsRecord)

    def status(self) -> JobStatus:
        return self.state

    def state_times(self) -> Mapping[str, int]:
        return {self.state.name: self.started_at_ms}

    def has_ended(self) -> bool:
        return self.ended_at_ms is not None

    def figures(self) -> list[TaskFigures]:
        return list(self.tasks)

    def task_managers(self) -> list[TaskManagerFigures]:
        return list(self.processes)

    def waits_for(self) -> str:
        return self.waiting

    def restarts(self) -> int:
        return self.restarted

    def failures(self) -> list[FailureRecord]:
        return []

    def checkpoints(self) -> CheckpointsRecord:
        return self.record

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        return []

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        raise NotImplementedError

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        raise NotImplementedError

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        raise NotImplementedError

    def cancel_soon(self, reason: str) -> None:
        raise NotImplementedError
