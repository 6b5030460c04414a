"""What Spark runs in its workers: one task manager for each task of a barrier stage."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.base.errors import RunRefused
from headgate.host.net.contact import DriverContact
from headgate.host.worker.task_manager import run_task_manager
from headgate.observe.logs import set_up_worker_logs
from headgate.spark.connect import operation_of
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact

TAGS: Final = "spark.job.tags"
"""The local property with the tags of a Spark job, among them the one that Connect adds."""


@dataclass(frozen=True, slots=True)
class TaskManagerProcess:
    """Called by Spark with the rows of one partition, of which it needs none."""

    contact: PublicContact
    job_files: JobFiles = JobFiles()

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        slot, _ = spark_place(self.contact)
        # A job that is over wants no task manager: the driver knows why, Spark need not complain.
        with suppress(RunRefused), self.job_files.unpacked():
            run_task_manager(self.contact.complete(), slot, may_exit=True)
        return iter(())


def spark_place(contact: PublicContact) -> tuple[int, str]:
    """The slot and the stage of the Spark task that runs here, which logs from now on.

    With Spark Connect the stage's name has the operation behind it, by which it can be ended.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    set_up_worker_logs(contact.contact.logs)  # Spark's workers have no handler
    operation = operation_of(context.getLocalProperty(TAGS))
    stage = f"{context.stageId()}:{operation}" if operation else str(context.stageId())
    return context.partitionId(), stage


def at_stage(contact: DriverContact, stage: str) -> DriverContact:
    """The contact of one execution of a lazy job."""
    return replace(contact, stage=stage)
