"""The record of data in flight: input buffers that belong to unaligned checkpoints.

Law: of a channel a checkpoint gets what was there when its snapshot was taken, and what arrives
from then on, up to the barrier or the end of the channel, in order and once. The channels report
every buffer when it arrives, before anybody can read it. Memory is bounded: a checkpoint that
would hold more than the limit is dropped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.base.elements import ByteLike, Serializer
from headgate.base.events import CheckpointBarrier, EndOfPartition, decode_event
from headgate.base.settings import MIB
from headgate.core.buffers.buffer import Buffer, buffer_bytes

LIMIT_BYTES: Final = 256 * MIB


@dataclass(slots=True)
class _Record:
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    open: dict[int, None] = field(default_factory=dict)
    size: int = 0


class InFlightRecorder:
    """For all input channels of one task; ``expand`` undoes the compression of a payload."""

    def __init__(
        self,
        serializers: Sequence[Serializer],
        expand: Callable[[ByteLike], ByteLike],
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.recording = [0] * len(serializers)
        """For each channel, how many checkpoints record it; 0: nobody need be told of buffers."""
        self._serializers = serializers
        self._expand = expand
        self._limit_bytes = limit_bytes
        self._records: dict[int, _Record] = {}

    def started(
        self, checkpoint: int, channel: int, unread: ByteLike, queued: Iterable[Buffer]
    ) -> bool:
        """Begin with what a channel holds; False if that was too much, and all is dropped.

        ``unread`` is what was taken out of the channel and not processed; ``queued`` is what waits
        in it. If the barrier is among that, the channel is done at once.
        """
        record = self._records.setdefault(checkpoint, _Record())
        parts = record.parts[channel] = [bytes(unread)] if unread else []
        record.size += len(unread)
        ended = False
        for buffer in queued:
            if not buffer.is_event:
                data = self._bytes_of(channel, buffer)
                parts.append(data)
                record.size += len(data)
            elif _ends(buffer, checkpoint):
                ended = True
                break
        if not ended:
            record.open[channel] = None
            self.recording[channel] += 1
        return self._kept(checkpoint, record)

    def arrived(self, channel: int, buffer: Buffer) -> list[int]:
        """A buffer has come; returns the checkpoints that it makes too large, which are dropped."""
        if not self.recording[channel]:
            return []
        if buffer.is_event:
            for checkpoint, record in self._records.items():
                if channel in record.open and _ends(buffer, checkpoint):
                    self.channel_done(checkpoint, channel)
            return []
        data = self._bytes_of(channel, buffer)
        for record in self._records.values():
            if channel in record.open:
                record.parts[channel].append(data)
                record.size += len(data)
        records = list(self._records.items())
        return [checkpoint for checkpoint, record in records if not self._kept(checkpoint, record)]

    def channel_done(self, checkpoint: int, channel: int) -> None:
        """Nothing more of a channel belongs to a checkpoint. Idempotent."""
        record = self._records.get(checkpoint)
        if record is not None and channel in record.open:
            del record.open[channel]
            self.recording[channel] -= 1

    def completed(self, checkpoint: int) -> dict[int, list[bytes]]:
        """Hand over all that belongs to a checkpoint, by channel."""
        record = self._records.pop(checkpoint, None)
        if record is None:
            return {}
        assert not record.open, f"channels {list(record.open)} are not done"
        return {channel: parts for channel, parts in record.parts.items() if parts}

    def dropped(self, checkpoint: int) -> None:
        """It was aborted. Idempotent."""
        record = self._records.pop(checkpoint, None)
        if record is not None:
            for channel in record.open:
                self.recording[channel] -= 1

    def check(self) -> None:
        """Assert that the counts are those of the records."""
        for channel, count in enumerate(self.recording):
            assert count == sum(channel in record.open for record in self._records.values())
        for record in self._records.values():
            assert record.size == sum(
                len(part) for parts in record.parts.values() for part in parts
            )
            assert record.size <= self._limit_bytes

    def _bytes_of(self, channel: int, buffer: Buffer) -> bytes:
        if buffer.compressed:
            return bytes(self._expand(buffer.view))
        return buffer_bytes(buffer, self._serializers[channel])

    def _kept(self, checkpoint: int, record: _Record) -> bool:
        if record.size <= self._limit_bytes:
            return True
        self.dropped(checkpoint)
        return False


def _ends(buffer: Buffer, checkpoint: int) -> bool:
    """Whether nothing after this event belongs to a checkpoint."""
    match decode_event(buffer.view):
        case CheckpointBarrier(number):
            return number == checkpoint
        case EndOfPartition():
            return True
        case _:
            return False
