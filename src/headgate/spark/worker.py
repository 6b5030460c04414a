"""What Spark runs in its workers: one task manager for each task of a barrier stage."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headgate.base.errors import RunRefused
from headgate.host.worker.task_manager import run_task_manager
from headgate.spark.job_files import JobFiles
from headgate.spark.security import PublicContact
from headgate.spark.spark_task import spark_place


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
