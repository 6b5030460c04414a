"""What Spark runs in its workers for a job with DataFrames: a task manager in a barrier stage.

The calling thread hands rows to Spark, a second one takes rows from it, a third is the task
manager. Law: the rows end well only if the run has finished, otherwise an error says why not; where
there is no outlet, the job's coordinator knows and tells. No thread and no file outlives a run.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from headgate.base.errors import RunFailed
from headgate.connectors.dataframe.bridge import BatchBridge
from headgate.host.net.contact import DriverContact
from headgate.host.worker.task_manager import run_task_manager
from headgate.spark.dataframe.plan import packed_output, sort_parts
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact
from headgate.spark.spark_task import GRACE_S, at_stage, spark_place

JOIN_S: Final = 60.0
"""How long the task manager may take to end; it ends a process that hangs earlier by itself."""


@dataclass(frozen=True, slots=True)
class BarrierTask:
    """Called by Spark with the batches of one partition; gives batches of the result."""

    contact: PublicContact
    inlets: tuple[str, ...]
    outlet: str | None = None
    """None: nothing but the job's own sinks gets its records, and its coordinator its failure."""
    job_files: JobFiles = JobFiles()
    packs: bool = False
    """Batches leave as values that hold them."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slot, stage = spark_place(self.contact)
        contact = self.contact.complete()
        if self.outlet is not None:
            contact = at_stage(contact, stage)
        with self.job_files.unpacked(), BatchBridge(self.inlets, self.outlet) as bridge:
            sort = partial(sort_parts, len(self.inlets))
            feeder = _start("headgate-feeder", lambda: bridge.feed(batches, sort))
            manager = _TaskManager(contact, slot, bridge)
            try:
                outgoing = bridge.outgoing()
                yield from packed_output(outgoing) if self.packs else outgoing
            except BaseException:  # Spark has closed this generator, or the process is to end
                bridge.close()
                manager.leave("Spark wants no more rows")
                raise
            finally:
                manager.join()
            if manager.error is not None:
                raise manager.error
            if not manager.problem:
                feeder.join()  # ends between two batches: Spark sees that it cannot use us again
                bridge.check()
            elif self.outlet is not None or not bridge.is_fed:
                # With input left, Spark's worker would take rows for commands: it has to end.
                time.sleep(GRACE_S)
                raise RunFailed(manager.problem)


class _TaskManager:
    """The task manager on its thread."""

    def __init__(self, contact: DriverContact, slot: int, bridge: BatchBridge) -> None:
        self.problem = ""
        self.error: BaseException | None = None
        self._contact = contact
        self._slot = slot
        self._bridge = bridge
        self.leave: Callable[[str], None] = lambda problem: None
        """Tell it to end before the driver does."""
        self._thread = _start("headgate-task-manager", self._run)

    def join(self) -> None:
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            self.problem = run_task_manager(
                self._contact,
                self._slot,
                may_exit=True,
                on_ready=self._ready,
                outlet=self._bridge,
            )
        except BaseException as error:
            self.error = error
        finally:
            self._bridge.end()

    def _ready(self, leave: Callable[[str], None]) -> None:
        self.leave = leave


def _start(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
