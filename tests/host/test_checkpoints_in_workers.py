"""Checkpoints of real tasks in real task managers: taken, restored, declined, rescaled."""

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.base.checkpoints import CheckpointKind
from headgate.base.messages import (
    CheckpointAborted,
    CheckpointAcked,
    CheckpointDeclined,
    CheckpointOrder,
    Failure,
    TaskChanged,
    TaskState,
)
from headgate.base.settings import StateBackendKind, StateSettings
from headgate.host.checkpoints.location import new_savepoint
from headgate.host.checkpoints.snapshot_writer import WRITERS
from headgate.host.shipping.failures import revive
from headgate.plan.state_assignment import restore
from tests.host.checkpoint_kit import flip, names
from tests.host.counting import (
    COUNT,
    EXPECTED,
    count_job,
    counts_of,
    flood,
    may_write,
    shown,
    slow,
)
from tests.host.jobs import written
from tests.host.leaks import descriptors, own_threads
from tests.host.rig import eventually
from tests.host.scripted import scripted
from tests.host.scripted_checkpoints import acks_of, begin, go_on, place_of, take


@pytest.fixture(autouse=True)
def fresh_events() -> None:
    flood.clear()
    slow.clear()
    may_write.set()


@pytest.fixture
def order(tmp_path: Path) -> CheckpointOrder:
    return CheckpointOrder(str(tmp_path / "chk"), "job")


@pytest.mark.parametrize("backend", list(StateBackendKind))
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_job_goes_on_from_its_checkpoint_in_the_same_processes(
    folder: Path, order: CheckpointOrder, backend: StateBackendKind, exactly_once: bool
) -> None:
    order = replace(order, exactly_once=exactly_once, inline_bytes=10)
    graph = count_job(folder)
    with scripted(state=StateSettings(backend=backend)) as driver:
        tasks = begin(driver, graph, order, folder)
        location = place_of(order, 1)
        metadata = take(driver, "a", graph, 1, location)
        assert len(names(Path(location.own.path))) > len(tasks) / 2, "and the metadata"
        driver.cancel("a", tasks)
        go_on(driver, "b", graph, order, metadata, location.own.uri)
    assert counts_of(folder) == EXPECTED
    assert len(written(folder)) == COUNT, "nothing was read again"


def test_run_after_run_from_checkpoint_to_checkpoint_leaves_nothing_open(
    folder: Path, order: CheckpointOrder, tmp_path: Path
) -> None:
    order = replace(order, inline_bytes=0)
    graph = count_job(folder)
    with scripted(state=StateSettings(backend=StateBackendKind.ROCKSDB)) as driver:
        tasks = begin(driver, graph, order, folder)
        run, seen = "a", []
        for checkpoint in range(1, 9):
            location = place_of(order, checkpoint)
            metadata = take(driver, run, graph, checkpoint, location)
            driver.cancel(run, tasks)
            gc.collect()
            databases = len(list((tmp_path / "temp").glob("headgate-state-*/state-*")))
            seen.append((len(own_threads()), len(descriptors()), databases))
            run = f"after {checkpoint}"
            driver.deploy(
                run,
                graph,
                checkpoints=replace(order, restored_from=location.own.uri),
                restores=restore(metadata, graph),
            )
            driver.await_all(run, tasks, TaskState.RUNNING)
        assert seen[-1][1:] == seen[0][1:] and seen[-1][2] == 0
        assert seen[-1][0] <= seen[0][0] + 2 * WRITERS
        flood.set()
        driver.await_all(run, tasks, TaskState.FINISHED)
    assert counts_of(folder) == EXPECTED
    assert len(written(folder)) == COUNT


def test_what_was_on_its_way_in_full_buffers_comes_back(
    folder: Path, order: CheckpointOrder
) -> None:
    order = replace(order, overtake_after_ms=0)
    graph = count_job(folder)
    slow.set()
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        eventually(lambda: len(written(folder)) > 20, "some")
        location = place_of(order, 1)
        metadata = take(driver, "a", graph, 1, location)
        in_flight = sum(ack.figures.in_flight_bytes for ack in acks_of(driver, "a", 1))
        assert in_flight > 1000
        assert metadata.unaligned
        driver.cancel("a", tasks)
        for part in folder.iterdir():
            part.unlink()
        go_on(driver, "b", graph, order, metadata, location.own.uri)
    assert counts_of(folder) == EXPECTED


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("overtake_after_ms", [None, 0])
def test_a_job_goes_on_with_another_parallelism(
    folder: Path, order: CheckpointOrder, parallelism: int, overtake_after_ms: int | None
) -> None:
    order = replace(order, overtake_after_ms=overtake_after_ms)
    graph = count_job(folder)
    if overtake_after_ms == 0:
        slow.set()
    with scripted(3) as driver:
        tasks = begin(driver, graph, order, folder)
        location = place_of(order, 1)
        if slow.is_set():
            eventually(lambda: len(written(folder)) > 20, "some")
        metadata = take(driver, "a", graph, 1, location)
        driver.cancel("a", tasks)
        other = count_job(folder, parallelism)
        restores = restore(metadata, other).values()
        assert any(task.reassigned for task in restores) == slow.is_set()
        go_on(driver, "b", other, order, metadata, location.own.uri)
    assert counts_of(folder) == EXPECTED


def test_a_savepoint_needs_no_folder_of_the_job_and_restores_elsewhere(
    folder: Path, tmp_path: Path
) -> None:
    order = CheckpointOrder("", "job")
    graph = count_job(folder)
    location = new_savepoint(str(tmp_path / "mine"), "job")
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        metadata = take(driver, "a", graph, 1, location, CheckpointKind.SAVEPOINT)
        driver.cancel("a", tasks)
        moved = tmp_path / "moved"
        Path(location.own.path).rename(moved)
        go_on(driver, "b", graph, order, metadata, str(moved))
    assert counts_of(folder) == EXPECTED


def test_a_damaged_file_fails_the_run_by_name_and_another_one_follows(
    folder: Path, order: CheckpointOrder
) -> None:
    order = replace(order, inline_bytes=0)
    graph = count_job(folder)
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        location = place_of(order, 1)
        metadata = take(driver, "a", graph, 1, location)
        driver.cancel("a", tasks)
        count = next(iter(metadata.tasks[-1].operators[0].keyed.values()))
        file = Path(location.own.path) / count.path.split("/")[-1]
        flip(file, count.offset, 2)
        tasks = driver.deploy(
            "b",
            graph,
            checkpoints=replace(order, restored_from=location.own.uri),
            restores=restore(metadata, graph),
        )
        eventually(lambda: driver.failures("b"), "it fails")
        failure = next(failed for failed in driver.failures("b") if not failed.is_consequence)
        assert failure.kind.endswith("CheckpointCorrupt")
        assert str(file) in failure.message
        assert str(revive(failure)) == failure.message
        driver.cancel("b", tasks)
        file.unlink()
        tasks = driver.deploy(
            "c",
            graph,
            checkpoints=replace(order, restored_from=location.own.uri),
            restores=restore(metadata, graph),
        )
        eventually(lambda: driver.failures("c"), "it fails, too")
        driver.cancel("c", tasks)
        assert any(failed.kind.endswith("CheckpointMissing") for failed in driver.failures("c"))
        for part in folder.iterdir():
            part.unlink()
        flood.set()
        driver.await_all("d", driver.deploy("d", graph, checkpoints=order), TaskState.FINISHED)
    assert counts_of(folder) == EXPECTED


def test_a_storage_that_refuses_declines_and_the_job_and_the_next_one_go_on(
    folder: Path, order: CheckpointOrder
) -> None:
    order = replace(order, inline_bytes=0)
    graph = count_job(folder)
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        Path(order.folder).write_text("a file")
        driver.trigger("a", graph, 1)
        eventually(lambda: driver.heard(CheckpointDeclined), "it is declined")
        assert order.folder in driver.heard(CheckpointDeclined)[0].reason
        driver.send(CheckpointAborted("a", 1, "declined"))
        Path(order.folder).unlink()
        location = place_of(order, 2)
        metadata = take(driver, "a", graph, 2, location)
        driver.cancel("a", tasks)
        go_on(driver, "b", graph, order, metadata, location.own.uri)
    assert counts_of(folder) == EXPECTED


def test_a_checkpoint_that_is_given_up_or_cut_off_leaves_no_file(
    folder: Path, order: CheckpointOrder
) -> None:
    order = replace(order, inline_bytes=0)
    graph = count_job(folder)
    slow.set()  # aligned barriers wait behind what the slow function has not read
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        driver.trigger("a", graph, 1)
        eventually(lambda: len(acks_of(driver, "a", 1)) >= 2, "the sources have answered")
        driver.send(CheckpointAborted("a", 1, "too slow"))
        driver.trigger("a", graph, 2)
        eventually(lambda: len(acks_of(driver, "a", 2)) >= 2, "again")
        driver.cancel("a", tasks)
        acked = {
            piece.path
            for ack in driver.heard(CheckpointAcked)
            for operator in ack.state.operators
            for piece in (operator.source, *operator.keyed.values())
            if piece is not None
        }
        eventually(
            lambda: set(names(Path(order.folder) / "job")) == acked, "only what was acknowledged"
        )


def test_a_job_without_checkpoints_declines_them(folder: Path) -> None:
    graph = count_job(folder)
    with scripted() as driver:
        tasks = driver.deploy("a", graph)
        driver.trigger("a", graph, 1)
        eventually(lambda: len(driver.heard(CheckpointDeclined)) == 2, "both sources decline")
        assert {declined.reason for declined in driver.heard(CheckpointDeclined)} == {
            "the job takes no checkpoints"
        }
        driver.cancel("a", tasks)


def test_a_task_ends_when_its_checkpoints_are_written_and_says_so_last(
    folder: Path, order: CheckpointOrder
) -> None:
    graph = count_job(folder)
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        may_write.clear()
        driver.trigger("a", graph, 1)
        eventually(lambda: len(acks_of(driver, "a", 1)) == 4, "those without counts have answered")
        flood.set()
        eventually(lambda: counts_of(folder) == EXPECTED, "all was read")
        for task in ("2.0", "2.1"):
            assert driver.changes("a")[task][-1] is TaskState.RUNNING
        may_write.set()
        driver.await_all("a", tasks, TaskState.FINISHED)
        said: dict[str, list[str]] = {}
        for word in (word for manager in driver.managers for word in manager.heard):
            if isinstance(word, CheckpointAcked):
                said.setdefault(word.state.task, []).append("acked")
            elif isinstance(word, TaskChanged) and word.state is TaskState.FINISHED:
                said.setdefault(word.task, []).append("finished")
        assert said == {task: ["acked", "finished"] for task in tasks}


def test_state_that_is_being_written_holds_up_neither_cancellation_nor_the_next_run(
    folder: Path, order: CheckpointOrder
) -> None:
    graph = count_job(folder)
    with scripted() as driver:
        tasks = begin(driver, graph, order, folder)
        may_write.clear()
        driver.trigger("a", graph, 1)
        eventually(lambda: len(acks_of(driver, "a", 1)) == 4, "those without counts have answered")
        driver.cancel("a", tasks)
        for part in folder.iterdir():
            part.unlink()
        flood.set()
        driver.await_all("b", driver.deploy("b", graph, checkpoints=order), TaskState.FINISHED)
        assert counts_of(folder) == EXPECTED
        assert len(acks_of(driver, "a", 1)) == 4
        assert not driver.heard(CheckpointDeclined)
        may_write.set()


may_commit = threading.Event()


class Committing:
    """Is told of complete checkpoints, and waits for something that does not come."""

    def map(self, record: Any) -> str:
        return shown(record)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert may_commit.wait(20)


def test_a_commit_that_does_not_end_fails_the_job_and_says_who_waits(
    folder: Path, order: CheckpointOrder
) -> None:
    may_commit.clear()
    graph = count_job(folder, show=Committing())
    with scripted(metrics_ms=20) as driver:
        soon = replace(order, timeout_ms=2000)  # others commit nothing, in less than that
        tasks = begin(driver, graph, soon, folder)
        take(driver, "a", graph, 1, place_of(soon, 1))

        def failed() -> dict[str, Failure | None]:
            changes = driver.heard(TaskChanged)
            return {each.task: each.failure for each in changes if each.state is TaskState.FAILED}

        # On a busy machine others may take as long for nothing.
        eventually(lambda: {"2.0", "2.1"} <= failed().keys(), "tasks that commit are given up")
        for task in ("2.0", "2.1"):
            failure = failed()[task]
            assert failure is not None
            expected = f"task {task} has been committing checkpoint 1 for more than 2000 ms"
            assert expected in failure.message
        may_commit.set()
        driver.cancel("a", tasks)
