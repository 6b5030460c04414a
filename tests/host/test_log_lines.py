"""Lines of real tasks and real workers: each names its job, task, subtask and attempt."""

import asyncio
import functools
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.control.life_cycle import JobState
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.core.operators.one_input import MapOperator
from headgate.host.driver.control_server import ControlServer
from tests.host.conftest import MakeExchange
from tests.host.control_rig import TIMES, Launcher, ended, workers
from tests.host.jobs import job_of
from tests.host.local_job import Job, Run
from tests.host.log_kit import KeptLines, kept_lines
from tests.host.rig import eventually

LOG = logging.getLogger("shop.prices")


@pytest.fixture
def kept() -> Iterator[KeptLines]:
    with kept_lines(LOG.name) as lines:
        yield lines


def carry_on(number: int) -> int:
    """Logs on the task's thread, and on one of its own."""
    LOG.warning("in the task")
    thread = threading.Thread(target=LOG.warning, args=("in a thread",))
    thread.start()
    thread.join()
    return number


class Asks:
    """Logs where coroutines run, and where what blocks is run for them."""

    def open(self, context: object) -> None:
        LOG.warning("in open")

    async def async_invoke(self, value: int) -> list[int]:
        LOG.warning("in a coroutine")
        await asyncio.get_running_loop().run_in_executor(None, LOG.warning, "in the executor")
        await asyncio.to_thread(LOG.warning, "in to_thread")
        return [value]

    def timeout(self, value: int) -> list[int]:
        return []

    def close(self) -> None:
        """Nothing is open."""


def test_lines_of_a_task_and_of_its_coroutines_name_it(
    make_exchange: MakeExchange, kept: KeptLines
) -> None:
    job = Job()
    mapped = job.operator(functools.partial(MapOperator, carry_on), job.source([1]), name="prices")
    asked = functools.partial(AsyncWaitOperator, Asks(), 60_000, 10, True)
    job.collect(job.operator(asked, mapped, name="ask"))
    run = Run(job, make_exchange(), name="orders", attempt=3)
    run.run()
    (vertex,) = run.job_graph.vertices
    for message, operator in (
        ("in the task", "prices"),
        ("in open", "ask"),
        ("in a coroutine", "ask"),
        ("in the executor", "ask"),
        ("in to_thread", "ask"),
    ):
        line = kept.of(message)
        found = (line.task, line.subtask, line.attempt, line.operator)
        assert found == (vertex.name, 0, 3, operator), message
    assert kept.of("in a thread").task == ""  # it might serve several tasks: nobody can know
    run.close()


def warn_of_seven(number: int) -> int:
    if number == 7:
        LOG.warning("it is seven")
        LOG.info("quiet")
        threading.Thread(target=LOG.error, args=("by a thread",)).start()
    return number


def test_lines_of_workers_reach_the_driver(no_leaks: None, tmp_path: Path) -> None:
    with ControlServer(times=TIMES) as server:
        launcher = Launcher(server)
        run, contact = launcher.begin(job_of(tmp_path, warn_of_seven, count=100))
        with workers(2) as (first, second):
            first.serve(contact, 0, may_exit=True)
            second.serve(contact, 1, may_exit=True)
            assert ended(run).state is JobState.FINISHED
            first.returned()
            second.returned()
        eventually(lambda: len(launcher.logged) == 2, "both lines")
    by_message = {line.message: line for line in launcher.logged}
    line = by_message["it is seven"]
    assert (line.level, line.logger) == ("WARNING", LOG.name)
    assert (line.task, line.operator, line.attempt) == ("map", "map", 0)
    assert line.subtask in (0, 1)
    pids = {str(first.process.pid), str(second.process.pid)}
    assert line.host.rpartition(":")[2] in pids
    own = by_message["by a thread"]
    assert (own.level, own.task, own.attempt) == ("ERROR", "", 0)


def test_lines_before_the_first_run_are_sent_too(no_leaks: None, tmp_path: Path) -> None:
    with ControlServer(times=TIMES) as server:
        launcher = Launcher(server)
        run, contact = launcher.begin(job_of(tmp_path, _unloadable(), count=100, parallelism=1))
        with workers(1) as (worker,):
            worker.serve(replace(contact, segments=None), 0, may_exit=True)
            assert ended(run).state is JobState.FAILED
            worker.returned()
        eventually(lambda: bool(launcher.logged), "a line of the task manager's")
    assert launcher.logged[0].logger == "shop.prices"


class _Warns:
    """Logs when it is loaded, and cannot be."""

    def __reduce__(self) -> tuple[object, ...]:
        return _load, ()


def _unloadable() -> object:
    return _Warns()


def _load() -> object:
    LOG.warning("it is being loaded")
    raise OSError("the model is not there")
