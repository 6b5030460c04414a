"""The barrier handler: when to take a snapshot, given the barriers of all channels of a task.

A channel that has delivered its barrier is blocked until all live ones have; at least once, none
is. A barrier whose time is over (policy) overtakes: the snapshot is taken at once, and what is in
flight in the channels without a barrier belongs to it until that comes. Law: each checkpoint is
taken at most once, and in their order; what is taken is completed or aborted; a channel is blocked
only for one that was not taken yet and awaits others; a channel that has ended is awaited by none.

The task calls on its own thread. Sources have no channels: their triggers are taken at once.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeAlias

import msgspec

from headgate.base.events import CancelMarker, CheckpointBarrier

AT_ONCE: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class BarrierPolicy:
    """How long barriers wait in their channels before they overtake the data before them.

    Law: both sides of a task, its inputs and its outputs, ask the same policy, so a barrier
    overtakes on both from the same moment on. Times are wall-clock milliseconds: a barrier carries
    the moment at which the Spark driver made it. Clocks differ, so a task never waits longer than
    the timeout from when it first saw the barrier, whatever the barrier says. Savepoints never
    overtake: they hold no data in flight.
    """

    exactly_once: bool = True
    """If not, channels are never blocked and nothing overtakes: records may count twice."""
    timeout_ms: int | None = None
    """How long barriers stay in order; None: always, 0: they overtake at once."""

    def overtakes_at_ms(self, barrier: CheckpointBarrier, seen_ms: float) -> float | None:
        """From when on a barrier that was first seen at ``seen_ms`` overtakes; None: never."""
        if not self.exactly_once or barrier.is_savepoint:
            return None
        if barrier.unaligned or self.timeout_ms == 0:
            return AT_ONCE
        if self.timeout_ms is None:
            return None
        return min(barrier.timestamp_ms, seen_ms) + self.timeout_ms


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
    """Take the snapshot now, and send ``barrier`` on to all consumers.

    An unaligned one goes before what waits in the outputs; that belongs to the checkpoint.
    """

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class Persist:
    """What these channels hold before their barrier, and get until it comes, is in flight.

    It comes after the ``TakeSnapshot`` of its checkpoint, and belongs to it.
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


MAX_PENDING: Final = 64
"""Checkpoints that one task has begun and not ended; the coordinator allows far fewer."""


@dataclass(slots=True)
class _Pending:
    barrier: CheckpointBarrier
    since_ms: float
    missing: dict[int, None]
    """Live channels that have not delivered."""
    announced: dict[int, None] = field(default_factory=dict)
    """Missing channels whose barrier has arrived and waits after data."""
    blocked: list[int] = field(default_factory=list)
    taken: bool = False


class BarrierHandler:
    """One for each task, over the channels of all its inputs."""

    def __init__(self, channels: int, policy: BarrierPolicy) -> None:
        self._policy = policy
        self._live = dict.fromkeys(range(channels))
        self._pending: dict[int, _Pending] = {}  # ascending
        self._highest = -1
        self._given_up: dict[int, None] = {}  # beyond the highest: their barriers may still come

    # What the channels bring.

    def barrier_received(self, channel: int, barrier: CheckpointBarrier, now_ms: float) -> Effects:
        """A channel has been read up to its barrier."""
        assert channel in self._live, f"channel {channel} has ended, and brought {barrier}"
        effects = self._passed_over(channel, barrier.checkpoint)
        pending = self._find(barrier, now_ms, effects)
        if pending is None or channel not in pending.missing:
            return effects
        if pending.taken or len(pending.missing) == 1:
            return effects + self._delivered(pending, channel, now_ms)
        del pending.missing[channel]
        pending.announced.pop(channel, None)
        if self._overtakes(pending, now_ms):
            return effects + self._take(pending, now_ms)
        if self._policy.exactly_once:
            pending.blocked.append(channel)
            effects.append(Block(channel))
        return effects

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier, now_ms: float) -> Effects:
        """A barrier has arrived in a channel, after data that was not read yet.

        It is also told of a barrier that stands before all data because it has overtaken them.
        """
        if channel not in self._live or self._policy.overtakes_at_ms(barrier, now_ms) is None:
            return []
        effects: Effects = []
        pending = self._find(barrier, now_ms, effects)
        if pending is None or channel not in pending.missing:
            return effects
        if pending.taken:
            return effects + self._delivered(pending, channel, now_ms)
        pending.announced[channel] = None
        if self._overtakes(pending, now_ms):
            effects += self._take(pending, now_ms)
        return effects

    def marker_received(self, channel: int, marker: CancelMarker) -> Effects:
        """A producer has given a checkpoint up."""
        checkpoint = marker.checkpoint
        if self._is_over(checkpoint):
            return []
        reason = f"a producer (channel {channel}) has given it up"
        if checkpoint in self._pending:
            return self._abort(checkpoint, reason)
        self._remember_given_up(checkpoint)
        return [DeclineCheckpoint(checkpoint, reason, forward=True)]

    def channel_ended(self, channel: int, now_ms: float) -> Effects:
        """All data of a channel came before whatever barrier it has not delivered."""
        self._live.pop(channel, None)
        effects: Effects = []
        for checkpoint in list(self._pending):
            pending = self._pending.get(checkpoint)  # what is taken aborts older ones
            if pending is not None and channel in pending.missing:
                effects += self._delivered(pending, channel, now_ms)
        return effects

    # What the Spark driver and the clock tell.

    def triggered(self, barrier: CheckpointBarrier, now_ms: float) -> Effects:
        """A checkpoint begins at this task: it is a source, or all its producers have finished.

        In the second case channels may still hold data, and their end is awaited.
        """
        effects: Effects = []
        pending = self._find(barrier, now_ms, effects)
        if pending is None or pending.taken:
            return effects
        if not pending.missing or self._overtakes(pending, now_ms):
            effects += self._take(pending, now_ms)
        return effects

    def given_up(self, checkpoint: int, reason: str) -> Effects:
        """The coordinator (or this task) has given a checkpoint up; nobody waits for it."""
        if checkpoint in self._pending:
            return self._abort(checkpoint, reason)
        if not self._is_over(checkpoint):
            self._remember_given_up(checkpoint)
        return []

    @property
    def next_deadline_ms(self) -> float | None:
        """When to tick next."""
        deadlines = [self._deadline_ms(pending) for pending in self._pending.values()]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def tick(self, now_ms: float) -> Effects:
        """The time of some may be over."""
        effects: Effects = []
        for pending in list(self._pending.values()):
            if not pending.taken and self._overtakes(pending, now_ms):
                effects += self._take(pending, now_ms)
        return effects

    def check(self) -> None:
        """Assert the law's part that can be seen from here."""
        pendings = list(self._pending.values())
        assert list(self._pending) == sorted(self._pending)
        assert not self._pending or max(self._pending) <= self._highest
        blocked = [channel for pending in pendings for channel in pending.blocked]
        assert len(set(blocked)) == len(blocked)
        for pending in pendings:
            assert pending.missing, "a checkpoint is over and was not ended"
            assert self._live.keys() >= pending.missing.keys() >= pending.announced.keys()
            assert not (pending.taken and (pending.blocked or pending.announced))
        for older, newer in combinations(pendings, 2):
            assert not older.missing.keys() & set(newer.blocked), "two wait for each other"

    def _find(self, barrier: CheckpointBarrier, now_ms: float, effects: Effects) -> _Pending | None:
        """What is known of a checkpoint; a new one begins, None: it is over."""
        checkpoint = barrier.checkpoint
        if self._is_over(checkpoint):
            return None
        pending = self._pending.get(checkpoint)
        if pending is None:
            if len(self._pending) == MAX_PENDING:
                effects += self._abort(
                    next(iter(self._pending)),
                    f"more than {MAX_PENDING} checkpoints are in progress in this task",
                )
            pending = _Pending(barrier, now_ms, dict(self._live))
            self._pending[checkpoint] = pending
            self._highest = checkpoint
            self._given_up = {newer: None for newer in self._given_up if newer > checkpoint}
        elif barrier.unaligned:
            pending.barrier = barrier
        return pending

    def _is_over(self, checkpoint: int) -> bool:
        if checkpoint in self._given_up:
            return True
        return checkpoint <= self._highest and checkpoint not in self._pending

    def _remember_given_up(self, checkpoint: int) -> None:
        self._given_up[checkpoint] = None
        if len(self._given_up) > MAX_PENDING:
            oldest = min(self._given_up)
            del self._given_up[oldest]
            self._highest = max(self._highest, oldest)  # its barriers must not begin anything

    def _passed_over(self, channel: int, checkpoint: int) -> Effects:
        """A channel that brings a barrier will not bring the one of an older checkpoint."""
        effects: Effects = []
        for older, pending in list(self._pending.items()):
            if older < checkpoint and channel in pending.missing:
                effects += self._abort(older, f"checkpoint {checkpoint} came before it has ended")
        return effects

    def _delivered(self, pending: _Pending, channel: int, now_ms: float) -> Effects:
        """An awaited channel is through: with its barrier, or without one, at its end."""
        del pending.missing[channel]
        pending.announced.pop(channel, None)
        effects: Effects = []
        if pending.taken:
            effects.append(ChannelDone(pending.barrier.checkpoint, channel))
            if not pending.missing:
                effects.append(self._complete(pending, now_ms))
        elif not pending.missing:
            effects += self._take(pending, now_ms)
        return effects

    def _take(self, pending: _Pending, now_ms: float) -> Effects:
        checkpoint = pending.barrier.checkpoint
        effects: Effects = []
        for older, other in list(self._pending.items()):
            if older < checkpoint and not other.taken:
                effects += self._abort(older, f"checkpoint {checkpoint} was taken before it")
        overtakes = self._overtakes(pending, now_ms)
        assert overtakes or not pending.missing
        pending.taken = True
        barrier = msgspec.structs.replace(pending.barrier, unaligned=overtakes)
        effects.append(TakeSnapshot(barrier))
        if pending.missing:
            effects.append(Persist(checkpoint, tuple(pending.missing)))
        effects += self._unblock(pending)
        for channel in list(pending.announced):
            del pending.missing[channel], pending.announced[channel]
            effects.append(ChannelDone(checkpoint, channel))
        if not pending.missing:
            effects.append(self._complete(pending, now_ms))
        return effects

    def _complete(self, pending: _Pending, now_ms: float) -> AlignmentComplete:
        checkpoint = pending.barrier.checkpoint
        del self._pending[checkpoint]
        return AlignmentComplete(checkpoint, max(0.0, now_ms - pending.since_ms))

    def _abort(self, checkpoint: int, reason: str) -> Effects:
        pending = self._pending.pop(checkpoint)
        return [DeclineCheckpoint(checkpoint, reason, not pending.taken), *self._unblock(pending)]

    def _unblock(self, pending: _Pending) -> Effects:
        blocked, pending.blocked = pending.blocked, []
        return [UnblockChannels(tuple(blocked))] if blocked else []

    def _deadline_ms(self, pending: _Pending) -> float | None:
        if pending.taken:
            return None
        return self._policy.overtakes_at_ms(pending.barrier, pending.since_ms)

    def _overtakes(self, pending: _Pending, now_ms: float) -> bool:
        at_ms = self._policy.overtakes_at_ms(pending.barrier, pending.since_ms)
        return at_ms is not None and at_ms <= now_ms
