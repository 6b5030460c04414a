"""A job that is not there: 1,000 subtasks whose figures grow with the clock, for the page to draw.

It is served like a real one. Law: every time it is asked, its figures are those of that moment, so
that nothing on the page stands still.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from benchmarks.measured_job import bench_environment
from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import InspectionFailed
from headgate.base.figures import GateFigures, OperatorFigures, OutputFigures, TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ShownState
from headgate.base.job_records import CheckpointsRecord, FailureRecord, LogLine
from headgate.base.messages import TaskFigures, TaskState
from headgate.connectors.generator import DataGeneratorSource
from headgate.plan.job_graph import JobGraph

WIDE: Final = 1
"""The vertex with all the subtasks."""
NARROW: Final = 4


class WideJob:
    """As observers see a job; nobody can look closer at it, or end it."""

    configuration: Mapping[str, str] = {}

    def __init__(self, subtasks: int) -> None:
        self.job_id = f"wide-{subtasks}"
        self.graph = wide_graph(subtasks)
        self.started_at_ms = time.time_ns() // 1_000_000
        self._began = time.monotonic()

    @property
    def ended_at_ms(self) -> int | None:
        return None

    def status(self) -> JobStatus:
        return JobStatus.RUNNING

    def state_times(self) -> Mapping[str, int]:
        return {JobStatus.RUNNING.name: self.started_at_ms}

    def has_ended(self) -> bool:
        return False

    def figures(self) -> list[TaskFigures]:
        elapsed_ms = (time.monotonic() - self._began) * 1000
        return [
            _figures(vertex.id, subtask, vertex.is_source, elapsed_ms)
            for vertex in self.graph.vertices
            for subtask in range(vertex.parallelism)
        ]

    def task_managers(self) -> list[TaskManagerFigures]:
        return []

    def waits_for(self) -> str:
        return ""

    def restarts(self) -> int:
        return 0

    def failures(self) -> list[FailureRecord]:
        return []

    def checkpoints(self) -> CheckpointsRecord:
        return CheckpointsRecord()

    def log_lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        return []

    def inspect(self, task: str, what: Inspection, timeout_s: float = 10.0) -> "Future[Found]":
        found: Future[Found] = Future()
        found.set_exception(InspectionFailed(task, "the job of the benchmark has no real tasks"))
        return found

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        raise NotImplementedError("the job of the benchmark has no state")

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        raise NotImplementedError("the job of the benchmark has no state")

    def cancel_soon(self, reason: str) -> None:
        """It ends with the benchmark."""


def wide_graph(subtasks: int) -> JobGraph:
    """A few sources → so many subtasks → a few others; no sink, for it is never executed."""
    env = bench_environment(NARROW)
    numbers = env.from_source(DataGeneratorSource(abs, 10), None, "numbers")
    wide = numbers.key_by(abs).map(abs).name("wide").set_parallelism(subtasks)
    wide.rebalance().map(abs).name("few")
    return env.get_job_graph()


def _figures(vertex: int, subtask: int, is_source: bool, elapsed_ms: float) -> TaskFigures:
    """Each subtask has shares and a rate of its own."""
    busy = 0.1 + subtask * 37 % 80 / 100
    records = int(elapsed_ms * (1 + subtask % 10))
    return TaskFigures(
        task=f"{vertex}.{subtask}",
        vertex=vertex,
        subtask=subtask,
        state=TaskState.RUNNING,
        records_in=0 if is_source else records,
        records_made=records if is_source else 0,
        records_out=records,
        bytes_in=10 * records,
        bytes_out=10 * records,
        busy_ms=busy * elapsed_ms,
        backpressured_ms=0.05 * elapsed_ms,
        soft_backpressured_ms=0.05 * elapsed_ms,
        idle_ms=(0.95 - busy) * elapsed_ms,
        cpu_ms=busy / 2 * elapsed_ms,
        queued_in=records % 7,
        gates=() if is_source else (GateFigures(NARROW, records % 5, 99, records % 3, 8, 1, 8),),
        outputs=(OutputFigures(records, 10 * records),),
        operators=(OperatorFigures("wide", records, records),),
    )
