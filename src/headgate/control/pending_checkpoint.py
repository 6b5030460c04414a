"""A checkpoint in progress, and the tasks whose answers it waits for.

Law: a task answers a checkpoint once, with its state or by having finished before; the checkpoint
is whole when all have. No finished task has a producer that still runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.base.checkpoints import (
    METADATA_VERSION,
    CheckpointFigures,
    CheckpointKind,
    CheckpointOptions,
    EdgeShape,
    Metadata,
    SourceState,
    SubtaskState,
)
from headgate.base.job_records import CheckpointPart


@dataclass(frozen=True, slots=True)
class CheckpointedTask:
    """A task, as checkpoints see it."""

    blank: SubtaskState
    """What is written of it when it has finished: its operators, without state."""
    slot: int
    producers: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return self.blank.task


@dataclass(frozen=True, slots=True)
class CheckpointedJob:
    """The job as its metadata tell it."""

    job: str
    name: str
    members: tuple[CheckpointedTask, ...]
    edges: tuple[EdgeShape, ...] = ()


class CheckpointedTasks:
    """All tasks of a run: which have finished, and at which a checkpoint is triggered."""

    def __init__(self, members: Sequence[CheckpointedTask]) -> None:
        self.members = {member.task: member for member in members}
        self.finished: dict[str, None] = {}
        self._waits_for = {member.task: len(member.producers) for member in members}
        self._consumers: dict[str, list[str]] = {task: [] for task in self.members}
        for member in members:
            for producer in member.producers:
                self._consumers[producer].append(member.task)

    @property
    def all_finished(self) -> bool:
        return len(self.finished) == len(self.members)

    def task_finished(self, task: str) -> bool:
        """Says whether that is news."""
        if task not in self.members or task in self.finished:
            return False
        self.finished[task] = None
        for consumer in self._consumers[task]:
            self._waits_for[consumer] -= 1
        return True

    def heads(self) -> list[CheckpointedTask]:
        """Running tasks without a running producer: sources, and what follows finished tasks."""
        return [
            member
            for task, member in self.members.items()
            if not self._waits_for[task] and task not in self.finished
        ]


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint until it is stored or aborted."""

    checkpoint: int
    options: CheckpointOptions
    began_ms: float
    tasks: CheckpointedTasks
    sources: tuple[SourceState, ...] = ()
    """What the driver held of sources when the checkpoint was triggered."""
    states: dict[str, SubtaskState] = field(default_factory=dict)
    parts: dict[str, CheckpointPart] = field(default_factory=dict)
    """Figures of the tasks that have answered, in this order."""
    triggered: dict[str, None] = field(default_factory=dict)
    metadata: Metadata | None = None
    """It is whole, and being stored."""
    subsumed: bool = False
    """A newer one was stored first."""

    def __post_init__(self) -> None:
        for task in self.tasks.finished:
            self.finished(task)

    @property
    def is_savepoint(self) -> bool:
        return self.options.kind is CheckpointKind.SAVEPOINT

    @property
    def is_storing(self) -> bool:
        return self.metadata is not None

    @property
    def is_fully_acknowledged(self) -> bool:
        return len(self.states) == len(self.tasks.members)

    @property
    def missing(self) -> list[str]:
        """Tasks that have not answered."""
        return [task for task in self.tasks.members if task not in self.states]

    @property
    def asked(self) -> int:
        """How many tasks have to answer, or have; the others had finished before."""
        unasked = sum(task not in self.parts for task in self.tasks.finished)
        return len(self.tasks.members) - unasked

    def untriggered_heads(self) -> list[CheckpointedTask]:
        """Tasks at which it has yet to be triggered; from now on they count as triggered."""
        untriggered = [
            member
            for member in self.tasks.heads()
            if member.task not in self.triggered and member.task not in self.states
        ]
        self.triggered.update((member.task, None) for member in untriggered)
        return untriggered

    def acked(self, state: SubtaskState, figures: CheckpointFigures, now_ms: float) -> None:
        """A task has left its state; only its first answer counts."""
        if state.task not in self.states:
            self.states[state.task] = state
            self.parts[state.task] = CheckpointPart(
                task=state.task,
                vertex=state.vertex,
                subtask=state.subtask,
                took_ms=now_ms - self.began_ms,
                align_ms=figures.align_ms,
                sync_ms=figures.sync_ms,
                async_ms=figures.async_ms,
                state_bytes=figures.state_bytes,
                in_flight_bytes=figures.in_flight_bytes,
                unaligned=figures.unaligned,
            )

    def finished(self, task: str) -> None:
        """A task has finished, before this checkpoint if it has not answered yet."""
        self.states.setdefault(task, self.tasks.members[task].blank)

    def contradiction(self) -> str:
        """What breaks the law; nothing if it is kept."""
        for task, state in self.states.items():
            if state.finished:
                for producer in self.tasks.members[task].producers:
                    if not self.states[producer].finished:
                        return f"task {task} had finished before it and its producer {producer} not"
        return ""

    def complete(self, job: CheckpointedJob, completed_ms: int) -> Metadata:
        """It is whole: what is to be stored."""
        assert self.is_fully_acknowledged, f"checkpoint {self.checkpoint} waits for {self.missing}"
        self.metadata = Metadata(
            version=METADATA_VERSION,
            checkpoint=self.checkpoint,
            kind=self.options.kind,
            job=job.job,
            name=job.name,
            triggered_ms=self.options.triggered_ms,
            completed_ms=completed_ms,
            tasks=tuple(self.states[task] for task in self.tasks.members),
            unaligned=any(part.unaligned for part in self.parts.values()),
            edges=job.edges,
            sources=self.sources,
        )
        return self.metadata
