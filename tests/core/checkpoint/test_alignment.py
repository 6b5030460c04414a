"""The barrier handler: each rule by an example, and its law over random channels. Row 162."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.checkpoints import CheckpointKind
from headgate.base.events import END_OF_PARTITION, CancelMarker, CheckpointBarrier
from headgate.core.checkpoint.alignment import (
    AT_ONCE,
    MAX_PENDING,
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
from tests.core.ingress.barrier_lab import Inputs, Item

ALIGNED = BarrierPolicy()
AT_LEAST_ONCE = BarrierPolicy(exactly_once=False)
UNALIGNED = BarrierPolicy(timeout_ms=0)
PATIENT = BarrierPolicy(timeout_ms=100)


def barrier(checkpoint: int, at_ms: int = 0, *, unaligned: bool = False) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint, at_ms, unaligned)


def taken(effects: Effects) -> list[tuple[int, str]]:
    """The checkpoints whose snapshot is taken, and whether their barrier overtakes."""
    barriers = [effect.barrier for effect in effects if isinstance(effect, TakeSnapshot)]
    return [(sent.checkpoint, "unaligned" if sent.unaligned else "aligned") for sent in barriers]


def aborted(effects: Effects) -> list[int]:
    return [effect.checkpoint for effect in effects if isinstance(effect, DeclineCheckpoint)]


# When barriers overtake.


@pytest.mark.parametrize(
    ("policy", "seen_ms", "overtakes_at_ms"),
    [
        (ALIGNED, 5_000, None),
        (BarrierPolicy(timeout_ms=300), 1_200, 1_300),  # its time runs from when it was made
        (BarrierPolicy(timeout_ms=300), 10, 310),  # by a clock that is ahead
        (UNALIGNED, 10, AT_ONCE),
        (BarrierPolicy(exactly_once=False, timeout_ms=0), 10, None),
    ],
)
def test_a_barrier_overtakes_when_its_time_is_over(
    policy: BarrierPolicy, seen_ms: float, overtakes_at_ms: float | None
) -> None:
    assert policy.overtakes_at_ms(barrier(1, 1_000), seen_ms) == overtakes_at_ms


@pytest.mark.parametrize("policy", [ALIGNED, UNALIGNED, PATIENT])
def test_barrier_that_has_overtaken_elsewhere_overtakes_at_once(policy: BarrierPolicy) -> None:
    assert policy.overtakes_at_ms(barrier(1, 1_000, unaligned=True), 10) == AT_ONCE


# Aligned.


def test_a_single_channel_takes_at_once() -> None:
    handler = BarrierHandler(1, ALIGNED)
    assert handler.barrier_received(0, barrier(1), 5) == [
        TakeSnapshot(barrier(1)),
        AlignmentComplete(1, 0.0),
    ]


def test_channels_are_blocked_until_the_last_has_delivered() -> None:
    handler = BarrierHandler(3, ALIGNED)
    assert handler.barrier_received(1, barrier(1), 5) == [Block(1)]
    assert handler.barrier_received(0, barrier(1), 6) == [Block(0)]
    assert handler.barrier_received(2, barrier(1), 9) == [
        TakeSnapshot(barrier(1)),
        UnblockChannels((1, 0)),
        AlignmentComplete(1, 4.0),
    ]


def test_a_newer_barrier_subsumes_an_older_one_that_its_channel_has_left_out() -> None:
    handler = BarrierHandler(3, ALIGNED)
    handler.barrier_received(0, barrier(1), 1)
    effects = handler.barrier_received(1, barrier(2), 2)
    assert aborted(effects) == [1]
    assert effects[1:] == [UnblockChannels((0,)), Block(1)]


def test_late_barriers_of_what_is_over_are_dropped() -> None:
    handler = BarrierHandler(2, ALIGNED)
    handler.barrier_received(0, barrier(1), 1)
    handler.barrier_received(1, barrier(2), 2)
    assert handler.barrier_received(0, barrier(1), 3) == []
    assert handler.barrier_received(1, barrier(1), 3) == []
    assert taken(handler.barrier_received(0, barrier(2), 4)) == [(2, "aligned")]
    assert handler.barrier_received(0, barrier(2), 5) == []


def test_a_barrier_of_an_ended_channel_is_a_bug() -> None:
    handler = BarrierHandler(2, ALIGNED)
    handler.channel_ended(0, 1)
    with pytest.raises(AssertionError, match="channel 0 has ended"):
        handler.barrier_received(0, barrier(1), 1)


def test_aligned_handler_has_no_deadline_and_ignores_announcements() -> None:
    handler = BarrierHandler(2, ALIGNED)
    assert handler.barrier_announced(0, barrier(1), 1) == []
    handler.barrier_received(0, barrier(1), 1)
    assert handler.next_deadline_ms is None
    assert handler.tick(10**9) == []


# At least once.


def test_at_least_once_counts_and_never_blocks() -> None:
    handler = BarrierHandler(2, AT_LEAST_ONCE)
    assert handler.barrier_received(0, barrier(1), 1) == []
    assert handler.barrier_received(0, barrier(2), 2) == []
    assert taken(handler.barrier_received(1, barrier(1), 3)) == [(1, "aligned")]
    assert taken(handler.barrier_received(1, barrier(2), 4)) == [(2, "aligned")]


def test_at_least_once_gives_up_what_a_channel_has_left_out() -> None:
    handler = BarrierHandler(2, AT_LEAST_ONCE)
    handler.barrier_received(0, barrier(1), 1)
    handler.barrier_received(0, barrier(2), 2)
    effects = handler.barrier_received(1, barrier(2), 3)
    assert aborted(effects) == [1]
    assert taken(effects) == [(2, "aligned")]


def test_checkpoints_under_way_are_bounded() -> None:
    handler = BarrierHandler(2, AT_LEAST_ONCE)
    for checkpoint in range(MAX_PENDING):
        assert handler.barrier_received(0, barrier(checkpoint), 1) == []
    assert aborted(handler.barrier_received(0, barrier(MAX_PENDING), 1)) == [0]


# Unaligned.


def test_unaligned_takes_at_the_first_barrier_and_persists_until_each_comes() -> None:
    handler = BarrierHandler(3, UNALIGNED)
    overtaking = barrier(1, unaligned=True)
    assert handler.barrier_announced(1, overtaking, 5) == [
        TakeSnapshot(overtaking),
        Persist(1, (0, 1, 2)),
        ChannelDone(1, 1),
    ]
    assert handler.barrier_announced(0, overtaking, 6) == [ChannelDone(1, 0)]
    assert handler.barrier_received(0, overtaking, 6) == []
    assert handler.barrier_received(2, overtaking, 9) == [
        ChannelDone(1, 2),
        AlignmentComplete(1, 4.0),
    ]
    assert handler.barrier_received(1, overtaking, 9) == []


def test_what_was_taken_and_does_not_complete_is_aborted_without_a_marker() -> None:
    handler = BarrierHandler(2, UNALIGNED)
    handler.barrier_received(0, barrier(1), 5)
    assert handler.marker_received(1, CancelMarker(1)) == [
        DeclineCheckpoint(1, "a producer (channel 1) has given it up", forward=False)
    ]


# Aligned, then unaligned.


def test_alignment_that_takes_too_long_turns_unaligned() -> None:
    handler = BarrierHandler(3, PATIENT)
    assert handler.barrier_received(0, barrier(1, 1_000), 1_010) == [Block(0)]
    assert handler.next_deadline_ms == 1_100
    assert handler.tick(1_099) == []
    assert handler.tick(1_100) == [
        TakeSnapshot(barrier(1, 1_000, unaligned=True)),
        Persist(1, (1, 2)),
        UnblockChannels((0,)),
    ]
    assert handler.next_deadline_ms is None


def test_time_runs_for_a_barrier_that_waits_behind_data() -> None:
    handler = BarrierHandler(2, PATIENT)
    assert handler.barrier_announced(0, barrier(1, 1_000), 1_010) == []
    assert handler.barrier_announced(1, barrier(1, 1_000), 1_020) == []
    assert handler.tick(1_100) == [
        TakeSnapshot(barrier(1, 1_000, unaligned=True)),
        Persist(1, (0, 1)),
        ChannelDone(1, 0),
        ChannelDone(1, 1),
        AlignmentComplete(1, 90.0),
    ]


def test_barriers_in_time_stay_aligned_after_they_were_announced() -> None:
    handler = BarrierHandler(2, PATIENT)
    handler.barrier_announced(0, barrier(1), 10)
    handler.barrier_announced(1, barrier(1), 10)
    assert handler.barrier_received(0, barrier(1), 20) == [Block(0)]
    assert taken(handler.barrier_received(1, barrier(1), 30)) == [(1, "aligned")]


def test_a_barrier_that_is_older_than_the_timeout_overtakes_when_it_comes() -> None:
    handler = BarrierHandler(2, PATIENT)
    assert taken(handler.barrier_received(0, barrier(1, 0), 100)) == [(1, "unaligned")]


def test_one_barrier_that_has_overtaken_makes_the_checkpoint_unaligned() -> None:
    handler = BarrierHandler(3, PATIENT)
    handler.barrier_received(0, barrier(1), 1)
    assert handler.barrier_announced(2, barrier(1, unaligned=True), 2) == [
        TakeSnapshot(barrier(1, unaligned=True)),
        Persist(1, (1, 2)),
        UnblockChannels((0,)),
        ChannelDone(1, 2),
    ]


def test_the_last_barrier_still_overtakes_in_the_outputs_when_it_is_late() -> None:
    handler = BarrierHandler(1, PATIENT)
    assert handler.barrier_received(0, barrier(1, 0), 100) == [
        TakeSnapshot(barrier(1, unaligned=True)),
        AlignmentComplete(1, 0.0),
    ]


def test_a_savepoint_stays_aligned_however_long_it_takes() -> None:
    handler = BarrierHandler(2, UNALIGNED)
    savepoint = CheckpointBarrier(1, 0, kind=CheckpointKind.SAVEPOINT)
    assert handler.barrier_announced(1, savepoint, 1) == []
    assert handler.barrier_received(0, savepoint, 1) == [Block(0)]
    assert handler.next_deadline_ms is None
    assert taken(handler.barrier_received(1, savepoint, 10**9)) == [(1, "aligned")]


def test_what_is_taken_first_ends_older_ones_that_were_not() -> None:
    handler = BarrierHandler(2, PATIENT)
    handler.barrier_received(0, barrier(1), 1)
    effects = handler.barrier_announced(1, barrier(2, unaligned=True), 2)
    assert aborted(effects) == [1]
    assert effects[1] == UnblockChannels((0,))
    assert taken(effects) == [(2, "unaligned")]


# Cancelled.


def test_a_marker_ends_what_is_pending_and_unblocks() -> None:
    handler = BarrierHandler(3, ALIGNED)
    handler.barrier_received(0, barrier(1), 1)
    effects = handler.marker_received(1, CancelMarker(1))
    assert effects[1:] == [UnblockChannels((0,))]
    assert isinstance(effects[0], DeclineCheckpoint) and effects[0].forward
    assert handler.marker_received(2, CancelMarker(1)) == []
    assert handler.barrier_received(2, barrier(1), 2) == []


def test_a_marker_that_comes_before_all_barriers_is_sent_on_once() -> None:
    handler = BarrierHandler(2, ALIGNED)
    assert aborted(handler.marker_received(0, CancelMarker(3))) == [3]
    assert handler.marker_received(1, CancelMarker(3)) == []
    assert handler.barrier_received(1, barrier(3), 1) == []


def test_a_marker_leaves_older_checkpoints_alone() -> None:
    handler = BarrierHandler(2, ALIGNED)
    handler.marker_received(0, CancelMarker(3))
    assert handler.barrier_received(0, barrier(2), 1) == [Block(0)]
    assert taken(handler.barrier_received(1, barrier(2), 1)) == [(2, "aligned")]


def test_memory_of_what_was_given_up_is_bounded() -> None:
    handler = BarrierHandler(1, ALIGNED)
    for checkpoint in range(1, 10 * MAX_PENDING):
        handler.given_up(checkpoint, "too slow")
    assert len(handler._given_up) <= MAX_PENDING
    assert handler.barrier_received(0, barrier(10 * MAX_PENDING - 1), 1) == []


def test_a_barrier_that_is_older_than_the_memory_blocks_nothing() -> None:
    """Nobody would tell once more that its checkpoint was given up."""
    handler = BarrierHandler(2, ALIGNED)
    for checkpoint in range(1, 3 * MAX_PENDING):
        handler.given_up(checkpoint, "too slow")
    assert handler.barrier_received(0, barrier(1), 1) == []
    assert handler.barrier_received(0, barrier(3 * MAX_PENDING), 1) == [Block(0)]


# Triggered by the coordinator.


def test_a_source_takes_when_it_is_triggered() -> None:
    assert BarrierHandler(0, PATIENT).triggered(barrier(1), 1) == [
        TakeSnapshot(barrier(1)),
        AlignmentComplete(1, 0.0),
    ]
    assert taken(BarrierHandler(0, UNALIGNED).triggered(barrier(1), 1)) == [(1, "unaligned")]


def test_a_trigger_that_comes_after_its_end_is_dropped() -> None:
    handler = BarrierHandler(0, ALIGNED)
    handler.given_up(1, "too slow")
    assert handler.triggered(barrier(1), 1) == []
    handler.triggered(barrier(2), 1)
    assert handler.triggered(barrier(2), 1) == []


def test_a_task_behind_finished_ones_reads_their_data_to_the_end_first() -> None:
    handler = BarrierHandler(2, ALIGNED)
    handler.channel_ended(0, 1)
    assert handler.triggered(barrier(1), 2) == []
    assert taken(handler.channel_ended(1, 3)) == [(1, "aligned")]


def test_a_task_behind_finished_ones_may_persist_their_data() -> None:
    handler = BarrierHandler(2, UNALIGNED)
    effects = handler.triggered(barrier(1), 2)
    assert effects[1:] == [Persist(1, (0, 1))]
    handler.channel_ended(0, 3)
    assert handler.channel_ended(1, 3) == [ChannelDone(1, 1), AlignmentComplete(1, 1.0)]


# The law.

POLICIES = [ALIGNED, AT_LEAST_ONCE, UNALIGNED, UNALIGNED, PATIENT, PATIENT]
CHECKPOINTS = range(1, 6)


@st.composite
def scripts(draw: st.DrawFn, policy: BarrierPolicy) -> list[Item]:
    """What one channel brings: data, barriers in any order (some left out), markers, its end."""
    may_overtake = policy.exactly_once and policy.timeout_ms is not None
    order = draw(st.lists(st.sampled_from(CHECKPOINTS), unique=True, max_size=5))
    if draw(st.integers(0, 3)):
        order.sort()
    items: list[Item] = []
    for number, checkpoint in enumerate(order):
        items += [b"%d.%d" % (number, part) for part in range(draw(st.integers(0, 3)))]
        if draw(st.integers(0, 9)) == 9:
            items.append(CancelMarker(checkpoint))
        else:
            overtakes = may_overtake and draw(st.booleans())
            items.append(CheckpointBarrier(checkpoint, 40 * checkpoint, overtakes))
    items += [b"last.%d" % part for part in range(draw(st.integers(0, 2)))]
    return [*items, END_OF_PARTITION]


class AlignmentTwin(RuleBasedStateMachine):
    """Channels deliver at their own pace, the task reads at its own."""

    @initialize(data=st.data(), policy=st.sampled_from(POLICIES), channels=st.integers(1, 4))
    def begin(self, data: st.DataObject, policy: BarrierPolicy, channels: int) -> None:
        self.policy = policy
        self.scripts = [data.draw(scripts(policy)) for _ in range(channels)]
        self.sent = [0] * channels
        self.inputs = Inputs(channels, policy)

    def unsent(self) -> list[int]:
        return [c for c, script in enumerate(self.scripts) if self.sent[c] < len(script)]

    @rule(pick=st.integers(0, 99), burst=st.integers(1, 8))
    @precondition(lambda self: self.unsent())
    def channel_delivers(self, pick: int, burst: int) -> None:
        channel = self.unsent()[pick % len(self.unsent())]
        at = self.sent[channel]
        for item in self.scripts[channel][at : at + burst]:
            self.inputs.deliver(channel, item)
            self.sent[channel] += 1

    @rule(pick=st.integers(0, 99))
    @precondition(lambda self: self.inputs.readable())
    def task_reads(self, pick: int) -> None:
        readable = self.inputs.readable()
        self.inputs.read_one(readable[pick % len(readable)])

    @rule()
    @precondition(lambda self: self.inputs.mail)
    def task_reads_mail(self) -> None:
        self.inputs.read_mail()

    @rule(pause_ms=st.sampled_from([1, 20, 60]))
    def time_passes(self, pause_ms: int) -> None:
        self.inputs.tick(pause_ms)

    @rule(checkpoint=st.sampled_from([*CHECKPOINTS, *[0] * 10]))
    def coordinator_gives_up(self, checkpoint: int) -> None:
        self.inputs.carry_out(self.inputs.handler.given_up(checkpoint, "too slow"))

    @rule()
    @precondition(lambda self: not self.unsent())
    def coordinator_triggers(self) -> None:
        last = CheckpointBarrier(CHECKPOINTS[-1] + 1, 0)
        self.inputs.carry_out(self.inputs.handler.triggered(last, self.inputs.now_ms))

    @invariant()
    def nothing_is_out_of_place(self) -> None:
        if hasattr(self, "inputs"):
            self.inputs.check()

    @invariant()
    def snapshots_separate_before_from_after(self) -> None:
        for checkpoint, snapshot in getattr(self, "inputs", Inputs(0, ALIGNED)).completed.items():
            assert snapshot.unaligned or not snapshot.in_flight
            for channel, script in enumerate(self.scripts):
                before = before_barrier(script, checkpoint)
                held = snapshot.read[channel] + snapshot.in_flight.get(channel, [])
                if self.policy.exactly_once:
                    assert held == before
                else:
                    assert held[: len(before)] == before

    def teardown(self) -> None:
        if not hasattr(self, "inputs"):
            return
        inputs = self.inputs
        while self.unsent() or inputs.mail or inputs.readable():
            if self.unsent():
                self.channel_delivers(0, 1)
            if inputs.mail:
                inputs.read_mail()
            for channel in inputs.readable():
                if channel not in inputs.blocked:
                    inputs.read_one(channel)
            self.nothing_is_out_of_place()
            self.snapshots_separate_before_from_after()
        assert not inputs.blocked, "a channel stays blocked for ever"
        assert not any(inputs.queues)
        assert not inputs.handler._pending
        assert set(inputs.taken) <= set(inputs.completed) | set(inputs.aborted)


def before_barrier(script: list[Item], checkpoint: int) -> list[bytes]:
    """The data that belong before a checkpoint: all, if the channel has no barrier for it."""
    found: list[bytes] = []
    for item in script:
        if isinstance(item, CheckpointBarrier) and item.checkpoint == checkpoint:
            break
        if isinstance(item, bytes):
            found.append(item)
    return found


AlignmentTwin.TestCase.settings = settings(  # type: ignore[union-attr]
    max_examples=2 * settings.default.max_examples, stateful_step_count=30
)
TestAlignmentTwin = AlignmentTwin.TestCase
