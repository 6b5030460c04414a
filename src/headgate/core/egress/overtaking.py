"""Barriers that overtake data in the outputs of a task.

An aligned barrier is put behind the data of a subpartition; if it still waits there when its time
is over (policy), it is taken out and put before them. Law: what a barrier has overtaken, and no
more, is handed over as bytes; data stay in their order, and so do barriers that have overtaken. A
checkpoint is sent when its barrier has left every subpartition or has overtaken in it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from headgate.base.barrier_policy import BarrierPolicy
from headgate.base.elements import Serializer
from headgate.base.events import CheckpointBarrier, Event, decode_event, encode_event
from headgate.core.buffers.buffer import Buffer, BufferConsumer
from headgate.core.buffers.in_flight import waiting_bytes


@dataclass(frozen=True, slots=True)
class Overtake:
    """Put the barrier before what waits in these subpartitions, and keep what it overtakes."""

    barrier: CheckpointBarrier
    subpartitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """The outputs have given all that belongs to a checkpoint."""

    checkpoint: int


Effect: TypeAlias = Overtake | Sent


@dataclass(slots=True)
class _Waiting:
    barrier: CheckpointBarrier
    since_ms: float
    subpartitions: dict[int, None]


class OutputBarriers:
    """Where the aligned barriers of one partition are; the partition tells which have left."""

    def __init__(self, policy: BarrierPolicy) -> None:
        self._policy = policy
        self._waiting: dict[int, _Waiting] = {}

    def added(
        self, barrier: CheckpointBarrier, subpartitions: Iterable[int], now_ms: float
    ) -> list[Effect]:
        """An aligned barrier was put behind the data of these subpartitions."""
        waiting = _Waiting(barrier, now_ms, dict.fromkeys(subpartitions))
        if self._at_ms(waiting) is None:
            return [Sent(barrier.checkpoint)]  # it will never overtake: nobody need wait
        self._waiting[barrier.checkpoint] = waiting
        return self._look(waiting, now_ms)

    def left(self, subpartition: int, checkpoint: int) -> list[Effect]:
        """A reader has taken the barrier, or will never take it because it has gone."""
        waiting = self._waiting.get(checkpoint)
        if waiting is None or subpartition not in waiting.subpartitions:
            return []
        del waiting.subpartitions[subpartition]
        return self._sent_if_through(waiting)

    def reader_gone(self, subpartition: int) -> list[Effect]:
        """Nobody will read the subpartition: its data are dropped, and belong to nothing."""
        return [
            effect
            for checkpoint in list(self._waiting)
            for effect in self.left(subpartition, checkpoint)
        ]

    def given_up(self, checkpoint: int) -> None:
        """It was aborted: its barriers stay where they are, consumers drop them. Idempotent."""
        self._waiting.pop(checkpoint, None)

    def ended(self) -> list[Effect]:
        """The task ends and has no more time to wait: what waits overtakes now."""
        return [
            effect for waiting in list(self._waiting.values()) for effect in self._turn(waiting)
        ]

    @property
    def next_deadline_ms(self) -> float | None:
        """When to tick next."""
        deadlines = [self._at_ms(waiting) for waiting in self._waiting.values()]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def tick(self, now_ms: float) -> list[Effect]:
        """The time of some may be over."""
        return [
            effect
            for waiting in list(self._waiting.values())
            for effect in self._look(waiting, now_ms)
        ]

    def _look(self, waiting: _Waiting, now_ms: float) -> list[Effect]:
        at_ms = self._at_ms(waiting)
        if at_ms is not None and at_ms <= now_ms:
            return self._turn(waiting)
        return self._sent_if_through(waiting)

    def _turn(self, waiting: _Waiting) -> list[Effect]:
        late, waiting.subpartitions = tuple(waiting.subpartitions), {}
        if not late:
            return self._sent_if_through(waiting)
        barrier = msgspec.structs.replace(waiting.barrier, unaligned=True)
        return [Overtake(barrier, late), *self._sent_if_through(waiting)]

    def _sent_if_through(self, waiting: _Waiting) -> list[Effect]:
        if waiting.subpartitions:
            return []
        del self._waiting[waiting.barrier.checkpoint]
        return [Sent(waiting.barrier.checkpoint)]

    def _at_ms(self, waiting: _Waiting) -> float | None:
        return self._policy.overtakes_at_ms(waiting.barrier, waiting.since_ms)


def overtake(
    queue: deque[BufferConsumer], barrier: CheckpointBarrier, serializer: Serializer
) -> list[bytes]:
    """Put an unaligned barrier before the data of a subpartition; answers with what it overtakes.

    If the barrier waits in the queue, it is moved from there: what is behind it comes after it.
    """
    assert barrier.unaligned, "a barrier that overtakes says so, for the receiver's sake"
    overtaken: list[bytes] = []
    first, at = 0, None
    for number, consumer in enumerate(queue):
        event = event_of(consumer)
        if isinstance(event, CheckpointBarrier) and event.checkpoint == barrier.checkpoint:
            at = number
            break
        if first == number and isinstance(event, CheckpointBarrier) and event.unaligned:
            first += 1
        if not consumer.is_event:
            overtaken.append(waiting_bytes(consumer, serializer))
    if at is not None:
        queue[at].close()
        del queue[at]
    queue.insert(first, BufferConsumer.of(Buffer(encode_event(barrier), is_event=True)))
    return [data for data in overtaken if data]


def event_of(consumer: BufferConsumer) -> Event | None:
    """The event that a consumer holds, if it does."""
    ready = consumer.ready
    return decode_event(ready.view) if consumer.is_event and ready is not None else None


def restored(parts: Iterable[bytes], segment_bytes: int) -> Iterator[BufferConsumer]:
    """What a subpartition begins with after a restore: buffers as long as segments may be."""
    data = memoryview(b"".join(parts))
    for start in range(0, len(data), segment_bytes):
        yield BufferConsumer.of(Buffer(data[start : start + segment_bytes]))
