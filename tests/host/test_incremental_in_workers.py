"""Incremental checkpoints of real tasks in real task managers, with everything in between."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.base.checkpoints import CheckpointKind, Metadata, Piece
from headgate.base.messages import CheckpointOrder, TaskState
from headgate.base.settings import StateBackendKind, StateSettings
from headgate.host.checkpoints.checkpoint_store import open_store
from headgate.host.checkpoints.location import new_savepoint
from headgate.host.checkpoints.metadata import unsigned_files
from headgate.plan.job_graph import JobGraph
from headgate.plan.state_assignment import restore
from tests.host.counting import COUNT, EXPECTED, count_job, counts_of, flood, may_write, slow
from tests.host.jobs import written
from tests.host.scripted import Scripted, scripted
from tests.host.scripted_checkpoints import acks_of, begin, go_on, place_of, take

ROCKSDB = StateSettings(backend=StateBackendKind.ROCKSDB)


@pytest.fixture(autouse=True)
def fresh_events() -> None:
    flood.clear()
    slow.clear()
    may_write.set()


@pytest.fixture
def order(tmp_path: Path) -> CheckpointOrder:
    """As of a driver that signs what is written."""
    return CheckpointOrder(
        str(tmp_path / "chk"), "job", inline_bytes=10, incremental=True, digests=True
    )


def files_of(metadata: Metadata) -> list[dict[str, Piece]]:
    """Of the databases of all tasks."""
    operators = [operator for task in metadata.tasks for operator in task.operators]
    return [operator.files for operator in operators if operator.files]


def data_of(metadata: Metadata) -> set[Piece]:
    return {piece for files in files_of(metadata) for piece in files.values() if is_shared(piece)}


def is_shared(piece: Piece) -> bool:
    return piece.path.startswith("shared/")


def take_until_nothing_is_new(
    driver: Scripted, run: str, graph: JobGraph, order: CheckpointOrder, last: Metadata
) -> Metadata:
    """A barrier may be faster than the word that the checkpoint before is complete; not always."""
    for _ in range(20):
        number = last.checkpoint + 1
        taken = take(driver, run, graph, number, place_of(order, number))
        assert data_of(taken)
        if data_of(taken) == data_of(last):
            return taken
        last = taken
    raise AssertionError("every checkpoint writes all files anew")


def test_a_job_goes_on_from_files_of_several_checkpoints(
    folder: Path, order: CheckpointOrder
) -> None:
    graph = count_job(folder)
    with scripted(state=ROCKSDB) as driver:
        tasks = begin(driver, graph, order, folder)
        first = take(driver, "a", graph, 1, place_of(order, 1))
        second = take_until_nothing_is_new(driver, "a", graph, order, first)
        assert not unsigned_files(first) and not unsigned_files(second)
        number = second.checkpoint
        bytes_of = [
            sum(ack.figures.state_bytes for ack in acks_of(driver, "a", checkpoint))
            for checkpoint in (1, number)
        ]
        assert bytes_of[1] < bytes_of[0] - sum(piece.length for piece in data_of(first)) + 100
        for old in range(1, number):
            open_store(order.folder).drop(place_of(order, old))
        driver.cancel("a", tasks)
        tasks = driver.deploy(
            "b",
            graph,
            checkpoints=replace(order, restored_from=place_of(order, number).own.uri),
            restores=restore(second, graph),
        )
        driver.await_all("b", tasks, TaskState.RUNNING)
        third = take(driver, "b", graph, number + 1, place_of(order, number + 1))
        assert data_of(third) == data_of(second), "the next run goes on with them, too"
        open_store(order.folder).drop(place_of(order, number))
        driver.cancel("b", tasks)
        go_on(driver, "c", graph, order, third, place_of(order, number + 1).own.uri)
    assert counts_of(folder) == EXPECTED
    assert len(written(folder)) == COUNT, "nothing was read again"


@pytest.mark.parametrize(
    ("parallelism", "backend"),
    [(1, StateBackendKind.ROCKSDB), (3, StateBackendKind.ROCKSDB), (3, StateBackendKind.HASHMAP)],
)
def test_a_job_goes_on_with_another_parallelism_and_backend(
    folder: Path, order: CheckpointOrder, parallelism: int, backend: StateBackendKind
) -> None:
    graph = count_job(folder)
    with scripted(state=ROCKSDB) as driver:
        tasks = begin(driver, graph, order, folder)
        metadata = take(driver, "a", graph, 1, place_of(order, 1))
        driver.cancel("a", tasks)
    again: Any = count_job(folder, parallelism)
    with scripted(3, state=StateSettings(backend=backend)) as driver:
        go_on(driver, "b", again, order, metadata, place_of(order, 1).own.uri)
    assert counts_of(folder) == EXPECTED


def test_a_savepoint_names_no_file_of_others(
    folder: Path, order: CheckpointOrder, tmp_path: Path
) -> None:
    graph = count_job(folder)
    with scripted(state=ROCKSDB) as driver:
        tasks = begin(driver, graph, order, folder)
        take(driver, "a", graph, 1, place_of(order, 1))
        location = new_savepoint(str(tmp_path / "mine"), "job")
        savepoint = take(driver, "a", graph, 2, location, CheckpointKind.SAVEPOINT)
        assert files_of(savepoint) == []
        driver.cancel("a", tasks)
        open_store(order.folder).drop(place_of(order, 1))
        go_on(driver, "b", graph, order, savepoint, location.own.uri)
    assert counts_of(folder) == EXPECTED
