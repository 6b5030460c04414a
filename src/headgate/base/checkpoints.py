"""Checkpoints as the driver, the task managers and the storage speak of them.

A checkpoint is a folder: files with state that tasks have written, and a metadata file that the
driver writes last. Law: what the metadata names is there, whole, and has the checksum it says; a
folder without metadata is no checkpoint. A ``StateShape`` holds names only, so that any later
version of a program can compare it with a state that it opens, also if classes are gone; the same
program gives the same shapes every time. A ``TaskRestore`` is what a task gets back when it is
deployed: a key group goes to one task, and so does what a sink has prepared. What only the operator
can redistribute, its lists and the positions of a source, goes to all its tasks, with the subtask
it came from.
"""

from enum import Enum
from typing import Final

import msgspec

KEYED: Final = "keyed"
"""The scope of state by key."""
WINDOWED: Final = "by window"
"""The scope of state by key and window."""
OPERATOR: Final = "operator"
"""The scope of what an operator keeps by itself: the type of its keys, the contents of windows."""
FUNCTION: Final = "function: "
"""With the name of a function: the scope of its lists and broadcast maps."""


class TypeShape(msgspec.Struct, frozen=True, array_like=True):
    """A declared type by the name of its factory, with the types that it is made of."""

    name: str
    parts: tuple["TypeShape", ...] = ()
    fields: tuple[str, ...] = ()
    """The names of a row's parts."""

    def __str__(self) -> str:
        if "." in self.name:  # the class of somebody else's type
            return self.name
        parts = ", ".join(map(str, self.parts))
        if self.fields:
            return f"Types.{self.name}({list(self.fields)!r}, [{parts}])"
        return (
            f"Types.{self.name}([{parts}])" if self.name == TUPLE else f"Types.{self.name}({parts})"
        )


TUPLE: Final = "TUPLE"
ROW: Final = "ROW_NAMED"
MAP: Final = "MAP"
PICKLED: Final = "PICKLED_BYTE_ARRAY"
PRIMITIVE_ARRAY: Final = "PRIMITIVE_ARRAY"
LISTS: Final = ("BASIC_ARRAY", "LIST", "OBJECT_ARRAY")
"""Names of types whose values are lists that may hold None."""


class StateShape(msgspec.Struct, frozen=True):
    """One state of an operator."""

    name: str
    kind: str
    """As a descriptor has it: ``value``, ``list``, ``map``, ``reducing`` …"""
    types: tuple[TypeShape | None, ...] = ()
    """One; for a map two, of its keys and its values. None: nothing was declared."""
    scope: str = KEYED

    def __str__(self) -> str:
        declared = [str(shape) for shape in self.types if shape is not None]
        return f"{self.kind} of {', '.join(declared)}" if declared else self.kind


METADATA_VERSION: Final = 1


class CheckpointKind(str, Enum):
    """Why it is taken."""

    CHECKPOINT = "checkpoint"
    """By the clock, to recover from failures; dropped when newer ones are complete."""
    SAVEPOINT = "savepoint"
    """By a person, to keep; always aligned and self-contained."""


class Stop(str, Enum):
    """What sources do after the barrier of a savepoint."""

    NO = "go on"
    SUSPEND = "end the job here, as if it had been cut"
    DRAIN = "end event time first, so that all windows and timers fire, then end the job"

    @property
    def ends(self) -> bool:
        """Whether the job ends with the savepoint."""
        return self is not Stop.NO


class CheckpointOptions(msgspec.Struct, frozen=True):
    """How a checkpoint is taken; sent to the tasks that begin it, and in barriers to the others."""

    triggered_ms: int
    """Milliseconds since 1970."""
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    stop: Stop = Stop.NO
    exactly_once: bool = True
    """False: channels are not blocked, so that some records may count twice after a failure."""
    overtake_after_ms: int | None = None
    """When barriers begin to overtake records; 0: at once; None: never."""
    directory: str = ""
    """The savepoint's own folder; empty: the job's folder for checkpoints."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A range of a file of the checkpoint, or a few bytes that travel along."""

    path: str
    """Relative to the job's checkpoint folder; empty: ``inline`` holds the bytes."""
    offset: int
    length: int
    crc: int
    """crc32 of the bytes."""
    inline: bytes = b""
    digest: bytes = b""
    """SHA-256 of the bytes in the file, if the job signs its checkpoints."""


class OperatorState(msgspec.Struct, frozen=True):
    """The state that one operator of one task has written."""

    uid: str
    name: str
    keyed: dict[int, Piece] = msgspec.field(default_factory=dict)
    """By key group."""
    plain: Piece | None = None
    """Lists and broadcast maps that belong to the task (OperatorStateStore)."""
    source: Piece | None = None
    """Splits of a source with their positions."""
    sink: Piece | None = None
    """What a sink has prepared and not committed."""
    files: dict[str, Piece] = msgspec.field(default_factory=dict)
    """Files of a database by their local names; several checkpoints may share one."""
    plain_is_own: bool = False
    """``plain`` has no union lists: with the same parallelism a task needs its own alone."""
    shapes: tuple[StateShape, ...] = ()
    """Kinds and types of its states, also of those that hold nothing."""


class ChannelState(msgspec.Struct, frozen=True, array_like=True):
    """Buffers in flight of one channel of a gate (input) or subpartition (output)."""

    is_input: bool
    index: int
    """Number of the gate or the partition."""
    channel: int
    """Number of the channel or the subpartition."""
    pieces: tuple[Piece, ...] = ()


class SubtaskState(msgspec.Struct, frozen=True):
    """The state that one task has written; operators in the order of its chain."""

    task: str
    vertex: int
    subtask: int
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorState, ...] = ()
    channels: tuple[ChannelState, ...] = ()
    finished: bool = False
    """It had finished before; nothing of it is to be run again."""


class CheckpointFigures(msgspec.Struct, frozen=True):
    """How long a task's part took, and how much it was."""

    align_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    state_bytes: int = 0
    in_flight_bytes: int = 0
    unaligned: bool = False


class EdgeShape(msgspec.Struct, frozen=True, array_like=True):
    """How two vertices were joined: which partition of the one is which gate of the other."""

    source: int
    output: int
    target: int
    gate: int
    ship: str
    pointwise: bool
    tag: str | None = None
    """The tag of a side output."""


class SplitData(msgspec.Struct, frozen=True, array_like=True):
    """A split of a source, pickled, and the mark that identifies it in all runs."""

    mark: bytes
    data: bytes


class SourceState(msgspec.Struct, frozen=True):
    """The driver's state of a source whose splits it hands out while the job runs."""

    uid: str
    name: str
    position: bytes = b""
    """The position of its enumerator, pickled; empty: it has not reported any."""
    splits: tuple[SplitData, ...] = ()
    """The splits that no task has yet."""


class Metadata(msgspec.Struct, frozen=True):
    """The metadata file: everything that is needed to go on from here."""

    version: int
    checkpoint: int
    kind: CheckpointKind
    job: str
    name: str
    """The job's name."""
    triggered_ms: int
    completed_ms: int
    tasks: tuple[SubtaskState, ...]
    unaligned: bool = False
    edges: tuple[EdgeShape, ...] = ()
    """The edges that the numbers of gates, partitions and channels refer to."""
    sources: tuple[SourceState, ...] = ()
    """The driver's state of sources; the splits that a task reads are in its own state."""

    @property
    def state_bytes(self) -> int:
        """The length of all pieces."""
        return sum(piece.length for task in self.tasks for piece in pieces_of(task))


def pieces_of(task: SubtaskState) -> list[Piece]:
    """All pieces of a task."""
    found: list[Piece] = []
    for operator in task.operators:
        found += operator.keyed.values()
        found += filter(None, (operator.plain, operator.source, operator.sink))
        found += operator.files.values()
    for channel in task.channels:
        found += channel.pieces
    return found


class DatabaseRestore(msgspec.Struct, frozen=True, array_like=True):
    """Files of a database that held the key groups from ``first`` to before ``end``."""

    first: int
    end: int
    files: dict[str, Piece]
    """By their local names."""


class OperatorRestore(msgspec.Struct, frozen=True):
    """The state that one operator of a task gets back."""

    uid: str
    keyed: dict[int, Piece] = msgspec.field(default_factory=dict)
    """The key groups that the task owns."""
    databases: tuple[DatabaseRestore, ...] = ()
    """All that hold one of these groups; they may hold groups of other tasks too."""
    plain: tuple[Piece | None, ...] = ()
    """One for each old task, by its subtask; None: it left nothing."""
    source: tuple[Piece | None, ...] = ()
    """One for each old task, as ``plain``."""
    sinks: tuple[Piece, ...] = ()
    """Committables that this task is to commit."""
    shapes: tuple[StateShape, ...] = ()
    """Kinds and types of the states of all old tasks."""


class ReassignedStream(msgspec.Struct, frozen=True):
    """Records that were in flight in a channel that has been removed; read before other input.

    The pieces are one stream of elements, of which only the records count.
    """

    gate: int
    """Whose input the records are."""
    source: int
    """The vertex that writes to the gate now."""
    output: int
    """To which of its partitions."""
    routed: bool
    """Several tasks get this: keep only records that the partition's router sends to this one."""
    pieces: tuple[Piece, ...]


class TaskRestore(msgspec.Struct, frozen=True):
    """The state that one task gets back; operators in the order of its chain."""

    task: str
    checkpoint: int
    operators: tuple[OperatorRestore, ...] = ()
    channels: tuple[ChannelState, ...] = ()
    """Buffers in flight of its own channels and subpartitions, which have not changed."""
    reassigned: tuple[ReassignedStream, ...] = msgspec.field(default=(), name="strays")
    finished: bool = False
    """It had finished: nothing is run, its outputs end at once."""
