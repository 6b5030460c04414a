"""What Spark's scheduler says about its executors, and how a job gets those that it needs.

Asked through Java's half of a classic session, mostly in words that are not part of Spark's public
API; where one of them is missing, the public answer stands in, which lags or knows less. Law: total
and busy count the same executors as the check that Spark makes before it starts a barrier stage,
without those that it has excluded after failures, which that check forgets.

Spark refuses barrier stages under dynamic allocation (see ``barriers_allowed`` and ``allocate``),
and has resource profiles that no barrier stage can use (``adopted_profile``). Law: what no stage of
a job could use is refused before Spark runs anything of it.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.errors import PlanInvalid

log = logging.getLogger(__name__)
DYNAMIC: Final = "spark.dynamicAllocation.enabled"
MOST: Final = "spark.dynamicAllocation.maxExecutors"
FIRST_S: Final = 120.0
"""How long the first executor may take: a cluster may have to start a machine for it."""
NEXT_S: Final = 30.0
CANCEL_S: Final = 10.0
LOOK_S: Final = 0.1
HOLD_S: Final = 3600.0

_lock: Final = threading.Lock()
_starting: Final[dict[str, int]] = {}
"""How many jobs start at the moment, by application; those have the setting at false."""


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
    """How many tasks of a job group run. Raises any error of the request.

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
    """All stages that Spark's scheduler has tasks of. Raises any error of the request."""
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
    """Executors that Spark gives no tasks for a while (``spark.excludeOnFailure``)."""
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
    """The items of a Java or Scala iterator; a Python loop over it ends with ten calls."""
    while iterator.hasNext():
        yield iterator.next()


def adopted_profile(context: Any, profile: object) -> object | None:
    """Make it known to Spark, which counts no slots for others; None: a local master has none.

    Raises PlanInvalid.
    """
    from py4j.protocol import Py4JJavaError

    if str(context.master).startswith("local"):
        log.warning("the job's resource profile has no effect on the master %s", context.master)
        return None
    wanted: Any = profile
    if wanted.executorResources:
        names = ", ".join(wanted.executorResources)
        raise PlanInvalid(
            f"the job's resource profile asks for executors with {names}, which Spark starts under "
            f"dynamic allocation only, and that runs no barrier stages; ask for resources of tasks "
            f"alone, and give executors theirs with the session (spark.executor.cores, "
            f"spark.executor.resource.gpu.amount)"
        )
    try:
        wanted = _java_backed(context, wanted)
        java = wanted._java_resource_profile
        context._jsc.sc().resourceProfileManager().addResourceProfile(java)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).strip()
        raise PlanInvalid(f"Spark refuses the job's resource profile: {reason}") from error
    found: object = wanted
    return found


def task_cores(profile: object) -> int:
    """How many cores a task gets; 0: as many as those of the session."""
    wanted: Any = profile
    request = wanted.taskResources.get("cpus")
    return 0 if request is None else int(request.amount)


def _java_backed(context: Any, profile: Any) -> Any:
    """One that was made before the session has no half in Java yet."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    if profile._java_resource_profile is not None:
        return profile
    requests = TaskResourceRequests(context._jvm, profile.taskResources)
    return ResourceProfileBuilder().require(requests).build


def is_dynamic(context: Any) -> bool:
    """Whether Spark adds and removes executors while stages run."""
    with _lock:
        return context.applicationId in _starting or _setting(context).lower() == "true"


@contextmanager
def barriers_allowed(context: Any) -> Iterator[None]:
    """Within it, Spark creates barrier stages. Any thread may have submitted them."""
    application = str(context.applicationId)
    with _lock:
        is_needed = application in _starting or _setting(context).lower() == "true"
        if is_needed:
            context._jsc.sc().conf().set(DYNAMIC, "false")
            _starting[application] = _starting.get(application, 0) + 1
    try:
        yield
    finally:
        if is_needed:
            with _lock:
                _starting[application] -= 1
                if not _starting[application]:
                    del _starting[application]
                    with suppress(Exception):  # Spark has stopped, or Java is gone
                        context._jsc.sc().conf().set(DYNAMIC, "true")


def allocate(
    context: Any,
    needed: int,
    running: Callable[[str], int],
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Let Spark start executors until so many tasks fit; returns how many have fitted.

    ``running``: how many tasks of a job group run now.
    """
    group = f"headgate-executors-{secrets.token_hex(8)}"
    log.info("asking Spark for executors with %d slots", needed)
    thread = _held(context, needed, group)
    thread.start()
    most, deadline = 0, time.monotonic() + FIRST_S
    try:
        while most < needed and thread.is_alive() and not is_over():
            if (found := running(group)) > most:
                most, deadline = found, time.monotonic() + NEXT_S
            elif time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        return most
    finally:
        with suppress(Exception):  # as above
            _release(context, group, thread, running)


def _release(
    context: Any, group: str, thread: threading.Thread, running: Callable[[str], int]
) -> None:
    """Cancel the job, also one that Spark gets only now, and wait until its slots are free."""
    deadline = time.monotonic() + CANCEL_S
    while (thread.is_alive() or running(group)) and time.monotonic() < deadline:
        context.cancelJobGroup(group)
        thread.join(LOOK_S)
        if not thread.is_alive() and running(group):
            time.sleep(LOOK_S)


def _held(context: Any, needed: int, group: str) -> threading.Thread:
    """A thread that runs a Spark job of so many tasks, which wait until they are cancelled."""
    from pyspark import InheritableThread

    seconds = HOLD_S

    def wait(_: Any) -> list[Any]:  # nested: it travels by value, and needs no Headgate there
        import time

        time.sleep(seconds)
        return []

    def hold() -> None:
        try:
            context.setJobGroup(group, "Headgate asks for executors", interruptOnCancel=True)
            context.setLocalProperty("callSite.short", "Headgate: asking for executors")
            tasks = context.parallelize(range(needed), needed).mapPartitions(wait)
            context.runJob(tasks, list, list(range(needed)))
        except Exception as error:  # it was cancelled; or the job itself will meet the same
            log.debug("the job that asks for executors has ended: %s", error)

    thread = InheritableThread(target=hold, name="headgate-executors")
    thread.daemon = True
    return thread


def _setting(context: Any) -> str:
    return str(context._jsc.sc().conf().get(DYNAMIC, "false"))
