"""The gate: fair, finished when all channels are, closed for good. Rows 85-90, 93, 146, 149."""

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.errors import ElementBroken, EventUnclaimed, PeerLost, TaskCancelled
from headgate.base.events import (
    END_OF_PARTITION,
    CheckpointBarrier,
    Event,
    TaskEvent,
)
from headgate.base.figures import GateFigures
from headgate.base.ids import PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.channel import UnknownChannel
from headgate.core.ingress.gate import Gate
from tests.arena import plain_pool
from tests.core.exchange.kit import Deflate
from tests.core.ingress.kit import OVERTAKING, ScriptedChannel, make_gate, plain

# Reading.


def test_waiter_is_woken_by_the_first_entry_only() -> None:
    gate, (first, second) = make_gate(2)
    woken: list[int] = []
    gate.notify = lambda: woken.append(1)
    assert not gate.available()
    first.put(b"1", b"2")
    second.put(b"3")
    assert woken == [1] and gate.available()
    while gate.poll() is not None:
        pass
    assert not gate.available()
    second.put(b"4")
    assert woken == [1, 1]


def test_error_is_raised_after_what_had_arrived() -> None:
    gate, (channel,) = make_gate(1)
    channel.put(b"1", b"2")
    channel.error = PeerLost(PeerName("p"), "gone")
    assert [plain(gate.poll()) for _ in range(2)] == [(0, b"1", True), (0, b"2", True)]
    with pytest.raises(PeerLost):
        gate.poll()


def test_broken_event_is_an_error() -> None:
    gate, (channel,) = make_gate(1)
    channel.queue.append(Buffer(b"\xff", is_event=True))
    gate.channel_ready(0)
    with pytest.raises(ElementBroken):
        gate.poll()


# Ends.


def test_finished_gate_gives_nothing_for_ever_and_says_that_asking_is_worth_it() -> None:
    gate, (channel,) = make_gate(1)
    channel.put(END_OF_PARTITION)
    gate.poll()
    channel.put(b"late")
    assert gate.poll() is None and gate.poll() is None
    assert gate.available()


def test_ended_channel_that_has_an_error_left_does_not_raise_it() -> None:
    gate, (ended, other) = make_gate(2)
    ended.put(END_OF_PARTITION)
    ended.error = PeerLost(PeerName("p"), "closed after the end")
    gate.poll()
    other.put(b"x")
    assert plain(gate.poll()) == (1, b"x", False)


def test_closed_gate_raises_and_has_released_everything() -> None:
    pool = plain_pool(4)
    gate, channels = make_gate(2, pool)
    channels[0].put(b"x")
    woken: list[int] = []
    gate.notify = lambda: woken.append(1)
    gate.close()
    gate.close()
    assert woken == [1] and gate.available()
    assert [channel.releases for channel in channels] == [1, 1]
    assert gate.pool.destroyed and pool.pools == []
    for call in (gate.poll, gate.request_partitions, lambda: gate.send_event(TaskEvent())):
        with pytest.raises(TaskCancelled, match="gate g"):
            call()  # type: ignore[operator]


def test_ready_channel_of_a_closed_gate_wakes_nobody() -> None:
    gate, (channel,) = make_gate(1)
    gate.close()
    gate.notify = lambda: pytest.fail("woken")
    gate.channel_ready(channel.index)
    gate.check()


def test_finished_gate_that_is_closed_raises_too() -> None:
    gate, (channel,) = make_gate(1)
    channel.put(END_OF_PARTITION)
    gate.poll()
    gate.close()
    with pytest.raises(TaskCancelled):
        gate.poll()


# Set up.


def test_partitions_are_requested_exactly_once() -> None:
    gate, channels = make_gate(2)
    gate.request_partitions()
    gate.request_partitions()
    assert [channel.requests for channel in channels] == [1, 1]


def test_gate_without_channels_cannot_request() -> None:
    gate = Gate("g", plain_pool(1).create_pool("gate", 0, 1), 64)
    with pytest.raises(AssertionError, match="no channels"):
        gate.request_partitions()


@pytest.mark.parametrize("indexes", [[1, 0], [0, 2], [0, 0], [1]])
def test_channels_that_do_not_match_their_places_are_a_bug(indexes: list[int]) -> None:
    gate = Gate("g", plain_pool(1).create_pool("gate", 0, 1), 64)
    with pytest.raises(AssertionError):
        gate.set_channels([ScriptedChannel(index, gate) for index in indexes])


def test_channels_are_set_once() -> None:
    gate, channels = make_gate(1)
    with pytest.raises(AssertionError, match="set before"):
        gate.set_channels(list(channels))


def unknown_gate() -> tuple[Gate, ScriptedChannel]:
    gate = Gate("g", plain_pool(1).create_pool("gate", 0, 1), 64)
    gate.set_channels([UnknownChannel(0, PartitionId("p"), 0)])
    return gate, ScriptedChannel(0, gate)


def test_unknown_channel_replaced_before_the_request_is_requested_with_the_rest() -> None:
    gate, channel = unknown_gate()
    gate.replace(channel)
    assert channel.requests == 0
    gate.request_partitions()
    assert channel.requests == 1


def test_unknown_channel_replaced_after_the_request_requests_at_once() -> None:
    gate, channel = unknown_gate()
    gate.request_partitions()
    gate.replace(channel)
    assert channel.requests == 1
    channel.put(b"x")
    assert plain(gate.poll()) == (0, b"x", False)


def test_known_channel_is_not_replaced() -> None:
    gate, (channel,) = make_gate(1)
    with pytest.raises(AssertionError, match="known already"):
        gate.replace(channel)


def test_channel_placed_after_the_end_is_released() -> None:
    gate, channel = unknown_gate()
    gate.close()
    gate.replace(channel)
    assert (channel.requests, channel.releases) == (0, 1)


# Blocked channels.


@pytest.mark.parametrize("fails_first", [True, False])
def test_error_of_a_blocked_channel_is_not_hidden(fails_first: bool) -> None:
    gate, (channel, _) = make_gate(2)
    channel.put(b"what came before")
    if fails_first:
        channel.fail(PeerLost(PeerName("w"), "gone"))
    gate.block(0)
    gate.check()
    if not fails_first:
        channel.fail(PeerLost(PeerName("w"), "gone"))
    assert gate.available()
    with pytest.raises(PeerLost, match="gone"):
        gate.poll()
    gate.check()


def test_channel_that_takes_the_place_of_a_blocked_unknown_one_is_blocked() -> None:
    gate, channel = unknown_gate()
    gate.block(0)
    gate.replace(channel)
    channel.put(b"x")
    assert channel.blocks == [True] and not gate.available()
    gate.unblock(0)
    assert plain(gate.poll()) == (0, b"x", False)


def test_ended_channel_and_closed_gate_are_not_blocked() -> None:
    gate, (channel, other) = make_gate(2)
    channel.put(END_OF_PARTITION)
    gate.poll()
    gate.block(0)
    gate.close()
    gate.block(1)
    gate.unblock(1)
    assert channel.blocks == other.blocks == []


def test_channel_that_takes_the_place_of_a_paused_unknown_one_is_paused() -> None:
    gate, channel = unknown_gate()
    gate.pause_producer(0)
    gate.replace(channel)
    assert channel.blocks == [True]
    gate.resume_producer(0)
    assert channel.blocks == [True, False]


def test_ended_channel_and_closed_gate_are_not_paused() -> None:
    gate, (channel, other) = make_gate(2)
    channel.put(END_OF_PARTITION)
    gate.poll()
    gate.pause_producer(0)
    gate.close()
    gate.pause_producer(1)
    gate.resume_producer(1)
    assert channel.blocks == other.blocks == []


# Barriers that arrive.


def test_barriers_are_announced_with_their_channel() -> None:
    gate, _ = make_gate(2)
    gate.barrier_arrived(0, OVERTAKING, is_next=False)  # nobody listens
    announced: list[tuple[int, CheckpointBarrier]] = []
    gate.on_announced = lambda channel, barrier: announced.append((channel, barrier))
    gate.barrier_arrived(1, OVERTAKING, is_next=False)
    gate.close()
    gate.barrier_arrived(1, OVERTAKING, is_next=False)
    assert announced == [(1, OVERTAKING)]


@pytest.mark.parametrize(
    ("barrier", "is_next", "first"),
    [(OVERTAKING, True, 2), (OVERTAKING, False, 0), (CheckpointBarrier(1, 0), True, 0)],
)
def test_only_a_barrier_that_has_overtaken_goes_to_the_front(
    barrier: CheckpointBarrier, is_next: bool, first: int
) -> None:
    gate, channels = make_gate(3)
    for channel in channels:
        channel.put(b"x")
    gate.barrier_arrived(2, barrier, is_next)
    gate.check()
    got = plain(gate.poll())
    assert got is not None and got[0] == first


# Events back, compression, statistics.


def test_task_event_goes_to_every_producer_that_still_sends() -> None:
    gate, (ended, sending) = make_gate(2)
    ended.put(END_OF_PARTITION)
    gate.poll()
    gate.send_event(TaskEvent())
    assert (len(ended.events), len(sending.events)) == (0, 1)


def test_task_event_waits_for_a_channel_that_has_no_place_yet() -> None:
    gate = Gate("g", plain_pool(1).create_pool("gate", 0, 1), 64)
    placed = ScriptedChannel(0, gate)
    gate.set_channels([placed, UnknownChannel(1, PartitionId("p"), 0)])
    gate.request_partitions()
    first, second = TaskEvent(), TaskEvent()
    gate.send_event(first)
    gate.send_event(second)
    assert placed.events == [first, second]
    late = ScriptedChannel(1, gate)
    gate.replace(late)
    assert late.events == [first, second]
    assert placed.events == [first, second]


def test_task_event_that_a_channel_refuses_reaches_the_others() -> None:
    gate, (refusing, taking) = make_gate(2)

    def refuse(event: TaskEvent) -> None:
        raise EventUnclaimed(PartitionId("p"), "it")

    refusing.send_event = refuse  # type: ignore[method-assign]
    with pytest.raises(EventUnclaimed):
        gate.send_event(TaskEvent())
    assert len(taking.events) == 1


def compressed_gate(codec: Deflate | None) -> tuple[Gate, list[int]]:
    released: list[int] = []

    class Counted(Buffer):
        def release(self) -> None:
            released.append(1)

    gate = Gate("g", plain_pool(1).create_pool("gate", 0, 1), 64, codec)
    channel = ScriptedChannel(0, gate)
    gate.set_channels([channel])
    data = Deflate().compress(b"expanded")
    channel.queue.append(Counted((8).to_bytes(4, "little") + data, compressed=True))
    gate.channel_ready(0)
    return gate, released


def test_compressed_buffer_is_expanded_and_let_go() -> None:
    gate, released = compressed_gate(Deflate())
    assert plain(gate.poll()) == (0, b"expanded", False)
    assert released == [1]


def test_compressed_buffer_on_a_side_without_compression_names_the_setting() -> None:
    gate, released = compressed_gate(None)
    with pytest.raises(ElementBroken, match="exchange.compression"):
        gate.poll()
    assert released == [1]


def test_statistics_add_up_all_channels() -> None:
    gate, channels = make_gate(3)
    channels[0].put(b"x")
    channels[1].put(END_OF_PARTITION)
    gate.poll()
    gate.poll()
    channels[2].put(b"1", b"2")
    moment = gate.statistics()
    assert (moment.bytes_in, moment.buffers_in) == (30, 6)
    lease = gate.pool.try_request()
    assert lease is not None
    assert gate.statistics().figures == GateFigures(
        channels=3,
        queued_buffers=2,
        queued_bytes=21,
        backlog=9,
        credit=3,
        exclusive_in_use=3,
        exclusive_total=6,
        floating_in_use=1,
        pool_size=4,
    )
    lease.release()


class GateTwin(RuleBasedStateMachine):
    """Fairness, order within a channel, the queue law, ends, and no lost wake-up."""

    @initialize(count=st.integers(1, 5))
    def open(self, count: int) -> None:
        self.gate, self.channels = make_gate(count)
        self.put: list[deque[bytes | Event]] = [deque() for _ in range(count)]
        self.over = [False] * count  # has the end been put in
        self.blocked = [False] * count
        self.paused = [False] * count
        self.waited = [0] * count  # polls since it became ready
        self.number = 0
        self.asleep = True
        self.gate.notify = self._wake

    def _wake(self) -> None:
        self.asleep = False

    def _pick(self, data: st.DataObject) -> int | None:
        able = [index for index, over in enumerate(self.over) if not over]
        return data.draw(st.sampled_from(able)) if able else None

    @rule(data=st.data(), count=st.integers(1, 3))
    def data_arrives(self, data: st.DataObject, count: int) -> None:
        index = self._pick(data)
        if index is None:
            return
        items: list[bytes | Event] = []
        for _ in range(count):
            self.number += 1
            items.append(b"%d" % self.number)
        if data.draw(st.integers(0, 4)) == 0:
            items.append(CheckpointBarrier(self.number, 0))
        self.put[index].extend(items)
        self.channels[index].put(*items)

    @rule(data=st.data())
    def end_arrives(self, data: st.DataObject) -> None:
        index = self._pick(data)
        if index is not None:
            self.over[index] = True
            self.put[index].append(END_OF_PARTITION)
            self.channels[index].put(END_OF_PARTITION)

    @rule(index=st.integers(0, 4), blocks=st.booleans())
    def channel_is_blocked_or_unblocked(self, index: int, blocks: bool) -> None:
        if index >= len(self.channels) or self.channels[index].releases:
            return
        self.blocked[index] = blocks
        self.waited[index] = 0
        (self.gate.block if blocks else self.gate.unblock)(index)

    @rule(index=st.integers(0, 4), pauses=st.booleans())
    def producer_is_paused_or_resumed(self, index: int, pauses: bool) -> None:
        if index >= len(self.channels) or self.channels[index].releases:
            return
        self.paused[index] = pauses
        (self.gate.pause_producer if pauses else self.gate.resume_producer)(index)

    @rule(index=st.integers(0, 4))
    def channel_is_ready_for_nothing(self, index: int) -> None:
        if index < len(self.channels):
            self.gate.channel_ready(index)

    @rule()
    def task_polls(self) -> None:
        got = plain(self.gate.poll())
        if got is None:
            assert not any(self._readable())
            self.asleep = True
            return
        index, content, more = got
        assert not self.blocked[index]
        assert content == self.put[index].popleft()
        if any(self._readable()):
            assert more
        for other, waits in enumerate(self._readable()):
            self.waited[other] = self.waited[other] + 1 if waits and other != index else 0
            assert self.waited[other] < len(self.channels), "a ready channel starves"

    def _readable(self) -> list[bool]:
        return [
            bool(queue) and not blocked
            for queue, blocked in zip(self.put, self.blocked, strict=True)
        ]

    @precondition(lambda self: hasattr(self, "gate"))
    @invariant()
    def law_holds(self) -> None:
        self.gate.check()
        ended = [over and not queue for over, queue in zip(self.over, self.put, strict=True)]
        assert self.gate.finished == all(ended)
        assert [bool(channel.releases) for channel in self.channels] == ended
        for index, channel in enumerate(self.channels):
            stops = self.blocked[index] or self.paused[index]
            assert channel.releases or stops == (channel.blocks[-1:] == [True])
        if any(self._readable()):
            assert self.gate.available() and not self.asleep, "a wake-up was lost"


TestGateTwin = GateTwin.TestCase


def test_figures_of_channels_tell_which_are_blocked_ended_or_without_a_place() -> None:
    gate = Gate("g", plain_pool(4).create_pool("gate", 0, 4), 64)
    channels = [ScriptedChannel(index, gate) for index in range(3)]
    gate.set_channels([*channels, UnknownChannel(3, PartitionId("later"), 0)])
    channels[0].put(END_OF_PARTITION)
    gate.poll()
    gate.block(1)
    rows = gate.channel_figures(2, ["0.0", "0.1", "0.2", "0.3"], range(4))
    assert [(row.gate, row.channel, row.producer) for row in rows] == [
        (2, index, f"0.{index}") for index in range(4)
    ]
    assert [row.has_ended for row in rows] == [True, False, False, False]
    assert [row.blocked for row in rows] == [False, True, False, False]
    assert [row.is_placed for row in rows] == [True, True, True, False]
    assert {row.credit for row in rows} == {-1}
    assert gate.channel_figures(2, ["", "", "x"], range(2, 3))[0].producer == "x"
