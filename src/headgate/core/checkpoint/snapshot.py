"""What a task hands to the storage, and how it learns that it was written.

The driver of the task brings ``StartWriting``: it writes in the background and tells the
coordinator (acknowledged or declined). Law: ``done`` is called once for each snapshot, however its
writing ended; its operators' snapshots are closed on the task's thread, then or when the task ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from headgate.base.checkpoints import ChannelState, OperatorState, Piece, SubtaskState
from headgate.base.errors import HeadgateError, StateUnwritable
from headgate.base.events import CheckpointBarrier
from headgate.base.messages import CheckpointOrder
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.state.backend import SnapshotFiles


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """Snapshot of one operator of the chain."""

    uid: str
    name: str
    taken: OperatorSnapshot


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """The operators of a task at one moment, in the order of its chain."""

    barrier: CheckpointBarrier
    """The barrier with which it was taken: ``unaligned`` says whether it has overtaken."""
    operators: tuple[NamedSnapshot, ...]
    sync_ms: float
    """How long the task stood still for it."""
    finished: bool = False
    """Its operators had finished: they are not to be run again, only to commit what they hold."""


@dataclass(frozen=True, slots=True)
class ChannelData:
    """What was in flight in one channel of a gate (input) or subpartition (output)."""

    is_input: bool
    index: int
    """Number of the gate or the partition, among those of the task."""
    channel: int
    """Number of the channel or the subpartition."""
    parts: Sequence[bytes]


class SnapshotWriting(Protocol):
    """One snapshot on its way to the storage. Called on the task's thread, inside the baton."""

    state_bytes: int | None
    """State of the operators, when it is written; None: it is not."""

    def complete(self, in_flight: Sequence[ChannelData], align_ms: float) -> None:
        """All data in flight are known: write them after the operators, and end."""

    def abort(self) -> None:
        """Given up: nothing of it stays. Idempotent; ``done`` still comes."""


StartWriting: TypeAlias = Callable[[TaskSnapshot, Callable[[], None]], SnapshotWriting]
"""Begins to write; the second argument is ``done``, to be called inside the baton."""


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """The task whose snapshot it is."""

    task: str
    vertex: int
    subtask: int
    parallelism: int
    max_parallelism: int
    name: str = field(default="", compare=False)
    """Name of its vertex, for log lines."""

    def state(
        self,
        operators: tuple[OperatorState, ...],
        channels: tuple[ChannelState, ...],
        finished: bool,
    ) -> SubtaskState:
        """What the task has left in a checkpoint."""
        return SubtaskState(
            self.task,
            self.vertex,
            self.subtask,
            self.parallelism,
            self.max_parallelism,
            operators,
            channels,
            finished,
        )


class CheckpointWriting(Protocol):
    """Where the tasks of a run write their checkpoints."""

    @property
    def order(self) -> CheckpointOrder: ...

    def start(
        self, task: SnapshotTask, snapshot: TaskSnapshot, done: Callable[[], None]
    ) -> SnapshotWriting:
        """Begin to write a snapshot; see ``StartWriting``."""


def write_operator(
    snapshot: NamedSnapshot, store: SnapshotFiles, check_wanted: Callable[[], None]
) -> OperatorState:
    """Write the state of an operator; ``check_wanted`` raises if the checkpoint was aborted.

    This is the long part. Raises StateUnwritable if the state cannot be serialized.
    """
    taken = snapshot.taken
    keyed: dict[int, Piece] = {}
    files: dict[str, Piece] = {}
    if taken.keyed is not None:
        try:
            for group, data in taken.keyed.groups():
                check_wanted()
                keyed[group] = store.append(data)
            files = taken.keyed.files(store)
        except HeadgateError:
            raise
        except BaseException as error:  # also a user's exit() while its state is pickled
            problem = f"{type(error).__name__}: {error}"
            raise StateUnwritable(snapshot.name, problem) from error
    plain, source, sink = (
        None if data is None else store.append(data)
        for data in (taken.plain, taken.source, taken.sink)
    )
    return OperatorState(
        uid=snapshot.uid,
        name=snapshot.name,
        keyed=keyed,
        plain=plain,
        source=source,
        sink=sink,
        files=files,
        plain_is_own=taken.plain_is_own,
        shapes=taken.shapes,
    )


def write_channels(
    in_flight: Sequence[ChannelData], store: SnapshotFiles
) -> tuple[ChannelState, ...]:
    """Write the records in flight."""
    return tuple(
        ChannelState(data.is_input, data.index, data.channel, (store.append(*data.parts),))
        for data in in_flight
        if data.parts
    )


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a task takes checkpoints."""

    policy: BarrierPolicy
    start_writing: StartWriting
    enabled: bool = True
    """Whether the clock takes them, too; savepoints can always be taken."""
    incremental: bool = False
    """Checkpoints may name files of earlier ones; savepoints never do."""
