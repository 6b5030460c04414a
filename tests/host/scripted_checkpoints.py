"""A scripted driver takes checkpoints of real task managers, and lets them go on from one."""

from pathlib import Path

from msgspec.structs import replace

from headgate.base.checkpoints import METADATA_VERSION, CheckpointKind, Metadata
from headgate.base.messages import (
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointOrder,
    TaskState,
)
from headgate.host.checkpoints.checkpoint_store import complete, open_store
from headgate.host.checkpoints.location import CheckpointLocation
from headgate.plan.execution_graph import build_execution_graph, checkpointed_job
from headgate.plan.job_graph import JobGraph
from headgate.plan.state_assignment import restore
from tests.host.counting import (
    HALF,
    counts_of,
    flood,
    slow,
)
from tests.host.rig import eventually
from tests.host.scripted import Scripted


def place_of(order: CheckpointOrder, checkpoint: int) -> CheckpointLocation:
    return open_store(order.folder).location(order.job, checkpoint)


def acks_of(driver: Scripted, run: str, checkpoint: int) -> list[CheckpointAcked]:
    acks = driver.heard(CheckpointAcked)
    return [ack for ack in acks if (ack.run, ack.checkpoint) == (run, checkpoint)]


def take(
    driver: Scripted,
    run: str,
    graph: JobGraph,
    checkpoint: int,
    location: CheckpointLocation,
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
) -> Metadata:
    """Let all tasks take it, and complete it, as a driver would."""
    execution = build_execution_graph(graph, run, 0)
    directory = location.own.uri if kind is CheckpointKind.SAVEPOINT else ""
    driver.trigger(run, graph, checkpoint, kind=kind, directory=directory)
    eventually(
        lambda: len(acks_of(driver, run, checkpoint)) == len(execution.tasks),
        f"all answers, not {driver.heard(CheckpointDeclined)}",
    )
    states = {ack.state.task: ack.state for ack in acks_of(driver, run, checkpoint)}
    known = checkpointed_job(graph, execution)
    unaligned = any(ack.figures.unaligned for ack in acks_of(driver, run, checkpoint))
    made = tuple(states[task.id] for task in execution.tasks)
    metadata = Metadata(
        METADATA_VERSION, checkpoint, kind, "job", "counts", 1, 2, made, unaligned, known.edges
    )
    complete(location, metadata)
    if kind is CheckpointKind.CHECKPOINT:
        driver.send(CheckpointCompleted(run, checkpoint))
    return metadata


def begin(driver: Scripted, graph: JobGraph, order: CheckpointOrder, folder: Path) -> list[str]:
    """The first run, until it has read half of its input."""
    tasks = driver.deploy("a", graph, checkpoints=order)
    driver.await_all("a", tasks, TaskState.RUNNING)
    if not slow.is_set():
        eventually(lambda: counts_of(folder) == HALF, "half of the input")
    return tasks


def go_on(
    driver: Scripted, run: str, graph: JobGraph, order: CheckpointOrder, metadata: Metadata, at: str
) -> None:
    """Restored, and to the end."""
    slow.clear()
    flood.set()
    tasks = driver.deploy(
        run,
        graph,
        checkpoints=replace(order, restored_from=at),
        restores=restore(metadata, graph),
    )
    driver.await_all(run, tasks, TaskState.FINISHED)
