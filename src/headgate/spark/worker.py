"""What Spark runs in its workers: one task manager for each task of a barrier stage."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from headgate.base.job_errors import RunRefused
from headgate.host.contact import Contact
from headgate.host.task_manager import run_task_manager
from headgate.spark.job_secret import PublicContact
from headgate.spark.luggage import Luggage


@dataclass(frozen=True, slots=True)
class TaskManagerProcess:
    """Called by Spark with the rows of one partition, of which it needs none."""

    contact: PublicContact
    luggage: Luggage = Luggage()

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        slot, _ = spark_place()
        # A job that is over wants no task manager: the driver knows why, Spark need not complain.
        with suppress(RunRefused), self.luggage.unpacked():
            run_task_manager(self.contact.complete(), slot, may_exit=True)
        return iter(())


def spark_place() -> tuple[int, str]:
    """The slot and the stage of the Spark task that runs here."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    quiet_logs()
    return context.partitionId(), str(context.stageId())


def quiet_logs() -> None:
    """Headgate's warnings belong into the executor's log; Spark's workers have no handler."""
    logger = logging.getLogger("headgate")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(process)d] %(message)s")
        )
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)


def at_stage(contact: Contact, stage: str) -> Contact:
    """The contact of one execution of a lazy job."""
    return replace(contact, stage=stage)
