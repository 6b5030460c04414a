"""What the barrier handler of a task tells it to do.

The handler (`alignment.py`) is told what comes out of the channels and answers with these effects.
The task carries them out in their order, on its own thread, between two steps. Channels are
numbered through over all inputs of the task.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headgate.base.events import CheckpointBarrier


class How(Enum):
    """How the barrier of a snapshot goes on to the consumers."""

    ALIGNED = "behind all that was sent before"
    UNALIGNED = "before what waits in the outputs; that belongs to the checkpoint"


@dataclass(frozen=True, slots=True)
class Block:
    """Read nothing more of the channel: what follows belongs after the snapshot."""

    channel: int


@dataclass(frozen=True, slots=True)
class UnblockChannels:
    """Read these channels again."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take the snapshot now, and send ``barrier`` on to all consumers."""

    barrier: CheckpointBarrier
    how: How


@dataclass(frozen=True, slots=True)
class Persist:
    """What these channels hold before their barrier, and get until it comes, is in flight.

    It comes behind the ``TakeSnapshot`` of its checkpoint, and belongs to it.
    """

    checkpoint: int
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChannelDone:
    """The barrier of a persisted channel is here, or its end: nothing more of it belongs."""

    checkpoint: int
    channel: int


@dataclass(frozen=True, slots=True)
class AlignmentComplete:
    """The inputs have given all that belongs to a checkpoint that was taken."""

    checkpoint: int
    align_ms: float
    """Since its first barrier was seen."""


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """It will not be complete here: drop what there is of it, and decline it."""

    checkpoint: int
    reason: str
    forward: bool
    """Whether consumers are to be told by a cancel marker: they got no barrier."""


Effect: TypeAlias = (
    Block
    | UnblockChannels
    | TakeSnapshot
    | Persist
    | ChannelDone
    | AlignmentComplete
    | DeclineCheckpoint
)
Effects: TypeAlias = list[Effect]
