"""The inputs of a task as checkpoints see them: channels numbered through, blocked, recorded.

Law: channels count through over the inputs of the task, in each as its gate counts; what is
recorded names the gate of the task and the channel within it, so that unions do not matter. A
channel reports arriving buffers only while a checkpoint records it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from headgate.base.elements import Bundle, ByteLike, Serializer
from headgate.base.events import CancelMarker, CheckpointBarrier, EndOfPartition, decode_event
from headgate.base.settings import MIB
from headgate.core.buffers.buffer import Buffer, buffer_bytes
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.checkpoint.snapshot import ChannelData
from headgate.core.ingress.gate import Gate, InputGate, UnionGate

LIMIT_BYTES: Final = 256 * MIB


@dataclass(slots=True)
class _Record:
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    open: dict[int, None] = field(default_factory=dict)
    size: int = 0


class InFlightRecorder:
    """The data in flight in the input channels of one task, for unaligned checkpoints.

    Law: of a channel a checkpoint gets what was there when its snapshot was taken, and what arrives
    from then on, up to the barrier or the end of the channel, in order and once. The channels
    report every buffer when it arrives, before anybody can read it. Memory is bounded: a checkpoint
    that would hold more than the limit is dropped.
    """

    def __init__(
        self,
        serializers: Sequence[Serializer],
        expand: Callable[[ByteLike], ByteLike],
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """``expand`` undoes the compression of a payload."""
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


class CheckpointInput(Protocol):
    """What checkpoints need of an input of a task."""

    gate: InputGate
    on_barrier: Callable[[int, CheckpointBarrier | CancelMarker], None]
    on_channel_ended: Callable[[int], None]

    def unread(self, channel: int) -> bytes: ...

    def serializer_of(self, channel: int) -> Serializer: ...

    def restore(self, channel: int, parts: Iterable[bytes]) -> None: ...

    def restore_reassigned(self, channel: int, bundles: Iterable[Bundle]) -> None: ...


class BarrierListener(Protocol):
    """What the inputs report; the last two from other threads, inside the baton."""

    def barrier_read(self, channel: int, event: CheckpointBarrier | CancelMarker) -> None:
        """A channel was read up to a barrier or a cancel marker."""

    def channel_ended(self, channel: int) -> None:
        """A channel was read to its end."""

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """A barrier has arrived and was not read."""

    def too_much_in_flight(self, checkpoint: int) -> None:
        """A checkpoint would record more than the limit, and was dropped."""


@dataclass(frozen=True, slots=True)
class NumberedChannel:
    """One channel: where it is read, and where the plan of the task has it."""

    source: CheckpointInput
    index: int
    """Number of the channel in the gate of its input."""
    gate: int
    """Among the gates of the task."""
    channel: int
    """Within that gate."""


class CheckpointedInputs:
    """Called on the task's thread, inside the baton."""

    def __init__(
        self,
        inputs: Sequence[CheckpointInput],
        gates: Sequence[Gate],
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """``gates``: all of the task, in its own order."""
        self.listener: BarrierListener
        """The checkpoints of the task."""
        self._inputs = inputs
        self._channels = number_channels(inputs, gates)
        counts = [source.gate.channel_count for source in inputs]
        self._offsets = [sum(counts[:at]) for at in range(len(counts))]
        serializers = [place.source.serializer_of(place.index) for place in self._channels]
        self._recorded = InFlightRecorder(serializers, self._expand, limit_bytes)
        self._lost: dict[int, bool] = {}
        self._listening = [False] * len(inputs)
        for offset, source in zip(self._offsets, inputs, strict=True):
            self._attach(offset, source)

    @property
    def count(self) -> int:
        """How many channels there are."""
        return len(self._channels)

    def block(self, channel: int) -> None:
        place = self._channels[channel]
        place.source.gate.block(place.index)

    def unblock(self, channels: Sequence[int]) -> None:
        for channel in channels:
            place = self._channels[channel]
            place.source.gate.unblock(place.index)

    def cut(self, checkpoint: int, but: Sequence[int]) -> bool:
        """An unaligned snapshot was taken: keep what was read of elements that are not whole.

        A barrier that has overtaken may stand in the middle of an element. ``but``: these channels
        are recorded from here on. False: it was too much, and all is dropped.
        """
        kept = True
        left_out = dict.fromkeys(but)
        for channel, place in enumerate(self._channels):
            unread = b"" if channel in left_out else place.source.unread(place.index)
            if unread and kept:
                kept = self._recorded.started(checkpoint, channel, unread, ())
                self._recorded.channel_done(checkpoint, channel)
        return kept

    def record(self, checkpoint: int, channels: Sequence[int]) -> bool:
        """What these hold and get belongs to a checkpoint; False: too much, all is dropped."""
        kept = True
        for channel in channels:
            if kept:
                place = self._channels[channel]
                source, index = place.source, place.index
                unread, queued = source.unread(index), source.gate.queued(index)
                kept = self._recorded.started(checkpoint, channel, unread, queued)
        self._listen()
        return kept

    def channel_done(self, checkpoint: int, channel: int) -> None:
        """Nothing more of a channel belongs to it. Idempotent."""
        self._recorded.channel_done(checkpoint, channel)
        self._listen()

    def completed(self, checkpoint: int) -> list[ChannelData] | None:
        """All that was recorded for a checkpoint; None: it was too much, and is lost."""
        if self._lost.pop(checkpoint, False):
            return None
        found = self._recorded.completed(checkpoint)
        return [
            ChannelData(True, self._channels[channel].gate, self._channels[channel].channel, parts)
            for channel, parts in found.items()
        ]

    def dropped(self, checkpoint: int) -> None:
        """It was aborted. Idempotent."""
        self._lost.pop(checkpoint, None)
        self._recorded.dropped(checkpoint)
        self._listen()

    def close(self) -> None:
        """The task has ended: its gates report to nobody."""
        for source in self._inputs:
            source.gate.on_arrived = None
            source.gate.on_announced = _nobody

    def check(self) -> None:
        """Assert the law's part that can be seen from here."""
        self._recorded.check()

    def _attach(self, offset: int, source: CheckpointInput) -> None:
        source.on_barrier = lambda index, event: self.listener.barrier_read(offset + index, event)
        source.on_channel_ended = lambda index: self.listener.channel_ended(offset + index)
        source.gate.on_announced = lambda index, barrier: self.listener.barrier_announced(
            offset + index, barrier
        )

    def _listen(self) -> None:
        """Let the gates with recorded channels report arrivals, and no others."""
        recording = self._recorded.recording
        for number, (offset, source) in enumerate(zip(self._offsets, self._inputs, strict=True)):
            wanted = any(recording[offset : offset + source.gate.channel_count])
            if wanted != self._listening[number]:
                self._listening[number] = wanted
                source.gate.on_arrived = self._recorder(offset) if wanted else None

    def _recorder(self, offset: int) -> Callable[[int, Buffer], None]:
        def arrived(index: int, buffer: Buffer) -> None:
            for checkpoint in self._recorded.arrived(offset + index, buffer):
                self._lost[checkpoint] = True
                self.listener.too_much_in_flight(checkpoint)

        return arrived

    def _expand(self, data: ByteLike) -> ByteLike:
        return self._inputs[0].gate.expand(data)  # all gates of a process compress alike


def number_channels(
    inputs: Sequence[CheckpointInput], gates: Sequence[Gate]
) -> list[NumberedChannel]:
    """All channels of a task, counted through."""
    found: list[NumberedChannel] = []
    for source in inputs:
        index = 0
        for gate in single_gates(source.gate):
            number = next(at for at, known in enumerate(gates) if known is gate)
            for channel in range(gate.channel_count):
                found.append(NumberedChannel(source, index, number, channel))
                index += 1
    return found


def single_gates(gate: InputGate) -> Sequence[Gate]:
    """The gates that a union is made of, or the gate itself."""
    return gate.gates if isinstance(gate, UnionGate) else [gate]


def give_back(
    restored: TaskRestored, inputs: Sequence[CheckpointInput], gates: Sequence[Gate]
) -> None:
    """Let the channels of a task begin with what was in flight in them."""
    found = {(place.gate, place.channel): place for place in number_channels(inputs, gates)}
    for gate, channel, parts in restored.inputs:
        place = found[gate, channel]
        place.source.restore(place.index, parts)
    for gate, bundles in restored.reassigned:
        place = found[gate, 0]
        place.source.restore_reassigned(place.index, bundles)


def _nobody(channel: int, barrier: CheckpointBarrier) -> None:
    """The listener of gates whose task has ended."""
