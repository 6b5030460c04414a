"""A driver for the cluster's test: barrier stages over all slots. Argument: the master."""

import json
import os
import sys
from collections.abc import Iterable

from pyspark import BarrierTaskContext

from headgate.cli.doctor import check_spark
from headgate.spark.probe import probe_spark
from headgate.spark.session import await_slots, find_session, slots

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def who(_: Iterable[int]) -> list[tuple[int, str, list[str]]]:
    """Which process, in which executor, and what all the tasks know of each other."""
    task = BarrierTaskContext.get()
    name = f"{task.partitionId()}"
    return [(os.getpid(), os.environ["SPARK_EXECUTOR_DIRS"], task.allGather(name))]


if __name__ == "__main__":
    session = find_session({**SETTINGS, "spark.master": sys.argv[1]})
    found = await_slots(session, 4)
    rows = session.sparkContext.parallelize(range(4), 4).barrier().mapPartitions(who).collect()
    report = {
        "total": found.total,
        "busy": slots(session).busy,
        "processes": len({row[0] for row in rows}),
        "executors": len({row[1] for row in rows}),
        "gathered": [row[2] for row in rows],
        "doctor": {finding.check: finding.state for finding in check_spark(probe_spark)},
    }
    session.stop()
    print(json.dumps(report))
