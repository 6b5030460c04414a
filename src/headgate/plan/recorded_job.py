"""A job as its checkpoint recorded it: the vertices that there were, and their operators by uid.

Law: every vertex has all its tasks, once; all of them have the same operators; a uid is in one
vertex. Metadata that contradicts this is refused as CheckpointUnsound.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.base.checkpoints import Metadata, OperatorState, StateShape, SubtaskState
from headgate.base.errors import CheckpointUnsound


@dataclass(frozen=True, slots=True)
class RecordedVertex:
    """A chain of operators of the old program; tasks by subtask."""

    tasks: tuple[SubtaskState, ...]

    @property
    def id(self) -> int:
        return self.tasks[0].vertex

    @property
    def parallelism(self) -> int:
        return len(self.tasks)

    @property
    def max_parallelism(self) -> int:
        return self.tasks[0].max_parallelism

    @property
    def uids(self) -> tuple[str, ...]:
        return _uids(self.tasks[0])

    @property
    def names(self) -> str:
        return " -> ".join(operator.name for operator in self.tasks[0].operators)

    @property
    def has_finished(self) -> bool:
        """All of it."""
        return all(task.finished for task in self.tasks)


@dataclass(frozen=True, slots=True)
class RecordedOperator:
    """One operator of the old program; states by subtask."""

    uid: str
    name: str
    vertex: RecordedVertex
    states: tuple[OperatorState, ...]

    @property
    def is_keyed(self) -> bool:
        return any(state.keyed or state.files for state in self.states)

    @property
    def shapes(self) -> tuple[StateShape, ...]:
        """Kinds and types of its states, each once."""
        return tuple(dict.fromkeys(shape for state in self.states for shape in state.shapes))

    @property
    def has_state(self) -> bool:
        return self.is_keyed or any(
            state.plain or state.source or state.sink for state in self.states
        )


class RecordedJob:
    """The job that a checkpoint is of; raises CheckpointUnsound."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.vertices = {vertex.id: vertex for vertex in _vertices(metadata)}
        self.operators: dict[str, RecordedOperator] = {}
        for vertex in self.vertices.values():
            for place, uid in enumerate(vertex.uids):
                if uid in self.operators:
                    raise CheckpointUnsound(metadata.checkpoint, f"it has the uid {uid!r} twice")
                states = tuple(task.operators[place] for task in vertex.tasks)
                self.operators[uid] = RecordedOperator(uid, states[0].name, vertex, states)


def _vertices(metadata: Metadata) -> Iterator[RecordedVertex]:
    tasks: dict[int, dict[int, SubtaskState]] = {}
    for task in metadata.tasks:
        subtasks = tasks.setdefault(task.vertex, {})
        if task.subtask in subtasks:
            raise CheckpointUnsound(metadata.checkpoint, f"it has task {task.task} twice")
        subtasks[task.subtask] = task
    for vertex, subtasks in sorted(tasks.items()):
        of = [task for _, task in sorted(subtasks.items())]
        shapes = {(task.parallelism, task.max_parallelism, _uids(task)) for task in of}
        if len(shapes) > 1 or [*sorted(subtasks)] != [*range(of[0].parallelism)]:
            raise CheckpointUnsound(
                metadata.checkpoint, f"the tasks of its vertex {vertex} contradict each other"
            )
        yield RecordedVertex(tuple(of))


def _uids(task: SubtaskState) -> tuple[str, ...]:
    return tuple(operator.uid for operator in task.operators)
