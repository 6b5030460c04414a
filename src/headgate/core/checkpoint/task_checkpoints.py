"""The checkpoints of one task: does what the barrier handler says, follows what was taken.

A snapshot is taken on the task's thread, between two steps: operators send what they must, what
waits goes to the writers, their state is noted, and the barrier leaves. Law: a snapshot that was
taken is completed when inputs and outputs have given all that belongs to it, or aborted, and its
writing learns of that once; consumers get a barrier or a cancel marker, never both. With the
barrier of a savepoint that ends the job the task stands still until it hears how that went.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, Protocol, TypeAlias

from headgate.base.checkpoints import CheckpointOptions, Stop
from headgate.base.errors import HeadgateError, TaskCancelled
from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.base.figures import UNKNOWN
from headgate.base.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    OnCheckpoints,
)
from headgate.base.settings import MIB
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import Loan, run_user_code
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.checkpoint.alignment import (
    AlignmentComplete,
    BarrierHandler,
    Block,
    ChannelDone,
    DeclineCheckpoint,
    Effects,
    Persist,
    TakeSnapshot,
    UnblockChannels,
)
from headgate.core.checkpoint.inputs import LIMIT_BYTES, CheckpointedInputs
from headgate.core.checkpoint.outputs import CheckpointedOutputs
from headgate.core.checkpoint.snapshot import (
    ChannelData,
    CheckpointPlan,
    NamedSnapshot,
    SnapshotWriting,
    TaskSnapshot,
)
from headgate.functions.context import SnapshotMoment

PostMail: TypeAlias = Callable[[str, Callable[[], None]], object]
"""Sends the task an urgent mail: its name, and what to do on the task's thread."""


class StopListener(Protocol):
    """What a task does because of its checkpoints, beside taking part."""

    def drain(self) -> None:
        """Event time ends with this barrier: finish the operators."""

    def suspend(self, barrier: CheckpointBarrier) -> None:
        """The job ends with this savepoint, if it is complete: do nothing until that is known."""

    def completed(self, checkpoint: int) -> None:
        """It is stored, and the operators have committed."""

    def aborted(self, checkpoint: int) -> None:
        """It has come to nothing."""


class _Decline(Enum):
    """Whether the coordinator learns of a checkpoint that is aborted here."""

    NO = "it knows"
    SUBSUMED = "a newer one has reached the task first"
    FAILED = "something went wrong"


@dataclass(slots=True)
class _TakenSnapshot:
    operators: tuple[OperatorSnapshot, ...]
    writing: SnapshotWriting
    arrived: list[ChannelData] | None = None
    """What the inputs have given; None: they are not through."""
    align_ms: float = 0.0
    ended: bool = False
    """It was completed or given up; only the storage has to answer."""


@dataclass(slots=True)
class _Batch:
    """What follows from one event."""

    failed: dict[int, str] = field(default_factory=dict)
    declined: list[tuple[int, str, bool]] = field(default_factory=list)


class TaskCheckpoints:
    """Owned by its task, which calls on its own thread, inside the baton."""

    def __init__(
        self,
        plan: CheckpointPlan,
        chain: Chain,
        incoming: CheckpointedInputs,
        outgoing: CheckpointedOutputs,
        loan: Loan,
        clock: Clock,
        post: PostMail,
    ) -> None:
        self.on_declined: Callable[[int, str, bool], None] = lambda checkpoint, why, subsumed: None
        """Called with checkpoints that are aborted here, while the baton is lent."""
        self.listener: StopListener
        self.has_finished = False
        """The operators have, at the end of their input; they only wait to commit."""
        self.is_blank = False
        """They had before the run began, and have no state."""
        self.committing: tuple[int, float] | None = None
        """The checkpoint that the operators commit now, and since when."""
        self.state_bytes = UNKNOWN
        """State of the operators, in the last checkpoint that was written."""
        self._committed_ms = 0.0
        self._plan = plan
        self._chain = chain
        self._in = incoming
        self._out = outgoing
        self._loan = loan
        self._clock = clock
        self._post = post
        self._handler = BarrierHandler(incoming.count, plan.policy)
        self._taken: dict[int, _TakenSnapshot] = {}
        self._timer_ms: float | None = None
        incoming.listener = self
        outgoing.on_sent = partial(self._mail, "barrier sent", self._complete_if_ready)

    @property
    def committed_ms(self) -> float:
        """How long the operators have committed, with what is going on now."""
        if self.committing is None:
            return self._committed_ms
        return self._committed_ms + self._clock.now_ms() - self.committing[1]

    @property
    def is_writing(self) -> bool:
        """Whether the storage still owes an answer."""
        return bool(self._taken)

    # What the coordinator tells, by mail.

    def obey(self, order: OnCheckpoints) -> None:
        """The coordinator has begun a checkpoint here, or ended one."""
        match order:
            case CheckpointTriggered():
                self._trigger(order.checkpoint, order.options)
            case CheckpointCompleted():
                self._complete(order.checkpoint)
            case CheckpointAborted():
                self._abort(order.checkpoint, order.reason)

    def _trigger(self, checkpoint: int, options: CheckpointOptions) -> None:
        barrier = CheckpointBarrier(
            checkpoint,
            options.triggered_ms,
            kind=options.kind,
            stop=options.stop,
            directory=options.directory,
        )
        self._carry_out(self._handler.triggered(barrier, self._clock.wall_ms()))

    def _complete(self, checkpoint: int) -> None:
        if not self.is_blank:
            self.committing = checkpoint, self._clock.now_ms()
            self._each(
                lambda operator: operator.checkpoint_completed(checkpoint),
                f"after checkpoint {checkpoint} was complete",
            )
            self._chain.seal()
            self._committed_ms, self.committing = self.committed_ms, None
        self.listener.completed(checkpoint)

    def _abort(self, checkpoint: int, reason: str) -> None:
        self._carry_out(self._handler.given_up(checkpoint, reason), _Decline.NO)
        self._drop(checkpoint)
        if not self.is_blank:
            self._each(
                lambda operator: operator.checkpoint_aborted(checkpoint),
                f"after checkpoint {checkpoint} was given up",
            )
            self._chain.seal()
        self.listener.aborted(checkpoint)

    # What the task tells.

    def input_ended(self) -> None:
        """The operators have finished; nothing more will be sent but barriers."""
        self.has_finished = True
        self._out.ended()
        for checkpoint in list(self._taken):
            self._complete_if_ready(checkpoint)

    def close(self) -> None:
        """The task ends: give up what is not written, close all snapshots. Idempotent."""
        self._in.close()
        self._out.close()
        taken, self._taken = self._taken, {}
        for snapshot in taken.values():
            snapshot.writing.abort()
            for operator in snapshot.operators:
                operator.close()

    # What the inputs report (BarrierListener).

    def barrier_read(self, channel: int, event: CheckpointBarrier | CancelMarker) -> None:
        if isinstance(event, CancelMarker):  # its sender has informed the coordinator
            self._carry_out(self._handler.marker_received(channel, event), _Decline.NO)
        else:
            now_ms = self._clock.wall_ms()
            self._carry_out(self._handler.barrier_received(channel, event, now_ms))

    def channel_ended(self, channel: int) -> None:
        self._carry_out(self._handler.channel_ended(channel, self._clock.wall_ms()))

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        if self._plan.policy.overtakes_at_ms(barrier, self._clock.wall_ms()) is None:
            return

        def tell() -> None:
            now_ms = self._clock.wall_ms()
            self._carry_out(self._handler.barrier_announced(channel, barrier, now_ms))

        self._post("barrier announced", tell)

    def too_much_in_flight(self, checkpoint: int) -> None:
        self._mail("too much in flight", self._give_up, checkpoint, _TOO_MUCH)

    # What storage and clock report.

    def _written(self, checkpoint: int) -> None:
        taken = self._taken.pop(checkpoint, None)
        if taken is not None:
            for operator in taken.operators:
                operator.close()
            written = taken.writing.state_bytes
            self.state_bytes = self.state_bytes if written is None else written

    def _tick(self) -> None:
        self._timer_ms = None
        now_ms = self._clock.wall_ms()
        self._out.tick(now_ms)
        for checkpoint in list(self._taken):
            self._complete_if_ready(checkpoint)
        self._carry_out(self._handler.tick(now_ms))

    # What follows.

    def _carry_out(self, effects: Effects, declines: _Decline = _Decline.SUBSUMED) -> None:
        batch = _Batch()
        for at, effect in enumerate(effects):
            match effect:
                case Block(channel):
                    self._in.block(channel)
                case UnblockChannels(channels):
                    self._in.unblock(channels)
                case TakeSnapshot(barrier):
                    self._take(barrier, _recorded(effects[at + 1 :], barrier.checkpoint), batch)
                case Persist(checkpoint, channels):
                    fails = checkpoint in batch.failed
                    if not fails and not self._in.record(checkpoint, channels):
                        batch.failed[checkpoint] = _TOO_MUCH
                case ChannelDone(checkpoint, channel):
                    self._in.channel_done(checkpoint, channel)
                case AlignmentComplete(checkpoint, align_ms):
                    self._inputs_complete(checkpoint, align_ms, batch)
                case DeclineCheckpoint(checkpoint, reason, forward):
                    self._drop(checkpoint)
                    if forward:
                        self._out.cancel(checkpoint)
                    if declines is not _Decline.NO:
                        why = (checkpoint, reason, declines is _Decline.SUBSUMED)
                        batch.declined.append(why)
        for checkpoint, reason in batch.failed.items():
            self._drop(checkpoint)
            self._handler.given_up(checkpoint, reason)  # nothing is blocked for what was taken
            batch.declined.append((checkpoint, reason, False))
        self._set_timer()
        for declined in batch.declined:
            with self._loan:
                self.on_declined(*declined)

    def _take(self, barrier: CheckpointBarrier, recorded: Sequence[int], batch: _Batch) -> None:
        checkpoint, began_ms = barrier.checkpoint, self._clock.now_ms()
        stops = barrier.stop.ends and not self.has_finished
        drains = stops and barrier.stop is Stop.DRAIN
        if drains:
            self.listener.drain()
        operators = self._snapshot(barrier, batch)
        if operators is None:
            self._out.cancel(checkpoint)
            if drains:
                self.listener.suspend(barrier)  # finished operators get no more input
            return
        self._out.send(barrier, self._clock.wall_ms())
        named = tuple(
            NamedSnapshot(spec.uid, spec.name, taken)
            for (spec, _), taken in zip(self._chain.operators, operators, strict=True)
        )
        sync_ms = self._clock.now_ms() - began_ms
        snapshot = TaskSnapshot(barrier, named, sync_ms, self.has_finished)
        done = partial(self._mail, "checkpoint written", self._written, checkpoint)
        self._taken[checkpoint] = _TakenSnapshot(
            operators, self._plan.start_writing(snapshot, done)
        )
        if barrier.unaligned and not self._in.cut(checkpoint, recorded):
            batch.failed[checkpoint] = _TOO_MUCH
        if stops:
            self.listener.suspend(barrier)

    def _snapshot(
        self, barrier: CheckpointBarrier, batch: _Batch
    ) -> tuple[OperatorSnapshot, ...] | None:
        """Snapshots of all operators; None: one has failed, and the task goes on without it."""
        if self.is_blank:
            return tuple(OperatorSnapshot() for _ in self._chain.operators)
        checkpoint, time_ms = barrier.checkpoint, barrier.timestamp_ms
        increments = self._plan.incremental and not barrier.is_savepoint
        moment = SnapshotMoment(
            checkpoint,
            time_ms,
            barrier.is_savepoint,
            barrier.stop,
            increments,
            barrier.directory,
        )
        self._each(lambda operator: operator.before_barrier(moment), "before a checkpoint")
        self._chain.seal()
        taken: list[OperatorSnapshot] = []
        try:
            self._each(
                lambda operator: taken.append(operator.snapshot(moment)),
                "to take a snapshot of its state",
            )
        except BaseException as error:
            for snapshot in taken:
                snapshot.close()
            self._loan.regain()
            if not isinstance(error, HeadgateError) or isinstance(error, TaskCancelled):
                raise
            batch.failed[checkpoint] = str(error)
            return None
        return tuple(taken)

    def _inputs_complete(self, checkpoint: int, align_ms: float, batch: _Batch) -> None:
        taken = self._taken.get(checkpoint)
        if taken is None or taken.ended or checkpoint in batch.failed:
            return
        taken.arrived, taken.align_ms = self._in.completed(checkpoint), align_ms
        if taken.arrived is None:
            batch.failed[checkpoint] = _TOO_MUCH
        else:
            self._complete_if_ready(checkpoint)

    def _complete_if_ready(self, checkpoint: int) -> None:
        """Whether a snapshot has all that belongs to it."""
        taken = self._taken.get(checkpoint)
        if taken is None or taken.ended or taken.arrived is None:
            return
        if self._out.is_sent(checkpoint):
            taken.ended = True
            in_flight = taken.arrived + self._out.completed(checkpoint)
            taken.writing.complete(in_flight, taken.align_ms)

    def _give_up(self, checkpoint: int, reason: str) -> None:
        """It cannot be completed here."""
        taken = self._taken.get(checkpoint)
        if taken is not None and not taken.ended:
            self._drop(checkpoint)
            self._carry_out(self._handler.given_up(checkpoint, reason), _Decline.FAILED)

    def _drop(self, checkpoint: int) -> None:
        self._in.dropped(checkpoint)
        self._out.dropped(checkpoint)
        taken = self._taken.get(checkpoint)
        if taken is not None:
            taken.ended = True
            taken.writing.abort()

    def _set_timer(self) -> None:
        deadlines = (self._handler.next_deadline_ms, self._out.next_deadline_ms)
        at_ms = min((at_ms for at_ms in deadlines if at_ms is not None), default=None)
        if at_ms is None or (self._timer_ms is not None and self._timer_ms <= at_ms):
            return
        self._timer_ms = at_ms
        delay_ms = max(1.0, at_ms - self._clock.wall_ms())
        self._clock.later(delay_ms, partial(self._mail, "barriers wait too long", self._tick))

    def _mail(self, what: str, action: Callable[..., None], *arguments: object) -> None:
        self._post(what, partial(action, *arguments))

    def _each(self, action: Callable[[Operator], None], doing: str) -> None:
        """Call every operator, head first, while the baton is lent."""
        with self._loan:
            for spec, operator in self._chain.operators:
                run_user_code(spec.name, partial(action, operator), doing)


_TOO_MUCH: Final = f"more than {LIMIT_BYTES // MIB} MiB of records are on their way to the task"


def _recorded(effects: Effects, checkpoint: int) -> Sequence[int]:
    """The channels whose data will be recorded for a checkpoint."""
    for effect in effects:
        if isinstance(effect, Persist) and effect.checkpoint == checkpoint:
            return effect.channels
    return ()
