"""In a worker: the Spark task that runs there, and how the driver is told of it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.host.net.contact import DriverContact
from headgate.observe.logs import set_up_worker_logs
from headgate.spark.connect import operation_of
from headgate.spark.executors import QUERY
from headgate.spark.security import PublicContact

if TYPE_CHECKING:
    from pyspark import TaskContext

TAGS: Final = "spark.job.tags"
"""The local property with the tags of a Spark job, among them the one that Connect adds."""
_QUERY: Final = "@"
_OPERATION: Final = ":"
_PROCESS: Final = "#"
"""What stands in the name of a stage before its query, operation of Connect, and process."""
GRACE_S: Final = 2.0
"""A failed run waits so long for Spark to end this task: then Spark's log stays short."""


def spark_place(contact: PublicContact) -> tuple[int, str]:
    """The slot and the stage of the Spark task that runs here, which logs from now on.

    With Spark Connect the stage's name has the operation after it, by which it can be ended; else
    the query that it is a part of, if any.
    """
    context = spark_task()
    set_up_worker_logs(contact.contact.logs)  # Spark's workers have no handler
    stage = str(context.stageId())
    if operation := operation_of(context.getLocalProperty(TAGS)):
        stage = f"{stage}{_OPERATION}{operation}"
    query = context.getLocalProperty(QUERY)
    return context.partitionId(), f"{stage}{_QUERY}{query}" if query else stage


def process_name(stage: str, process: str) -> str:
    """The name of one of the processes that run partitions of a stage."""
    return f"{stage}{_PROCESS}{process}"


def stage_of(name: str) -> str:
    """The stage, and its operation of Spark Connect, if any, by which it can be ended."""
    return name.partition(_PROCESS)[0].partition(_QUERY)[0]


def query_of(name: str) -> str:
    """The query, or operation of Spark Connect, that the stage is a part of; empty: none."""
    stage, _, query = name.partition(_PROCESS)[0].partition(_QUERY)
    return stage.partition(_OPERATION)[2] or query


def stage_number(name: str) -> int:
    """The number of the stage alone."""
    return int(stage_of(name).partition(_OPERATION)[0])


def spark_task() -> "TaskContext":
    """The context of the Spark task that runs here, of a barrier stage or any other."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "Spark has started no task here"
    return context


def at_stage(contact: DriverContact, stage: str) -> DriverContact:
    """The contact of one execution of a lazy job."""
    return replace(contact, stage=stage)
