"""In a worker: the Spark task that runs there, and how the driver is told of it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.host.net.contact import DriverContact
from headgate.observe.logs import set_up_worker_logs
from headgate.spark.connect import operation_of
from headgate.spark.security import PublicContact

if TYPE_CHECKING:
    from pyspark import TaskContext

TAGS: Final = "spark.job.tags"
"""The local property with the tags of a Spark job, among them the one that Connect adds."""
GRACE_S: Final = 2.0
"""A failed run waits so long for Spark to end this task: then Spark's log stays short."""


def spark_place(contact: PublicContact) -> tuple[int, str]:
    """The slot and the stage of the Spark task that runs here, which logs from now on.

    With Spark Connect the stage's name has the operation behind it, by which it can be ended.
    """
    context = spark_task()
    set_up_worker_logs(contact.contact.logs)  # Spark's workers have no handler
    operation = operation_of(context.getLocalProperty(TAGS))
    stage = f"{context.stageId()}:{operation}" if operation else str(context.stageId())
    return context.partitionId(), stage


def spark_task() -> "TaskContext":
    """The context of the Spark task that runs here, of a barrier stage or any other."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "Spark has started no task here"
    return context


def at_stage(contact: DriverContact, stage: str) -> DriverContact:
    """The contact of one execution of a lazy job."""
    return replace(contact, stage=stage)
