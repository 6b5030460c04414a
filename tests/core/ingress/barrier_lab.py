"""A task's inputs as the barrier handler sees them: queues of arrivals, read one at a time.

The lab delivers, reads and carries out effects like a task, with the real recorder of data in
flight, and asserts what is taken: in order, each once, and nothing of a blocked channel is read.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.base.elements import PickleSerializer
from headgate.base.events import (
    CancelMarker,
    CheckpointBarrier,
    EndOfPartition,
    decode_event,
    encode_event,
)
from headgate.core.buffers.buffer import Buffer
from headgate.core.checkpoint.alignment import (
    AlignmentComplete,
    BarrierHandler,
    BarrierPolicy,
    Block,
    ChannelDone,
    DeclineCheckpoint,
    Effects,
    Persist,
    TakeSnapshot,
    UnblockChannels,
)
from headgate.core.checkpoint.inputs import InFlightRecorder

Item: TypeAlias = bytes | CheckpointBarrier | CancelMarker | EndOfPartition


@dataclass
class Snapshot:
    """What was taken: whether its barrier overtakes, and what was read of each channel."""

    unaligned: bool
    read: list[list[bytes]]
    in_flight: dict[int, list[bytes]] = field(default_factory=dict)


class Inputs:
    """Channels with an endless queue each."""

    def __init__(self, channels: int, policy: BarrierPolicy) -> None:
        self.handler = BarrierHandler(channels, policy)
        self.recorder = InFlightRecorder([PickleSerializer()] * channels, lambda data: data)
        self.queues: list[deque[Buffer]] = [deque() for _ in range(channels)]
        self.read: list[list[bytes]] = [[] for _ in range(channels)]
        self.blocked: set[int] = set()
        self.mail: deque[tuple[int, CheckpointBarrier]] = deque()
        self.taken: dict[int, Snapshot] = {}
        self.completed: dict[int, Snapshot] = {}
        self.aborted: list[int] = []
        self.now_ms = 0.0

    def deliver(self, channel: int, item: Item) -> None:
        """Something arrives; of a barrier the task is told by mail."""
        if isinstance(item, bytes):
            buffer = Buffer(item)
        else:
            buffer = Buffer(encode_event(item), is_event=True)
        assert self.recorder.arrived(channel, buffer) == []
        self.queues[channel].append(buffer)
        if isinstance(item, CheckpointBarrier):
            self.mail.append((channel, item))

    def read_mail(self) -> None:
        channel, barrier = self.mail.popleft()
        self.carry_out(self.handler.barrier_announced(channel, barrier, self.now_ms))

    def readable(self) -> list[int]:
        return [
            channel
            for channel, queue in enumerate(self.queues)
            if queue and channel not in self.blocked
        ]

    def read_one(self, channel: int) -> None:
        """The task's step: one buffer or event of a channel that is not blocked."""
        assert channel not in self.blocked
        buffer = self.queues[channel].popleft()
        if not buffer.is_event:
            self.read[channel].append(bytes(buffer.view))
            self.on_data(bytes(buffer.view))
            return
        handler = self.handler
        match decode_event(buffer.view):
            case CheckpointBarrier() as barrier:
                self.carry_out(handler.barrier_received(channel, barrier, self.now_ms))
            case CancelMarker() as marker:
                self.carry_out(handler.marker_received(channel, marker))
            case EndOfPartition():
                self.carry_out(handler.channel_ended(channel, self.now_ms))

    def tick(self, pause_ms: float) -> None:
        self.now_ms += pause_ms
        deadline_ms = self.handler.next_deadline_ms
        effects = self.handler.tick(self.now_ms)
        assert bool(effects) == (deadline_ms is not None and deadline_ms <= self.now_ms)
        self.carry_out(effects)

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Block(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case UnblockChannels(channels):
                    assert self.blocked.issuperset(channels)
                    self.blocked.difference_update(channels)
                case TakeSnapshot(barrier):
                    self._take(barrier)
                case Persist(checkpoint, channels):
                    assert self.taken[checkpoint].unaligned
                    for channel in channels:
                        assert channel not in self.blocked
                        queue = self.queues[channel]
                        assert self.recorder.started(checkpoint, channel, b"", queue)
                case ChannelDone(checkpoint, channel):
                    self.recorder.channel_done(checkpoint, channel)
                case AlignmentComplete(checkpoint, align_ms):
                    assert align_ms >= 0
                    assert checkpoint not in self.completed
                    snapshot = self.taken[checkpoint]
                    snapshot.in_flight = self.recorder.completed(checkpoint)
                    self.completed[checkpoint] = snapshot
                case DeclineCheckpoint(checkpoint, reason, forward):
                    assert reason and forward == (checkpoint not in self.taken)
                    assert checkpoint not in self.completed
                    assert checkpoint not in self.aborted
                    self.recorder.dropped(checkpoint)
                    self.aborted.append(checkpoint)
                    self.on_abort(checkpoint, forward)

    def check(self) -> None:
        self.handler.check()
        self.recorder.check()

    def _take(self, barrier: CheckpointBarrier) -> None:
        checkpoint = barrier.checkpoint
        assert checkpoint > max(self.taken, default=-1), "taken out of order, or twice"
        assert checkpoint not in self.aborted
        self.taken[checkpoint] = Snapshot(barrier.unaligned, [list(read) for read in self.read])
        self.on_take(barrier)

    # What a task with outputs does besides.

    def on_data(self, data: bytes) -> None: ...

    def on_take(self, barrier: CheckpointBarrier) -> None: ...

    def on_abort(self, checkpoint: int, forward: bool) -> None: ...
