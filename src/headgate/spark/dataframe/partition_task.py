"""What Spark runs in its workers for a job that needs no barrier stage: its chain, on one thread.

Spark's thread itself polls the source, runs the chain and gives away what the sink was sent, batch
by batch, as it does for any function of ``mapInArrow``. Law: the rows end well only if the whole
input went through the chain; a function that raises ends the action with its own error, told by the
driver; whatever goes wrong elsewhere is Spark's to tell and to try again.

To the driver each process is a task manager with one task of the job, which runs as long as Spark
gives the process partitions of the same stage (``ProcessReport``). Law: no partition waits for the
driver, unless it has failed; a driver that does not answer costs figures, not rows.
"""

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Final, TypeAlias

import pyarrow as pa

from headgate.base.errors import HeadgateError, RunFailed, TaskCancelled
from headgate.base.figures import OperatorFigures, TaskManagerFigures, added
from headgate.base.messages import (
    Cancel,
    Deploy,
    Failure,
    Inspect,
    Inspected,
    Logged,
    Metrics,
    Refused,
    Register,
    Shutdown,
    TaskChanged,
    TaskFigures,
    TaskOrder,
    TaskState,
    ToTaskManager,
)
from headgate.connectors.dataframe.bridge import BatchBridge
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import PollResult
from headgate.core.chain.outputs import Loan
from headgate.core.chain.spec import OperatorSpec
from headgate.functions.context import TaskInfo
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection
from headgate.host.net.loop import wall_ms
from headgate.host.shipping.code import unship
from headgate.host.shipping.failures import describe, readable_traceback
from headgate.host.worker.worker_log import WorkerLog
from headgate.plan.job_graph import JobVertex
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact
from headgate.spark.spark_task import GRACE_S, at_stage, process_name, spark_place

LOOK_S: Final = 0.2
"""Between two looks at whether there is anything to do."""
IDLE_S: Final = 1.0
"""A process without a partition for so long has ended its part."""
TELL_S: Final = 10.0
"""How long a failure may take to reach the driver; then Spark tells of it."""
_numbers: Final = count()


Mail: TypeAlias = ToTaskManager | ConnectionLost | Failure | None

log = logging.getLogger(__name__)

POLLED: Final = 1
"""Batches for each poll of the source."""


class PartitionFigures:
    """What one partition has done so far; read by other threads while it grows."""

    def __init__(self) -> None:
        self.operators: Callable[[], Sequence[OperatorFigures]] = list
        """The figures of its operators, once there are any."""
        self.idle_s = 0.0
        """Time spent waiting for Spark's input."""
        self.held_up_s = 0.0
        """Time in which Spark took what it was given."""
        self._began = time.perf_counter()

    def figures(self) -> tuple[list[OperatorFigures], float, float, float]:
        """The figures of its operators, and its times in seconds: busy, held up and idle."""
        busy_s = time.perf_counter() - self._began - self.held_up_s - self.idle_s
        return list(self.operators()), busy_s, self.held_up_s, self.idle_s


class ProcessReport:
    """The report of one process and stage; a thread sends it until the last partition is done."""

    def __init__(self, contact: DriverContact, stage: str, first: PartitionFigures) -> None:
        """``first``: the partition that it begins with."""
        self.stage = stage
        name = f"{next(_numbers)}-{socket.gethostname()}-{os.getpid()}"
        self._contact = at_stage(contact, process_name(stage, name))
        self.is_cancelled = False
        self.is_over = False
        """It takes no more partitions."""
        self._lock = threading.Lock()  # of what follows, and the two above
        self._open = [first]
        self._failure: Failure | None = None
        self._sums: tuple[list[OperatorFigures], float, float, float] = ([], 0.0, 0.0, 0.0)
        self._idle_since = time.monotonic()
        self._inbox: queue.SimpleQueue[Mail] = queue.SimpleQueue()
        self._failure_sent = threading.Event()
        self._report_at = 0.0
        self._run = ""
        self._task: TaskOrder | None = None
        self._thread = threading.Thread(target=self._serve, name="headgate-report", daemon=True)
        self._thread.start()

    def begun(self, partition: PartitionFigures) -> bool:
        """The process begins a partition; False: too late, another report has to take it."""
        with self._lock:
            if not self.is_over:
                self._open.append(partition)
            return not self.is_over

    def ended(self, partition: PartitionFigures) -> None:
        """It has nothing more to do for a partition."""
        figures = partition.figures()
        with self._lock:
            self._open.remove(partition)
            self._sums = _added(self._sums, figures)
            self._idle_since = time.monotonic()

    def failed(self, failure: Failure) -> bool:
        """A partition has failed; says whether the driver was told."""
        self._inbox.put(failure)
        until = time.monotonic() + TELL_S
        while self._thread.is_alive() and time.monotonic() < until:
            if self._failure_sent.wait(LOOK_S):
                return True
        return self._failure_sent.is_set()

    # The thread.

    def _serve(self) -> None:
        try:
            with (
                WorkerLog(self._contact, 0, is_alone=True) as lines,
                ControlConnection(self._contact, self._inbox.put) as line,
            ):
                line.send(_registration(self._contact))
                while not self._obey(line, self._next_mail()):
                    if time.monotonic() >= self._report_at:
                        self._report(line, lines)
                self._report(line, lines)
                line.heard()
                with self._lock:
                    self.is_over = True
        except (HeadgateError, OSError) as error:  # another report would meet it, too
            log.info("the driver is not told of stage %s: %s", self.stage, error)

    def _next_mail(self) -> Mail:
        pause_s = min(LOOK_S, self._report_at - time.monotonic())
        try:
            return self._inbox.get(timeout=max(0.0, pause_s))
        except queue.Empty:
            return None

    def _obey(self, line: ControlConnection, mail: Mail) -> bool:
        """Says whether it was the last."""
        match mail:
            case Deploy():
                self._run, (self._task,) = mail.run, mail.tasks
                line.send(TaskChanged(self._run, self._task.id, TaskState.RUNNING))
                self._report_failure(line)
            case Failure():
                self._failure = self._failure or mail
                self._report_failure(line)
            case Cancel():
                self.is_cancelled = True
                self._end(line, TaskState.CANCELLED)
            case Inspect():
                problem = "it runs in a stage of Spark, which tells of it in its own web UI"
                line.send(Inspected(mail.run, mail.id, mail.task, None, problem))
            case Shutdown() | Refused() | ConnectionLost():
                return True
            case _:
                self._end_if_idle(line)
        return False

    def _report_failure(self, line: ControlConnection) -> None:
        """As soon as the driver knows of the task."""
        if self._failure is not None and self._task is not None:
            line.send(TaskChanged(self._run, self._id, TaskState.FAILED, self._failure))
            self._failure_sent.set()

    def _end_if_idle(self, line: ControlConnection) -> None:
        with self._lock:
            if self.is_over or self._open or time.monotonic() - self._idle_since < IDLE_S:
                return
            self.is_over = self._task is not None
        if self.is_over:
            self._end(line, TaskState.FINISHED)

    def _end(self, line: ControlConnection, state: TaskState) -> None:
        """With the last figures of all partitions."""
        if self._task is not None:
            line.send(Metrics(self._run, self._figures(), _process()))
        line.send(TaskChanged(self._run, self._id, state))

    def _report(self, line: ControlConnection, lines: WorkerLog) -> None:
        self._report_at = time.monotonic() + self._contact.times.metrics_ms / 1000
        if line.has_backlog:
            return
        if taken := lines.take():
            line.send(Logged(self._run, taken))
        if self._task is not None:
            line.send(Metrics(self._run, self._figures(), _process()))

    @property
    def _id(self) -> str:
        return "" if self._task is None else self._task.id

    def _figures(self) -> list[TaskFigures]:
        assert self._task is not None
        with self._lock:
            sums, partitions = self._sums, list(self._open)
        for partition in partitions:
            sums = _added(sums, partition.figures())
        operators, busy_s, held_up_s, idle_s = sums
        return [
            TaskFigures(
                self._task.id,
                self._task.vertex,
                self._task.subtask,
                TaskState.RUNNING,
                records_made=operators[0].records_out if operators else 0,
                busy_ms=1000 * busy_s,
                backpressured_ms=1000 * held_up_s,
                hard_backpressured_ms=1000 * held_up_s,
                idle_ms=1000 * idle_s,
                operators=tuple(operators),
            )
        ]


def report_of(contact: DriverContact, stage: str, partition: PartitionFigures) -> ProcessReport:
    """The report of this process for the stage, which has begun this partition."""
    global _report  # a process computes one partition at a time
    if _report is None or _report.stage != stage or not _report.begun(partition):
        _report = ProcessReport(contact, stage, partition)
    return _report


_report: ProcessReport | None = None


def _added(
    sums: tuple[list[OperatorFigures], float, float, float],
    more: tuple[list[OperatorFigures], float, float, float],
) -> tuple[list[OperatorFigures], float, float, float]:
    operators = more[0]
    if sums[0]:
        pairs = zip(sums[0], more[0], strict=False)  # a partition that could not begin has none
        operators = [added(old, new) for old, new in pairs] or sums[0]
    return operators, sums[1] + more[1], sums[2] + more[2], sums[3] + more[3]


def _registration(contact: DriverContact) -> Register:
    return Register(contact.stage, 0, ("", 0), os.getpid(), socket.gethostname())


def _process() -> TaskManagerFigures:
    cpu_ms = time.process_time() * 1000
    return TaskManagerFigures(0, socket.gethostname(), os.getpid(), os.cpu_count() or 1, cpu_ms)


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """Called by Spark with the batches of one partition; gives batches of the result."""

    contact: PublicContact
    job: str
    code: bytes
    """The job's only vertex, shipped."""
    inlet: str
    outlet: str
    job_files: JobFiles = JobFiles()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, stage = spark_place(self.contact)
        contact = self.contact.complete()
        contact.adopt_path()
        with (
            self.job_files.unpacked(),
            contact.in_use(),
            BatchBridge([self.inlet], self.outlet, inf) as bridge,
        ):
            figures = PartitionFigures()
            report = report_of(contact, stage, figures)
            try:
                yield from self._outgoing(number, batches, bridge, report, figures)
            except _InputBroken as broken:  # Spark knows why
                raise broken.error from None
            except TaskCancelled:
                raise
            except (Exception, SystemExit) as error:
                raise _reported(report, error) from error
            finally:
                report.ended(figures)

    def _outgoing(
        self,
        number: int,
        batches: Iterable[pa.RecordBatch],
        bridge: BatchBridge,
        report: ProcessReport,
        figures: PartitionFigures,
    ) -> Iterator[pa.RecordBatch]:
        (vertex,) = unship(self.code).values()
        chain = Chain(vertex.chain, (), _NoLoan())
        figures.operators = chain.figures
        try:
            chain.open(partial(_context, self._info(vertex, number)))
            for batch in _waited_for(batches, figures):
                if report.is_cancelled:
                    raise TaskCancelled("the action was cancelled")
                bridge.put(0, batch)
                while chain.poll_source(POLLED) is PollResult.RECORDS:
                    yield from _handed_over(bridge, figures)
            bridge.fed()
            while chain.poll_source(POLLED) is not PollResult.ENDED:
                pass
            chain.finish()
            yield from _handed_over(bridge, figures)
        finally:
            chain.close()

    def _info(self, vertex: JobVertex, number: int) -> TaskInfo:
        task = number % vertex.parallelism
        return TaskInfo(self.job, vertex.name, task, vertex.parallelism, vertex.max_parallelism)


class _InputBroken(Exception):
    """Spark's input has broken off with this error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _waited_for(
    batches: Iterable[pa.RecordBatch], figures: PartitionFigures
) -> Iterator[pa.RecordBatch]:
    """Spark's batches; raises _InputBroken."""
    left = iter(batches)
    while True:
        began = time.perf_counter()
        try:
            batch = next(left, None)
        except Exception as error:
            raise _InputBroken(error) from error
        finally:
            figures.idle_s += time.perf_counter() - began
        if batch is None:
            return
        yield batch


def _handed_over(bridge: BatchBridge, figures: PartitionFigures) -> Iterator[pa.RecordBatch]:
    for batch in bridge.sent():
        began = time.perf_counter()
        yield batch
        figures.held_up_s += time.perf_counter() - began


def _context(task: TaskInfo, spec: OperatorSpec) -> OperatorContext:
    return OperatorContext(spec.name, task, wall_ms, uid=spec.uid, warn=_warn)


def _warn(text: str, error: BaseException | None) -> None:
    trace = "" if error is None else f"\n{readable_traceback(error).rstrip()}"
    log.warning("%s%s", text, trace)


class _NoLoan(Loan):
    """There is one thread, which has everything for itself."""

    __slots__ = ()

    def lend(self) -> None:
        pass

    def regain(self) -> None:
        pass


def _reported(report: ProcessReport, error: BaseException) -> RunFailed:
    """The driver ends the action, if it can be told: then Spark's log stays short."""
    failure = describe(error)
    if report.failed(failure):
        time.sleep(GRACE_S)
    return RunFailed(Outcome(JobState.FAILED, failure).problem)
