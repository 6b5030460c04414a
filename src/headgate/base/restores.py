"""What a task gets back of a checkpoint, as the driver tells it when it deploys the task.

Law: a key group goes to one task, and so does what a sink has prepared. What only the operator can
share out, its lists and the positions of a source, goes to all tasks of the operator, with the
subtask it came from.
"""

import msgspec

from headgate.base.checkpoints import ChannelState, Piece
from headgate.base.state_shapes import StateShape


class DatabaseRestore(msgspec.Struct, frozen=True, array_like=True):
    """Files of a database that held the key groups from ``first`` to before ``end``."""

    first: int
    end: int
    files: dict[str, Piece]
    """By their local names."""


class OperatorRestore(msgspec.Struct, frozen=True):
    """What one operator of a task gets."""

    uid: str
    keyed: dict[int, Piece] = msgspec.field(default_factory=dict)
    """The key groups that the task owns."""
    databases: tuple[DatabaseRestore, ...] = ()
    """All that hold one of these groups; they may hold groups of other tasks too."""
    plain: tuple[Piece | None, ...] = ()
    """Of each old task, by its subtask; None: it left nothing."""
    source: tuple[Piece | None, ...] = ()
    """The same."""
    sinks: tuple[Piece, ...] = ()
    """What this task is to commit."""
    shapes: tuple[StateShape, ...] = ()
    """Kinds and types of the states of all old tasks."""


class ReassignedStream(msgspec.Struct, frozen=True):
    """What was on its way in a channel that there is not any more; read before all other input.

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
    """What one task gets; operators in the order of its chain."""

    task: str
    checkpoint: int
    operators: tuple[OperatorRestore, ...] = ()
    channels: tuple[ChannelState, ...] = ()
    """Of its own channels and subpartitions, which are as they were."""
    strays: tuple[ReassignedStream, ...] = ()
    finished: bool = False
    """It had finished: nothing is run, its outputs end at once."""
