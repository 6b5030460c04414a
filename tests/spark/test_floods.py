"""Strangers at every port of a job on Spark: its records keep coming, and nothing of them stays."""

import contextlib
import threading
import time
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from headgate.base.settings import RestSettings
from headgate.observe.web.server import page_server
from headgate.spark.driver_services import driver_services
from headgate.spark.job import SparkJob
from headgate.spark.submission import on_launched
from tests.adversaries.floods import drip, open_flood
from tests.spark.cluster import until
from tests.spark.programs import CountTo, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLERS = 80
FLOOD_S = 3.0
LISTENING = "0A"
WORKER_MB = 30


def ports_of(pid: int) -> set[int]:
    """Where a process listens on the loopback address."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(file.readlink()))
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, address, _, state, *_, inode = line.split()[:10]
        if state == LISTENING and f"socket:[{inode}]" in sockets:
            found.add(int(address.partition(":")[2], 16))
    return found


def private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_job_on_spark_goes_on_under_a_flood_at_all_of_its_ports(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[SparkJob] = []
    monkeypatch.setattr("headgate.spark.submission.on_launched", [*on_launched, jobs.append])
    stream = environment().add_source(CountTo(None, 0.001)).rebalance().map(lambda number: number)
    with stream.execute_and_collect("flooded") as results:
        seen = [next(results) for _ in range(100)]
        (job,) = jobs
        assert until(lambda: len(job.task_managers()) == 2, 30)
        workers = [manager.pid for manager in job.task_managers()]
        driver, page = driver_services(spark), page_server(RestSettings())
        assert page is not None
        web = urlsplit(page.url)
        data = [("127.0.0.1", port) for pid in workers for port in ports_of(pid)]
        assert len(data) >= 2, "each worker has a port for data"
        threads, held = threading.active_count(), {pid: descriptors(pid) for pid in workers}
        memory = {pid: private_mb(pid) for pid in workers}
        chance, socks = Random(17), []
        with contextlib.ExitStack() as stack:
            there = (str(web.hostname), int(web.port or 0))
            for address in (driver.control.address, driver.results.address, there, *data):
                socks += open_flood(stack, address, CALLERS, chance)
            end, came = time.monotonic() + FLOOD_S, 0
            while time.monotonic() < end:
                drip(socks)
                seen += islice(results, 10)
                came += 10
            assert came > 100, "records kept coming"
            for pid in workers:
                assert private_mb(pid) - memory[pid] < WORKER_MB
        seen += islice(results, 500)
        with urlopen(page.url, timeout=30) as answer:
            assert answer.status == 200, "the page answers"
        assert until(lambda: threading.active_count() <= threads + 1, 60), "their threads end"
        for pid in workers:
            assert until(lambda pid=pid: descriptors(pid) <= held[pid] + 2, 60)
    for task in (0, 1):  # they take records in turns
        of_task = [number for number in seen if number % 2 == task]
        assert of_task == list(range(task, task + 2 * len(of_task), 2)), "all, once, in order"
