"""Many jobs of one driver: side by side, one after another, and what is left of them: nothing."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.api.job import JobStatus
from headgate.base.errors import JobCancelled, JobFailed
from headgate.datastream import MapFunction, RuntimeContext
from headgate.spark.driver_services import driver_services
from headgate.spark.session import slots
from tests.spark.cluster import until
from tests.spark.programs import CountTo, collected, environment, fail_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = 25


class Meets(MapFunction[Any, Any]):
    """Waits in ``open`` until the other job is there as well."""

    def __init__(self, folder: Path, me: str, other: str) -> None:
        self.me, self.other = folder / me, folder / other

    def open(self, runtime_context: RuntimeContext) -> None:
        self.me.touch()
        assert until(self.other.exists, 60), "the other job does not run"

    def map(self, value: Any) -> Any:
        return self.me.name, value


def test_two_jobs_run_at_the_same_time(spark: "SparkSession", tmp_path: Path) -> None:
    def run(me: str, other: str) -> list[Any]:
        return collected(environment().from_collection(range(5)).map(Meets(tmp_path, me, other)))

    with ThreadPoolExecutor() as pool:
        runs = {pool.submit(run, "one", "two"): "one", pool.submit(run, "two", "one"): "two"}
        for done in as_completed(runs):  # one that cannot start says why before the other gives up
            assert done.result() == [(runs[done], n) for n in range(5)]


def test_a_failure_of_one_job_does_not_touch_the_other(spark: "SparkSession") -> None:
    env = environment(1)
    with env.add_source(CountTo(None, 0.001)).execute_and_collect("lives") as results:
        next(results)
        other = environment()
        other.from_collection(range(10)).map(fail_at(5)).add_sink(lambda value: None)
        with pytest.raises(JobFailed):
            other.execute("fails")
        later = [next(results) for _ in range(100)]
        assert later == list(range(later[0], later[0] + 100))


def test_a_client_tells_how_the_job_stands_and_ends_it(spark: "SparkSession") -> None:
    env = environment()
    env.add_source(CountTo(None, 0.01)).add_sink(lambda value: None)
    client = env.execute_async("endless")
    assert until(lambda: client.get_job_status().result() is JobStatus.RUNNING, 30)
    result = client.get_job_execution_result()
    assert not result.done()
    assert until(lambda: any(name.endswith("records_out") for name in client.get_metrics()), 30)
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert result.done() and isinstance(result.exception(), JobCancelled)
    client.cancel().result()  # once more does no harm


def test_an_asynchronous_job_that_nobody_waits_for_leaves_nothing(spark: "SparkSession") -> None:
    env = environment()
    env.from_collection([1]).add_sink(lambda value: None)
    client = env.execute_async("forgotten")
    control = driver_services(spark).control
    assert until(lambda: client.get_job_status().result() is JobStatus.FINISHED, 30)
    assert until(lambda: client.get_job_id() not in control._jobs, 30)
    assert client.get_job_execution_result().result().get_job_id() == client.get_job_id()


class Looks(MapFunction[Any, Any]):
    """What the worker process holds before the job's own records come."""

    def map(self, value: Any) -> Any:
        threads = sorted(thread.name for thread in threading.enumerate())
        return os.getpid(), len(threads), len(os.listdir("/proc/self/fd")), threads


def held() -> tuple[list[str], int]:
    """Threads of Headgate and open files of this process."""
    threads = [thread.name for thread in threading.enumerate()]
    ours = sorted(name for name in threads if name.startswith("headgate"))
    return ours, len(os.listdir("/proc/self/fd"))


def test_many_jobs_leave_no_thread_socket_or_file(spark: "SparkSession") -> None:
    looks: list[Any] = []
    before: tuple[list[str], int] = ([], 0)
    for number in range(JOBS):
        if number == 5:  # those that are made once are there
            before = settled(spark)
        if number % 8 == 7:
            env = environment(1)
            env.from_collection([1]).map(fail_at(1)).add_sink(lambda value: None)
            with pytest.raises(JobFailed):
                env.execute()
        else:
            looks += environment(1).from_collection([1]).map(Looks()).execute_and_collect(limit=1)
    after = settled(spark)
    assert after[0] == before[0]
    assert after[1] <= before[1] + 4  # py4j keeps a few connections

    first, last = looks[:5], looks[-5:]
    # A thread of the job before may still be ending; a leak would add many.
    assert max(look[1] for look in last) <= max(look[1] for look in first) + 2, (first, last)
    assert max(look[2] for look in last) <= max(look[2] for look in first) + 2, (first, last)
    assert len({look[0] for look in looks}) <= 4 + JOBS // 10  # processes are used again
    driver = driver_services(spark)
    assert driver.results._streams == driver.results._connections == {}
    assert driver.slots._reserved == {}


def settled(spark: "SparkSession") -> tuple[list[str], int]:
    """What is held when nothing runs; threads of connections end a moment after their job."""
    assert until(lambda: slots(spark).busy == 0, 30)
    until(lambda: len(held()[0]) <= 3, 10)
    return held()
