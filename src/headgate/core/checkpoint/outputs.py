"""The outputs of a task as checkpoints see them: how far barriers are on their way.

An aligned barrier is put after the data of a subpartition; if it still waits there when its time
is over (policy), it overtakes. Law: a barrier is sent when it has left every subpartition that has
a reader, or has overtaken in it; what it has overtaken, and no more, is kept for its checkpoint.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.snapshot import ChannelData
from headgate.core.egress.writer import RecordWriter


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
        """An aligned barrier was put after the data of these subpartitions."""
        waiting = _Waiting(barrier, now_ms, dict.fromkeys(subpartitions))
        if self._at_ms(waiting) is None:
            return [Sent(barrier.checkpoint)]  # it will never overtake: nobody need wait
        self._waiting[barrier.checkpoint] = waiting
        return self._overtake_if_due(waiting, now_ms)

    def left(self, subpartition: int, checkpoint: int) -> list[Effect]:
        """A reader has taken the barrier, or will never take it because it has gone."""
        waiting = self._waiting.get(checkpoint)
        if waiting is None or subpartition not in waiting.subpartitions:
            return []
        del waiting.subpartitions[subpartition]
        return self._sent_if_through(waiting)

    def reader_gone(self, subpartition: int) -> list[Effect]:
        """Nobody will read the subpartition: its data are dropped, and belong to no checkpoint."""
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
            for effect in self._overtake_if_due(waiting, now_ms)
        ]

    def _overtake_if_due(self, waiting: _Waiting, now_ms: float) -> list[Effect]:
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


class CheckpointedOutputs:
    """Called on the task's thread, inside the baton; readers tell from theirs, inside it too."""

    def __init__(self, writers: Sequence[RecordWriter], policy: BarrierPolicy) -> None:
        self.on_sent: Callable[[int], None] = lambda checkpoint: None
        """A reader has taken the last barrier of a checkpoint; called by its thread."""
        self._writers = writers
        self._barriers = [OutputBarriers(policy) for _ in writers]
        self._read = [dict.fromkeys(range(writer.channels)) for writer in writers]
        self._unsent: dict[int, dict[int, None]] = {}
        self._overtaken: dict[int, list[ChannelData]] = {}
        for number, writer in enumerate(writers):
            writer.partition.on_barrier_left = partial(self._barrier_left, number)
            writer.partition.on_reader_gone = partial(self._reader_gone, number)

    def send(self, barrier: CheckpointBarrier, now_ms: float) -> None:
        """To all consumers: an aligned one after what was written, an unaligned one before it."""
        checkpoint = barrier.checkpoint
        self._overtaken[checkpoint] = []
        if barrier.unaligned:
            self._unsent[checkpoint] = {}
            for number, writer in enumerate(self._writers):
                self._overtake(number, barrier, range(writer.channels))
            return
        self._unsent[checkpoint] = dict.fromkeys(range(len(self._writers)))
        for number, writer in enumerate(self._writers):
            writer.send_barrier(barrier)
            self._follow(number, self._barriers[number].added(barrier, self._read[number], now_ms))

    def cancel(self, checkpoint: int) -> None:
        """Tell the consumers that no barrier of it will come."""
        for writer in self._writers:
            writer.broadcast_event(CancelMarker(checkpoint))

    def is_sent(self, checkpoint: int) -> bool:
        """Whether the outputs have given all that belongs to it."""
        return not self._unsent[checkpoint]

    def completed(self, checkpoint: int) -> list[ChannelData]:
        """Hand over what was overtaken."""
        del self._unsent[checkpoint]
        return self._overtaken.pop(checkpoint)

    def dropped(self, checkpoint: int) -> None:
        """It was aborted; its barriers stay where they are. Idempotent."""
        self._unsent.pop(checkpoint, None)
        self._overtaken.pop(checkpoint, None)
        for barriers in self._barriers:
            barriers.given_up(checkpoint)

    @property
    def next_deadline_ms(self) -> float | None:
        """When to tick next."""
        deadlines = [barriers.next_deadline_ms for barriers in self._barriers]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def tick(self, now_ms: float) -> None:
        """The time of some may be over."""
        for number, barriers in enumerate(self._barriers):
            self._follow(number, barriers.tick(now_ms))

    def ended(self) -> None:
        """The task has nothing more to send and wants to end: what waits overtakes."""
        for number, barriers in enumerate(self._barriers):
            self._follow(number, barriers.ended())

    def close(self) -> None:
        """The task has ended: its partitions, which may outlive it, report to nobody."""
        for writer in self._writers:
            writer.partition.on_barrier_left = _nobody
            writer.partition.on_reader_gone = _nobody

    def _follow(self, number: int, effects: list[Effect]) -> list[int]:
        """Returns the checkpoints that are now sent over all partitions."""
        sent: list[int] = []
        for effect in effects:
            match effect:
                case Overtake(barrier, subpartitions):
                    self._overtake(number, barrier, subpartitions)
                case Sent(checkpoint):
                    unsent = self._unsent.get(checkpoint)
                    if unsent is not None:
                        unsent.pop(number, None)
                        sent += [] if unsent else [checkpoint]
        return sent

    def _overtake(
        self, number: int, barrier: CheckpointBarrier, subpartitions: Iterable[int]
    ) -> None:
        overtaken = self._writers[number].overtake(barrier, subpartitions)
        self._overtaken[barrier.checkpoint] += [
            ChannelData(False, number, index, parts) for index, parts in overtaken.items() if parts
        ]

    def _barrier_left(self, number: int, subpartition: int, barrier: CheckpointBarrier) -> None:
        effects = self._barriers[number].left(subpartition, barrier.checkpoint)
        for checkpoint in self._follow(number, effects):
            self.on_sent(checkpoint)

    def _reader_gone(self, number: int, subpartition: int) -> None:
        self._read[number].pop(subpartition, None)
        for checkpoint in self._follow(number, self._barriers[number].reader_gone(subpartition)):
            self.on_sent(checkpoint)


def _nobody(*report: object) -> None:
    """For partitions whose task has ended."""
