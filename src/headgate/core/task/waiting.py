"""What waits in front of a task, copied gate by gate for whoever wants to see it.

Law: the copy is bounded in bytes and in channels, is made inside the baton, runs no code of the
user and changes nothing. To decode it, outside of the baton, ``things`` is all that is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.elements import Key, Record, Serializer
from headgate.core.chain.operator import Operator
from headgate.core.checkpoint.inputs import single_gates
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.waiting import (
    Expand,
    Place,
    WaitingCopier,
    WaitingPiece,
    WaitingThing,
    decode_waiting,
)
from headgate.core.task.inputs import NetworkInput

MOST_CHANNELS: Final = 1_000
"""Of a gate with more channels those with the longest queues are looked at."""

SMALLEST_SHARE_BYTES: Final = 256 * 1024
"""A channel's share is never less: a bundle may be as long as several buffers."""


@dataclass(frozen=True, slots=True)
class CopiedChannel:
    """What waits in one channel."""

    index: int
    pieces: Sequence[WaitingPiece]
    complete: bool
    """All that waits in this process was copied."""
    serializer: Serializer


@dataclass(frozen=True, slots=True)
class CopiedGate:
    """What waits in the channels of one gate, the longest queues first."""

    gate: int
    channels: int
    """Of the gate, looked at or not."""
    buffers: int
    """Data buffers that wait, also with producers in other processes."""
    copied: Sequence[CopiedChannel]
    complete: bool
    key_of: Callable[[Record], Key] | None
    """None: records of this gate have no keys."""
    expand: Expand

    def things(self, channel: CopiedChannel) -> Iterator[tuple[Place, WaitingThing]]:
        """Elements and events, in order; called outside of the baton."""
        return decode_waiting(channel.pieces, channel.serializer, self.expand, channel.complete)


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much of a gate is copied."""

    total_bytes: int
    shared: bool = False
    """Every channel with data gets a share; else the longest queue gets all that it needs."""


class WaitingInputs:
    """The gates of a task, as one that looks at them counts; used inside the baton."""

    def __init__(
        self, head: Operator, inputs: Sequence[NetworkInput], gates: Sequence[Gate]
    ) -> None:
        self._head = head
        self._gates = gates
        self._places: dict[int, tuple[NetworkInput, int]] = {}
        for source in inputs:
            offset = 0
            for single in single_gates(source.gate):
                at = next(number for number, gate in enumerate(gates) if gate is single)
                self._places[at] = source, offset
                offset += single.channel_count

    def keyed_gates(self) -> list[int]:
        """Those whose records have keys."""
        return [
            gate
            for gate, (source, _) in sorted(self._places.items())
            if self._head.key_selector(source.number) is not None
        ]

    def copy(self, gate: int, channel: int | None, limits: CopyLimits) -> CopiedGate:
        """Of one channel, or of all."""
        source, offset = self._places[gate]
        channels = self._gates[gate].channels
        queues = {index: channels[index].waiting() for index in _chosen(channels, channel)}
        longest = sorted(queues, key=lambda index: -queues[index])
        share = left = limits.total_bytes
        if limits.shared:
            filled = sum(1 for waiting in queues.values() if waiting)
            share = max(SMALLEST_SHARE_BYTES, left // max(1, filled))
        copied: list[CopiedChannel] = []
        for index in longest[:MOST_CHANNELS]:
            copier = WaitingCopier(min(share, left))
            source.copy_waiting(offset + index, copier)
            left -= copier.copied_bytes
            if copier.pieces or not copier.complete:
                serializer = source.serializer_of(offset + index)
                copied.append(CopiedChannel(index, copier.pieces, copier.complete, serializer))
        return CopiedGate(
            gate,
            len(channels),
            sum(queues.values()),
            copied,
            len(longest) <= MOST_CHANNELS and all(each.complete for each in copied),
            self._head.key_selector(source.number),
            source.gate.expand,
        )


def _chosen(channels: Sequence[object], channel: int | None) -> range:
    return range(len(channels)) if channel is None else range(channel, channel + 1)
