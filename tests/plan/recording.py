"""Checkpoints of planned programs: every operator has left something that tells whose it is."""

from headgate.base.checkpoints import (
    METADATA_VERSION,
    ChannelState,
    CheckpointKind,
    Metadata,
    OperatorState,
    Piece,
    SubtaskState,
)
from headgate.core.state.keys import groups_of
from headgate.plan.execution_graph import build_execution_graph, checkpointed_job
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import StreamGraph


def planned(graph: StreamGraph) -> JobGraph:
    return build_job_graph(graph)


def piece(text: str) -> Piece:
    """Bytes that say what they are."""
    return Piece("", 0, len(text), 0, text.encode())


def text_of(found: Piece) -> str:
    return found.inline.decode()


def recording(
    graph: JobGraph,
    *,
    finished: tuple[str, ...] = (),
    channels: dict[str, tuple[ChannelState, ...]] | None = None,
    states: dict[str, tuple[OperatorState, ...]] | None = None,
    blank: bool = False,
) -> Metadata:
    """``states`` replaces what is left of a task; ``blank``: others have left nothing."""
    job = checkpointed_job(graph, build_execution_graph(graph, "job 1", 0))
    tasks = []
    for member in job.members:
        task = member.blank
        if task.task not in finished:
            left = [_operator(task, place, blank) for place in range(len(task.operators))]
            own = (states or {}).get(task.task, tuple(left))
            task = SubtaskState(
                task.task,
                task.vertex,
                task.subtask,
                task.parallelism,
                task.max_parallelism,
                own,
                (channels or {}).get(task.task, ()),
            )
        tasks.append(task)
    return Metadata(
        METADATA_VERSION,
        7,
        CheckpointKind.CHECKPOINT,
        job.job,
        job.name,
        1,
        2,
        tuple(tasks),
        unaligned=bool(channels),
        edges=job.edges,
    )


def _operator(task: SubtaskState, place: int, blank: bool) -> OperatorState:
    spec = task.operators[place]
    if blank:
        return spec
    own = groups_of(task.subtask, task.parallelism, task.max_parallelism)
    return OperatorState(
        spec.uid,
        spec.name,
        keyed={group: piece(f"{spec.uid} group {group}") for group in own},
        plain=piece(f"{spec.uid} plain {task.subtask}"),
        sink=piece(f"{spec.uid} sink {task.subtask}"),
        files={"1.sst": piece(f"{spec.uid} file {task.subtask}")},
    )
