"""A driver for the cluster's test: a session with all that changes how Spark places tasks.

Arguments: the master, and a folder that the executors see, too.
"""

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext, TaskContext
from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests

from headgate.base.errors import HeadgateError
from headgate.cli.doctor import check_spark
from headgate.datastream import MapFunction, StreamExecutionEnvironment
from headgate.spark.probe import probe_spark
from headgate.spark.session import find_session, slots
from headgate.spark.submission import await_executors

EXCLUDE = "spark.excludeOnFailure"
PLAIN = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.master": sys.argv[1],
}
SETTINGS = {
    **PLAIN,
    "spark.task.cpus": "2",
    "spark.executor.resource.fake.amount": "2",
    "spark.task.resource.fake.amount": "0.5",
    "spark.python.worker.reuse": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.01",
    f"{EXCLUDE}.enabled": "true",
    f"{EXCLUDE}.task.maxTaskAttemptsPerExecutor": "1",
    f"{EXCLUDE}.stage.maxFailedTasksPerExecutor": "1",
    f"{EXCLUDE}.application.maxFailedTasksPerExecutor": "1",
}
FOLDER = Path(sys.argv[2])
LOOKS = 8
"""At the tasks of a stage, before it is clear that Spark does not speculate on them."""
LONG_S = 100.0
SPECULATED = FOLDER / "speculated"
"""A file that is there when Spark wants to speculate on a task."""


class Place(MapFunction):
    """What a function sees of the Spark task that it runs in; one may be slower than others."""

    def __init__(self, is_watched: bool) -> None:
        self.is_watched = is_watched

    def map(self, value: int) -> tuple[str, int, list[str]]:
        task: Any = TaskContext.get()
        if self.is_watched and value == 1:
            wait_for(watched(task.stageId()))
        return process(), task.cpus(), task.resources()["fake"].addresses


def process() -> str:
    """This one: its id, and when it was started, because ids come again."""
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return f"{os.getpid()} of {started}"


def watched(stage: int) -> Path:
    """A file that is there when somebody has looked at the tasks of this stage for a while."""
    return FOLDER / f"watched-{stage}"


def who(_: Iterable[int]) -> list[tuple[int, str, list[str]]]:
    """Which process, in which executor, and what all the tasks know of each other."""
    task = BarrierTaskContext.get()
    name = f"{task.partitionId()}"
    return [(os.getpid(), os.environ["SPARK_EXECUTOR_DIRS"], task.allGather(name))]


def slow_at_the_end(rows: Iterable[int]) -> list[int]:
    """The last of four tasks is slow; Spark would run it on another host, too."""
    task: Any = TaskContext.get()
    if task.partitionId() == 3:
        wait_for(SPECULATED)
    return []


def wait_for_file(rows: Iterable[int]) -> list[int]:
    wait_for(FOLDER / "go")
    return []


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LONG_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def fail_at_first(rows: Iterable[int]) -> list[int]:
    task: Any = TaskContext.get()
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        raise RuntimeError("planted")
    return []


def environment(parallelism: int, profile: Any = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    return env if profile is None else env.set_resource_profile(profile)


def places(env: StreamExecutionEnvironment, is_watched: bool = False) -> tuple[list[Any], str]:
    """What all functions have seen, and Spark's group of the job."""
    stream = env.from_collection(list(range(4))).rebalance().map(Place(is_watched))
    results: Any = stream.execute_and_collect("places")
    return sorted(results), f"headgate-{results._results._job.job_id}"


def refused(env: StreamExecutionEnvironment) -> str:
    try:
        places(env)
    except HeadgateError as error:
        return f"{type(error).__name__}: {error}"
    return "it has run"


def stage_tasks(context: Any, group: str) -> tuple[int, list[int]]:
    """The stage of a job group, and how many of its tasks ended well, failed or were killed."""
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    (job,) = tracker.getJobIdsForGroup(group)
    (stage,) = tracker.getJobInfo(job).stageIds
    found = store.lastStageAttempt(stage)
    return stage, [found.numCompleteTasks(), found.numFailedTasks(), found.numKilledTasks()]


class SpeculationWatch(threading.Thread):
    """Which stages Spark wants to speculate on; on one host it never gets as far as a copy."""

    def __init__(self, context: Any) -> None:
        super().__init__(daemon=True)
        self.stages: dict[int, bool] = {}
        """Whether some task was to be speculated on, by stage."""
        self._looks: Counter[int] = Counter()
        self._pool = context._jsc.sc().taskScheduler().rootPool()
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.2):
            running = self._pool.getSortedTaskSetQueue().iterator()
            while running.hasNext():
                tasks = running.next()
                stage, wanted = int(tasks.stageId()), int(tasks.speculatableTasks().size())
                self.stages[stage] = self.stages.get(stage, False) or wanted > 0
                self._looks[stage] += 1
                if wanted:
                    SPECULATED.touch()
                if self._looks[stage] == LOOKS:
                    watched(stage).touch()

    def end(self) -> None:
        self._is_over.set()
        self.join()


def waiting(context: Any, profile: Any) -> dict[str, Any]:
    """A job of Spark's own has all slots; ours is submitted, and says what it waits for."""
    rows = context.parallelize(range(4), 4)
    foreign = threading.Thread(target=lambda: rows.mapPartitions(wait_for_file).collect())
    foreign.start()
    session = find_session()
    while slots(session).busy < 2:
        time.sleep(0.05)
    env = environment(2, profile)
    env.from_collection([1]).rebalance().map(lambda value: value).print()
    client: Any = env.execute_async("waiting")
    job = client._job
    while not (reason := job.waits_for()):
        time.sleep(0.05)
    status = job.status().name
    (FOLDER / "go").touch()
    client.get_job_execution_result().result()
    foreign.join()
    return {"reason": reason, "status": status, "after": job.waits_for()}


def dynamic() -> dict[str, Any]:
    """A session without executors, until somebody asks for them."""
    keys = {"enabled": "true", "shuffleTracking.enabled": "true", "initialExecutors": "0"}
    settings = {f"spark.dynamicAllocation.{key}": text for key, text in keys.items()}
    settings = {**PLAIN, **settings, "spark.dynamicAllocation.maxExecutors": "1"}
    # The JVM has the settings of its first session, unless one says otherwise.
    session = find_session({**settings, "spark.executor.cores": "2", "spark.task.cpus": "1"})
    context: Any = session.sparkContext
    report: dict[str, Any] = {"before": slots(session).total}
    numbers = environment(2).from_collection([1, 2, 3]).rebalance()
    report["rows"] = sorted(numbers.map(lambda value: value * 2).execute_and_collect("asking"))
    report["after"] = slots(session).total
    report["setting"] = context.getConf().get("spark.dynamicAllocation.enabled")
    report["too wide"] = refused(environment(3))
    try:
        numbers.map(lambda value: (value,)).to_dataframe("value long")
    except HeadgateError as error:
        report["lazy"] = str(error)
    report["doctor"] = {found.check: found.state for found in check_spark(probe_spark)}
    session.stop()
    return report


def barrier_stage(session: Any) -> dict[str, Any]:
    """What its tasks and `headgate doctor` say of the cluster."""
    rows = session.sparkContext.parallelize(range(2), 2)
    seen = rows.barrier().mapPartitions(who).collect()
    found = slots(session)
    return {
        "total": found.total,
        "busy": found.busy,
        "processes": len({row[0] for row in seen}),
        "spanned": len({row[1] for row in seen}),
        "gathered": [row[2] for row in seen],
        "seen": {finding.check: finding.state for finding in check_spark(probe_spark)},
    }


def main() -> dict[str, Any]:
    logging.basicConfig(level=logging.WARNING)
    gpu = TaskResourceRequests().cpus(2).resource("fake", 1)
    # As a program does it that makes the profile before there is a session.
    profile = ResourceProfileBuilder().require(gpu).build
    session = find_session(SETTINGS)
    context: Any = session.sparkContext
    await_executors(session, 2)
    report = barrier_stage(session)
    rows = context.parallelize(range(4), 4)
    watch = SpeculationWatch(context)
    watch.start()
    context.setJobGroup("plain", "to see that speculation is on")
    rows.mapPartitions(slow_at_the_end).collect()
    report["places"], group = places(environment(2, profile), is_watched=True)
    watch.end()
    plain, _ = stage_tasks(context, "plain")
    barrier, report["tasks"] = stage_tasks(context, group)
    report["speculated"] = [watch.stages[plain], watch.stages[barrier]]
    report["too wide"] = refused(environment(3, profile))
    executors = ResourceProfileBuilder().require(gpu).require(ExecutorResourceRequests().cores(2))
    report["executors"] = refused(environment(2, executors.build))
    report["waiting"] = waiting(context, profile)
    rows.mapPartitions(fail_at_first).collect()
    report["excluded"] = refused(environment(2))
    report["left"], _ = places(environment(1))
    session.stop()
    report["dynamic"] = dynamic()
    return report


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        print(json.dumps(main()))
