"""Settings, checkpoints and restores of a small program, for tests of what a job restores."""

from pathlib import Path

from headgate.base.checkpoints import CheckpointKind, Metadata, OperatorState, Piece, SubtaskState
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_setup import CheckpointSetup
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import JobGraph

EVERY = {"execution.checkpointing.interval": "1s"}


def settings_of(folder: Path, **more: str) -> dict[str, str]:
    return {**EVERY, "execution.checkpointing.dir": str(folder), **more}


def metadata(graph: JobGraph, checkpoint: int, job: str = "x", text: bytes = b"state") -> Metadata:
    """A checkpoint of this very program, with a little state."""
    tasks = []
    for task in build_execution_graph(graph, "r", 0).tasks:
        vertex = graph.vertices[task.vertex]
        piece = Piece("", 0, len(text), 0, text)
        operators = tuple(
            OperatorState(spec.uid, spec.name, plain=piece) for spec in vertex.chain.operators
        )
        tasks.append(
            SubtaskState(
                task.id,
                task.vertex,
                task.subtask,
                vertex.parallelism,
                vertex.max_parallelism,
                operators,
            )
        )
    kind = CheckpointKind.CHECKPOINT
    return Metadata(1, checkpoint, kind, job, "numbers", 0, 0, tuple(tasks))


def restored(setup: CheckpointSetup) -> tuple[int | None, str]:
    keeper = setup.open(is_local=True)
    try:
        plan = setup.plan(keeper, "run", b"", {})
        assert plan.checkpoints is not None
        return plan.restored, plan.checkpoints.restored_from
    finally:
        keeper.close(JobState.FAILED)
