"""One run after the other in the same task managers: nothing of the first reaches the second."""

import functools
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.base.checkpoints import CheckpointOptions
from headgate.base.errors import TaskStuck
from headgate.base.messages import (
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointOrder,
    CheckpointTriggered,
    Metrics,
    Placed,
    TaskState,
)
from headgate.connectors.function import FunctionSource
from headgate.core.operators.source import SourceOperator
from headgate.functions.function import SourceFunction
from headgate.host.net.exchange import Exchange
from headgate.host.worker import task_manager
from headgate.host.worker.exits import SOURCE_THREADS, threads_of
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamGraph, StreamNode
from tests.host.jobs import FailLater, double, flows, job_of, written
from tests.host.leaks import descriptors, own_threads
from tests.host.rig import all_home, eventually
from tests.host.scripted import Scripted, scripted

DOUBLED = sorted(str(2 * number) for number in range(1000))
OPTIONS = CheckpointOptions(1000)

held = threading.Event()
reached = threading.Event()


def hold(number: int) -> int:
    """Does not come back until the test lets it."""
    reached.set()
    assert held.wait(20)
    return double(number)


@pytest.fixture(autouse=True)
def fresh_events() -> None:
    held.clear()
    reached.clear()


def other(folder: Path) -> Path:
    made = folder.parent / "other lines"
    made.mkdir()
    return made


@pytest.mark.parametrize("with_code", [True, False])
def test_after_a_failure_the_next_run_begins_in_the_same_process(
    folder: Path, with_code: bool
) -> None:
    with scripted() as driver:
        graph = job_of(folder, FailLater(folder), count=None)
        tasks = driver.deploy("a", graph)
        eventually(lambda: driver.failures("a"), "it fails")
        driver.cancel("a", tasks)
        for part in folder.iterdir():
            part.unlink()
        if with_code:
            graph = job_of(folder)
        tasks = driver.deploy("b", graph, with_code=with_code)
        if with_code:
            driver.await_all("b", tasks, TaskState.FINISHED)
            assert written(folder) == DOUBLED
        else:
            eventually(lambda: driver.failures("b"), "the same code fails again")
            driver.cancel("b", tasks)


def test_functions_are_made_anew_for_each_run(folder: Path) -> None:
    class Counting:
        def __init__(self) -> None:
            self.seen = 0

        def map(self, number: int) -> str:
            self.seen += 1
            return f"{self.seen}"

    with scripted(1) as driver:
        graph = job_of(folder, Counting(), parallelism=1)
        for run in ("a", "b"):
            driver.await_all(run, driver.deploy(run, graph), TaskState.FINISHED)
    assert written(folder) == sorted(2 * [str(number) for number in range(1, 1001)])


def test_a_run_waits_until_the_last_task_of_the_one_before_has_ended(folder: Path) -> None:
    more = other(folder)
    with scripted(1) as driver:
        old = driver.deploy("a", job_of(folder, hold, count=None, parallelism=1))
        assert reached.wait(20)
        new = driver.deploy("b", job_of(more, parallelism=1))
        driver.send(Placed("b", {}))
        driver.settle("a")
        assert not driver.changes("b")
        held.set()
        driver.await_all("b", new, TaskState.FINISHED)
        assert written(more) == DOUBLED
        ends = driver.changes("a")
        assert {ends[task][-1] for task in old} == {TaskState.CANCELLED}
        words = [word for word in driver.managers[0].heard if hasattr(word, "task")]
        runs = [word.run for word in words]
        assert runs == sorted(runs), "the last word of one comes before the first of the other"


def test_a_run_that_is_cancelled_while_it_waits_ends_too(folder: Path) -> None:
    with scripted(1) as driver:
        driver.deploy("a", job_of(folder, hold, count=None, parallelism=1))
        assert reached.wait(20)
        tasks = driver.deploy("b", job_of(other(folder), count=None, parallelism=1))
        driver.send(Cancel("b", "no more"))
        driver.settle("a")
        held.set()
        driver.await_end("b", tasks)
        assert {states[-1] for states in driver.changes("b").values()} == {TaskState.CANCELLED}


def test_of_two_runs_that_wait_the_newer_one_begins(folder: Path) -> None:
    more = other(folder)
    with scripted(1) as driver:
        driver.deploy("a", job_of(folder, hold, count=None, parallelism=1))
        assert reached.wait(20)
        driver.deploy("b", job_of(folder, count=None, parallelism=1))
        tasks = driver.deploy("c", job_of(more, parallelism=1))
        driver.settle("a")
        held.set()
        driver.await_all("c", tasks, TaskState.FINISHED)
        assert not driver.changes("b")
        assert written(more) == DOUBLED


@pytest.mark.parametrize("runs_before", [0, 1])
def test_a_task_that_never_ends_lets_no_other_run_begin(
    folder: Path, caplog: pytest.LogCaptureFixture, runs_before: int
) -> None:
    with scripted(1, cancel_ms=300) as driver:
        for number in range(runs_before):
            run = f"before {number}"
            driver.cancel(run, driver.deploy(run, job_of(folder, count=None, parallelism=1)))
        driver.deploy("a", job_of(folder, hold, count=None, parallelism=1))
        assert reached.wait(20)
        driver.deploy("b", job_of(other(folder), parallelism=1))
        eventually(lambda: "has not returned after it was cancelled" in caplog.text, "the word")
        assert "in hold" in caplog.text
        held.set()
        manager = driver.managers[0]
        manager.thread.join(20)
        assert isinstance(manager.error, TaskStuck)
        assert not driver.changes("b")


class Deaf(SourceFunction[int]):
    """A user's source that does not hear of its cancellation."""

    def run(self, ctx: Any) -> None:
        reached.set()
        assert held.wait(20)

    def cancel(self) -> None:
        pass


def test_a_source_function_that_runs_on_is_told_before_the_next_run_begins(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = StreamGraph("deaf")
    source = FunctionSource(Deaf(), cancel_timeout_ms=20)
    make = functools.partial(SourceOperator, source, (0,))
    graph.nodes[1] = StreamNode(1, "deaf", NodeKind.SOURCE, make, 1)
    with scripted(1) as driver:
        tasks = driver.deploy("a", build_job_graph(graph))
        assert reached.wait(20)
        driver.cancel("a", tasks)
        assert "has not returned" not in caplog.text
        tasks = driver.deploy("b", job_of(folder, parallelism=1))
        driver.await_all("b", tasks, TaskState.FINISHED)
        assert "a user's source function has not returned" in caplog.text
        held.set()
        eventually(lambda: not threads_of(SOURCE_THREADS), "it ends")


def test_what_is_said_to_another_run_is_not_heard(folder: Path) -> None:
    with scripted() as driver:
        driver.cancel("a", driver.deploy("a", job_of(folder, count=None)))
        more = other(folder)
        tasks = driver.deploy("b", job_of(more, count=None))
        eventually(lambda: flows(more), "data flows")
        for run in ("a", "c"):
            driver.send(Cancel(run, "too late"))
            driver.send(Placed(run, {"0.0": ("127.0.0.1", 1)}))
            driver.send(CheckpointTriggered(run, "0.0", 3, OPTIONS))
            driver.send(CheckpointCompleted(run, 3))
            driver.send(CheckpointAborted(run, 3, "late"))
        size = len(written(more))
        eventually(lambda: len(written(more)) > size + 10, "it goes on")
        assert not driver.heard(CheckpointDeclined)
        driver.cancel("b", tasks)


def test_a_task_that_is_not_here_declines_and_one_that_has_finished_says_nothing(
    folder: Path,
) -> None:
    """That it has finished is on its way to the driver; a decline would fail the checkpoint."""
    with scripted() as driver:
        order = CheckpointOrder(str(folder / "chk"), "job")
        tasks = driver.deploy("a", job_of(folder), checkpoints=order)
        driver.await_all("a", tasks, TaskState.FINISHED)
        driver.send(CheckpointTriggered("a", "0.0", 3, OPTIONS), 0)
        driver.send(CheckpointTriggered("a", "9.9", 4, OPTIONS), 0)
        eventually(lambda: driver.heard(CheckpointDeclined), "one declines")
        assert driver.heard(CheckpointDeclined) == [
            CheckpointDeclined("a", 4, "9.9", "task 9.9 is not here"),
        ]


def run_of(word: Metrics) -> str:
    return word.run


def resident_kib() -> int:
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1])


def leftovers(driver: Scripted, tmp: Path) -> tuple[int, int, int]:
    gc.collect()
    return len(own_threads()), len(descriptors()), len(list(tmp.glob("headgate-*")))


def test_fifty_restarts_leave_nothing_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges: list[Exchange] = []

    class Known(Exchange):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            exchanges.append(self)

    monkeypatch.setattr(task_manager, "Exchange", Known)
    with scripted() as driver:
        before = after = (0, 0, 0)
        resident = 0
        for number in range(51):
            for part in folder.iterdir():
                part.unlink()
            run = f"run {number}"
            tasks = driver.deploy(run, job_of(folder, count=None), with_code=not number)
            eventually(lambda: flows(folder), "data flows")
            driver.cancel(run, tasks)
            if number == 10:
                before, resident = leftovers(driver, tmp_path / "temp"), resident_kib()
        after = leftovers(driver, tmp_path / "temp")
        assert after == before
        assert len(exchanges) == 2 and len({run_of(word) for word in driver.heard(Metrics)}) > 40
        for exchange in exchanges:
            assert all_home(exchange)
            assert len(exchange._runners) <= 6
        assert resident_kib() < resident + 20 * 1024
        last = driver.deploy("last", job_of(folder))
        driver.await_all("last", last, TaskState.FINISHED)
        for part in folder.iterdir():
            part.unlink()
