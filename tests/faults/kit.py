"""One job under fault: what the test sees of it, what it does to it, and how long it waits."""

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import RLIMIT_FSIZE, prlimit

from headgate.api.job import JobClient
from tests.faults.processes import Frozen, reset_connections
from tests.faults.program import Place, Trial, build, check, environment
from tests.spark.cluster import descendants

log = logging.getLogger(__name__)

STEP_S = 60.0
"""Whatever the test waits for comes within this time, or the test fails."""
BETWEEN_S = 0.4
"""A fault comes at a random moment within so long; checkpoints are nearer to each other."""
LAST_S = 1.0
"""A job that hurries ends within about this time."""
QUICK_HEARTBEATS = {"heartbeat.interval": "300", "heartbeat.timeout": "1500"}
PATIENCE = {"execution.checkpointing.tolerable-failed-checkpoints": "1000"}


class Job:
    """A job of this process."""

    def __init__(self, client: JobClient, place: Place) -> None:
        self.client = client
        self.place = place
        self.most_in_flight = 0
        """Bytes of records on their way, in a checkpoint that was seen."""

    def figure(self, name: str) -> int:
        value = self.client.get_metrics().get(f"job.{name}", 0)
        assert isinstance(value, int), value
        return value

    @property
    def restarts(self) -> int:
        return self.figure("restarts")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to happen before the job ends."""
        deadline = time.monotonic() + STEP_S
        while not condition():
            status = self.client.get_job_status().result()
            if status.is_terminal_state():
                self.client.get_job_execution_result().result()
                raise AssertionError(f"the job has ended before {what}")
            assert time.monotonic() < deadline, f"not within {STEP_S} s: {what}"
            in_flight = self.figure("checkpoints.last.in_flight_bytes")
            self.most_in_flight = max(self.most_in_flight, in_flight)
            time.sleep(0.01)

    def await_more(self, name: str, count: int = 1) -> None:
        """Wait until a figure of the job has grown."""
        wanted = self.figure(name) + count
        self.until(lambda: self.figure(name) >= wanted, f"{count} more {name}")

    def await_checkpoint(self) -> None:
        """Wait for one that began after now: all tasks are open, and have state."""
        self.await_more("checkpoints.completed", 2)

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        result = self.client.get_job_execution_result()
        deadline = time.monotonic() + STEP_S
        while not result.done():
            assert time.monotonic() < deadline, f"the job has not ended within {STEP_S} s"
            time.sleep(0.01)
        result.result()

    def end(self) -> None:
        if not self.client.get_job_status().result().is_terminal_state():
            self.client.cancel().result()


Strike = Callable[[Job, random.Random], None]


def fail_function(job: Job, chance: random.Random) -> None:
    """A task fails, whichever takes the next record."""
    job.place.let_fail()
    job.until(lambda: not job.place.is_to_fail, "a function failed")


def kill_worker(job: Job, chance: random.Random) -> None:
    """SIGKILL."""
    pid = chance.choice(job.place.processes())
    if pid in descendants(os.getpid()):  # else it was killed before, and nobody follows yet
        log.info("process %d is killed", pid)
        os.kill(pid, signal.SIGKILL)


def freeze_worker(job: Job, chance: random.Random) -> None:
    """SIGSTOP until the job goes on without it, then SIGCONT: it must do no harm."""
    restarts = job.restarts
    frozen = Frozen(chance.choice(job.place.processes()))
    log.info("process %d is frozen", frozen.pid)
    try:
        job.until(lambda: job.restarts > restarts, "it was missed")
        time.sleep(chance.uniform(0, 1.5))
    finally:
        log.info("process %d wakes up: %s", frozen.pid, frozen.wake())


def reset_links(job: Job, chance: random.Random) -> None:
    """RST for all connections between the workers; those to the driver stay."""
    with suppress(FileNotFoundError):  # a worker has gone
        log.info("%d connections are reset", reset_connections(job.place.processes()))


def break_storage(job: Job, chance: random.Random) -> None:
    """The storage is out of order until a checkpoint, or the job, has failed of it.

    Then a function fails: before all is well again, or after that.
    """
    failed, restarts = job.figure("checkpoints.failed"), job.restarts
    broken = chance.choice((folder_gone, disk_full))

    def is_felt() -> bool:
        return job.figure("checkpoints.failed") > failed or job.restarts > restarts

    with broken(job.place):
        job.until(is_felt, "the storage was missed")
        if broken is folder_gone and chance.random() < 0.5:
            fail_function(job, chance)
        time.sleep(chance.uniform(0, BETWEEN_S))
    if job.restarts == restarts:
        fail_function(job, chance)


@contextmanager
def folder_gone(place: Place) -> Iterator[None]:
    """A file stands where the folder of the checkpoints was."""
    away = place.storage.with_name("away")
    log.info("the folder of the checkpoints is gone")
    place.storage.rename(away)
    place.storage.touch()
    try:
        yield
    finally:
        place.storage.unlink()
        away.rename(place.storage)
        log.info("the folder is back")


@contextmanager
def disk_full(place: Place) -> Iterator[None]:
    """No file of the workers can grow: neither checkpoints, nor what sinks and backends write."""
    handles = {pid: prlimit(pid, RLIMIT_FSIZE) for pid in place.processes()}
    log.info("the disk is full")
    for pid, (_, most) in handles.items():
        prlimit(pid, RLIMIT_FSIZE, (0, most))
    try:
        yield
    finally:
        for pid, limits in handles.items():
            with suppress(ProcessLookupError):
                prlimit(pid, RLIMIT_FSIZE, limits)
        log.info("the disk has room again")


@dataclass(frozen=True)
class Fault:
    """``strike`` does it; ``is_short``: without waiting for what the job makes of it."""

    strike: Strike
    settings: Mapping[str, str] = field(default_factory=dict)
    is_short: bool = False
    rounds: int = 2


FAULTS = {
    "function": Fault(fail_function),
    "worker": Fault(kill_worker, is_short=True),
    "frozen": Fault(freeze_worker, QUICK_HEARTBEATS, rounds=1),
    "storage": Fault(break_storage, PATIENCE),
    "connections": Fault(reset_links, is_short=True),
}


def run_with(name: str, trial: Trial, folder: Path) -> None:
    """A whole run: load, checkpoints, faults, recovery, end; and what it has committed."""
    fault, place = FAULTS[name], Place(str(folder))
    chance = random.Random(f"{name} {trial}")
    env = environment(trial, place, **fault.settings)
    build(env, trial, place)
    job = Job(env.execute_async(f"{name} {trial}"), place)
    try:
        for _ in range(fault.rounds):
            job.await_checkpoint()
            time.sleep(chance.uniform(0, BETWEEN_S))
            restarts = job.restarts
            fault.strike(job, chance)
            job.until(lambda was=restarts: job.restarts > was, f"a restart after {name}")
            if fault.is_short and chance.random() < 0.5:  # while it recovers
                time.sleep(chance.uniform(0, BETWEEN_S))
                fault.strike(job, chance)
        place.hurry()
        if fault.is_short and chance.random() < 0.5:  # perhaps while tasks are finishing
            time.sleep(chance.uniform(0, LAST_S))
            fault.strike(job, chance)
        job.finish()
    finally:
        job.end()
    assert job.restarts >= fault.rounds
    assert (job.most_in_flight > 0) == (trial.mode != "aligned")
    check(trial, place)
