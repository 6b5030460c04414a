"""What Spark runs in its workers for a job that needs no barrier stage: its chain, on one thread.

Spark's thread itself polls the source, runs the chain and gives away what the sink was sent, batch
by batch, as it does for any function of ``mapInArrow``. Law: the rows end well only if the whole
input went through the chain; a function that raises ends the action with its own error, told by the
driver; whatever goes wrong elsewhere is Spark's to tell and to try again.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import pyarrow as pa

from headgate.base.errors import RunFailed, TaskCancelled
from headgate.connectors.dataframe.bridge import BatchBridge
from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import PollResult
from headgate.core.chain.outputs import Loan
from headgate.core.chain.spec import OperatorSpec
from headgate.functions.context import TaskInfo
from headgate.host.shipping.code import unship
from headgate.host.shipping.failures import describe, readable_traceback
from headgate.plan.job_graph import JobVertex
from headgate.spark.dataframe.partition_report import PartitionFigures, ProcessReport, report_of
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact
from headgate.spark.spark_task import GRACE_S, spark_place

log = logging.getLogger(__name__)

POLLED: Final = 1
"""Batches for each poll of the source."""


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
    return OperatorContext(spec.name, task, _wall_ms, uid=spec.uid, warn=_warn)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


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
