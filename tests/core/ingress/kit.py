"""Helpers of the tests of gates and deserializers: channels that tests fill, a counted disk."""

from collections import deque

from headgate.base.events import (
    CheckpointBarrier,
    Event,
    TaskEvent,
    encode_event,
)
from headgate.core.buffers.buffer import Buffer
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.ingress.channel import BufferAndAvailability, ChannelStatistics
from headgate.core.ingress.gate import BufferOrEvent, Gate
from tests.arena import plain_pool


class ScriptedChannel:
    """A queue of buffers that the test fills; `put` tells the gate as real channels do."""

    def __init__(self, index: int, gate: Gate) -> None:
        self.index = index
        self.gate = gate
        self.queue: deque[Buffer] = deque()
        self.error: Exception | None = None
        self.requests = 0
        self.releases = 0
        self.events: list[TaskEvent] = []
        self.blocks: list[bool] = []

    def put(self, *items: bytes | Event) -> None:
        for item in items:
            if isinstance(item, bytes):
                self.queue.append(Buffer(item))
            else:
                self.queue.append(Buffer(encode_event(item), is_event=True))
        self.gate.channel_ready(self.index)

    def request(self) -> None:
        self.requests += 1

    def next(self) -> BufferAndAvailability | None:
        if self.queue:
            buffer = self.queue.popleft()
            return BufferAndAvailability(buffer, bool(self.queue) or self.error is not None)
        if self.error is not None:
            raise self.error
        return None

    def block(self) -> None:
        self.blocks.append(True)

    def unblock(self) -> None:
        self.blocks.append(False)

    def queued(self) -> list[Buffer]:
        return list(self.queue)

    def failure(self) -> Exception | None:
        return self.error

    def fail(self, error: Exception) -> None:
        self.error = error
        self.gate.channel_ready(self.index)

    def send_event(self, event: TaskEvent) -> None:
        self.events.append(event)

    def release(self) -> None:
        self.releases += 1
        self.queue.clear()

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(
            10, 2, len(self.queue), 7, backlog=3, credit=1, exclusive=2, exclusive_free=1
        )


def make_gate(count: int, pool: GlobalPool | None = None) -> tuple[Gate, list[ScriptedChannel]]:
    gate = Gate("g", (pool or plain_pool(4)).create_pool("gate", 0, 4), 64)
    channels = [ScriptedChannel(index, gate) for index in range(count)]
    gate.set_channels(list(channels))
    return gate, channels


def plain(arrival: BufferOrEvent | None) -> tuple[int, object, bool] | None:
    if arrival is None:
        return None
    content = arrival.event if arrival.buffer is None else bytes(arrival.buffer.view)
    return arrival.channel, content, arrival.more


OVERTAKING = CheckpointBarrier(1, 0, unaligned=True)


class MemorySpillFile:
    def __init__(self, room: "CountingSpillRoom") -> None:
        self.room = room
        self.data = bytearray()

    def write(self, data: memoryview) -> None:
        self.data += data

    def written(self) -> bytes:
        return bytes(self.data)

    def view(self) -> memoryview:
        return memoryview(self.data)

    def close(self) -> None:
        self.room.open_files -= 1


class CountingSpillRoom:
    """Counts the files it has opened and those that are open."""

    def __init__(self) -> None:
        self.opened = 0
        self.open_files = 0

    def open(self) -> MemorySpillFile:
        self.opened += 1
        self.open_files += 1
        return MemorySpillFile(self)
