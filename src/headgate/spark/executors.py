"""What Spark's scheduler says about its executors: how many tasks fit, run, and may not run.

Asked through Java's half of a classic session, mostly in words that are not part of Spark's public
API; where one of them is missing, the public answer stands in, which lags or knows less. Law: total
and busy count the same executors as the check that Spark makes before it starts a barrier stage,
without those that it has excluded after failures, which that check forgets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ExcludedExecutor:
    """One that gets no tasks for a while, because tasks have failed there."""

    name: str
    host: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name} on {self.host}"


def total_slots(context: Any, profile: Any = None) -> int:
    """How many tasks of a barrier stage fit into the executors as they are now."""
    from py4j.protocol import Py4JError

    spark = context._jsc.sc()
    try:
        # What Spark itself asks before it starts a barrier stage.
        profile = profile or spark.resourceProfileManager().defaultResourceProfile()
        return int(spark.maxNumConcurrentTasks(profile))
    except Py4JError:
        return int(context.defaultParallelism)


def busy_slots(context: Any) -> int:
    """How many tasks run, of whatever job."""
    from py4j.protocol import Py4JError

    try:
        # The status tracker is public, but lags: it may miss the last events for seconds.
        running = context._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
        return sum(map(int, each(running)))
    except Py4JError:
        tracker = context.statusTracker()
        stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return sum(stage.numActiveTasks for stage in stages if stage)


def running_tasks(context: Any, group: str) -> int:
    """How many tasks of a job group run. Raises whatever stands against the question.

    The public status tracker would not do: it may know of no task for seconds after its start.
    """
    found = _task_sets(context._jsc.sc().taskScheduler().rootPool())
    return sum(int(tasks.runningTasks()) for tasks in found if _property(tasks, _GROUP) == group)


@dataclass(frozen=True, slots=True)
class QueryStage:
    """A stage of a query that is at work, or waits for slots."""

    query: str
    """Its number; with Spark Connect the id of the operation."""
    stage: str
    """By which ``SparkCluster.cancel_stage`` ends it."""
    needed: int = 0
    """How many slots it takes to start; 0: Spark does not say."""
    running: int = 0
    """How many of its tasks run."""


def query_stages(context: Any) -> list[QueryStage]:
    """All that Spark's scheduler has tasks of. Raises whatever stands against the question."""
    found = []
    for tasks in _task_sets(context._jsc.sc().taskScheduler().rootPool()):
        query = _property(tasks, QUERY)
        if query is not None and not tasks.isZombie():
            needed = int(tasks.numTasks()) if tasks.isBarrier() else 1
            stage = str(tasks.taskSet().stageId())
            found.append(QueryStage(str(query), stage, needed, int(tasks.runningTasks())))
    return found


def _task_sets(pool: Any) -> Iterator[Any]:
    """All of the scheduler's: its sorted queue leaves those out that have no task left to start."""
    for item in each(pool.schedulableQueue().iterator()):
        if item.schedulableQueue() is None:
            yield item
        else:  # a pool within the pool
            yield from _task_sets(item)


_GROUP: Final = "spark.jobGroup.id"
QUERY: Final = "spark.sql.execution.id"
"""The local properties with the job group of a stage, and with the query that it is a part of."""


def _property(tasks: Any, name: str) -> Any:
    properties = tasks.taskSet().properties()
    return None if properties is None else properties.getProperty(name)


def excluded_executors(context: Any, profile: Any = None) -> tuple[ExcludedExecutor, ...]:
    """Those that Spark gives no tasks for a while (``spark.excludeOnFailure``)."""
    from py4j.protocol import Py4JError

    spark = context._jsc.sc()
    try:
        tracker = spark.taskScheduler().healthTrackerOpt()
        if tracker.isEmpty():  # nothing is ever excluded
            return ()
        health, found = tracker.get(), []
        profile = profile or spark.resourceProfileManager().defaultResourceProfile()
        for executor in each(spark.statusStore().executorList(True).iterator()):
            name, host = str(executor.id()), str(executor.hostPort()).rpartition(":")[0]
            if name != "driver" and (
                health.isExecutorExcluded(name) or health.isNodeExcluded(host)
            ):
                found.append(ExcludedExecutor(name, host, _slots_of(executor, profile, spark)))
        return tuple(found)
    except Py4JError:
        return ()


def _slots_of(executor: Any, profile: Any, spark: Any) -> int:
    """As Spark computes them: by the scarcest of its cores and other resources."""
    requests = profile.taskResourcesJMap()
    needs = {str(name): float(requests[name].amount()) for name in requests}
    cpus = needs.pop("cpus", 0) or int(spark.conf().get("spark.task.cpus", "1"))
    counts = [int(executor.totalCores() // cpus)]
    for name, amount in needs.items():
        held = executor.resources().get(name)
        addresses = len(held.get().addresses()) if held.isDefined() else 0
        counts.append(int(addresses // amount if amount >= 1 else addresses * int(1 / amount)))
    return min(counts)


def each(iterator: Any) -> Iterator[Any]:
    """Of one of Java's or Scala's; Python's own way to end a loop over Java's costs ten calls."""
    while iterator.hasNext():
        yield iterator.next()
