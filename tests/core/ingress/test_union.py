"""The union gate: several gates as one. Row 91."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.errors import TaskCancelled
from headgate.base.events import END_OF_PARTITION, TaskEvent
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.gate import UnionGate
from tests.core.ingress.kit import OVERTAKING, ScriptedChannel, make_gate, plain


def make_union(*counts: int) -> tuple[UnionGate, list[list[ScriptedChannel]]]:
    made = [make_gate(count) for count in counts]
    return UnionGate([gate for gate, _ in made]), [channels for _, channels in made]


def test_gates_take_turns_whatever_their_number_of_channels() -> None:
    union, (many, single) = make_union(3, 1)
    for channel in many:
        channel.put(b"m", b"m")
    single[0].put(b"o", b"o")
    order = [plain(union.poll())[1] for _ in range(5)]  # type: ignore[index]
    assert order == [b"m", b"o", b"m", b"o", b"m"]


def test_gate_that_had_data_before_the_union_is_not_forgotten() -> None:
    (gate, (channel,)), (other, _) = make_gate(1), make_gate(1)
    channel.put(b"early")
    union = UnionGate([gate, other])
    assert union.available()
    assert plain(union.poll()) == (0, b"early", False)


def test_waiter_is_woken_by_the_first_entry_only() -> None:
    union, (first, second) = make_union(1, 1)
    woken: list[int] = []
    union.notify = lambda: woken.append(1)
    first[0].put(b"1")
    second[0].put(b"2")
    assert woken == [1]
    while union.poll() is not None:
        pass
    assert not union.available()
    second[0].put(b"3")
    assert woken == [1, 1]


def test_gate_stands_in_the_queue_once_however_often_it_notifies() -> None:
    union, (first, second) = make_union(1, 1)
    first[0].put(b"1", b"3")
    first[0].gate.notify()
    second[0].put(b"2")
    order = [plain(union.poll()) for _ in range(3)]
    assert order == [(0, b"1", True), (1, b"2", True), (0, b"3", False)]


def test_gate_that_gives_nothing_is_skipped() -> None:
    union, (first, second) = make_union(1, 1)
    first[0].gate.channel_ready(0)
    second[0].put(b"x")
    assert plain(union.poll()) == (1, b"x", False)


def test_task_event_goes_to_the_producers_of_all_gates() -> None:
    union, (first, second) = make_union(2, 1)
    union.send_event(TaskEvent())
    assert [len(channel.events) for channel in (*first, *second)] == [1, 1, 1]


def test_closed_union_closes_its_gates_and_raises_for_ever() -> None:
    union, (first, second) = make_union(1, 1)
    woken: list[int] = []
    union.notify = lambda: woken.append(1)
    union.close()
    union.close()
    assert woken == [1] and union.available()
    assert first[0].releases == second[0].releases == 1
    for _ in range(3):
        with pytest.raises(TaskCancelled):
            union.poll()


def test_channels_are_blocked_and_looked_into_by_their_number_in_the_union() -> None:
    union, (first, second) = make_union(2, 2)
    for channels in (first, second):
        channels[1].put(b"x")
    union.block(3)
    assert second[1].blocks == [True] and first[1].blocks == []
    assert [bytes(buffer.view) for buffer in union.queued(3)] == [b"x"]
    got = plain(union.poll())
    assert got is not None and got[:2] == (1, b"x")
    assert union.poll() is None and not union.available()
    union.unblock(3)
    assert union.available() and plain(union.poll()) == (3, b"x", False)
    union.pause_producer(2)
    union.resume_producer(2)
    assert second[0].blocks == [True, False] and first[0].blocks == []


def test_arrivals_and_announcements_carry_the_number_in_the_union() -> None:
    gates = [make_gate(2)[0], make_gate(1)[0]]
    union = UnionGate(list(gates))
    assert union.on_arrived is None and gates[1].on_arrived is None
    heard: list[tuple[str, int]] = []
    gates[0].barrier_arrived(0, OVERTAKING, is_next=True)  # nobody listens
    union.on_announced = lambda channel, barrier: heard.append(("announced", channel))
    union.on_arrived = lambda channel, buffer: heard.append(("arrived", channel))
    gates[1].barrier_arrived(0, OVERTAKING, is_next=True)
    assert gates[1].on_arrived is not None
    gates[1].on_arrived(0, Buffer(b"x"))
    assert heard == [("announced", 2), ("arrived", 2)]
    union.on_arrived = None
    assert gates[0].on_arrived is gates[1].on_arrived is None


def test_gate_with_a_barrier_that_has_overtaken_is_read_first() -> None:
    (first, (a,)), (other, (b,)) = make_gate(1), make_gate(1)
    union = UnionGate([first, other])
    a.put(b"a")
    b.put(OVERTAKING)
    other.barrier_arrived(0, OVERTAKING, is_next=True)
    assert [plain(union.poll()) for _ in range(2)] == [(1, OVERTAKING, True), (0, b"a", False)]


def test_union_needs_two_gates() -> None:
    with pytest.raises(AssertionError, match="at least two"):
        UnionGate([make_gate(1)[0]])


class UnionTwin(RuleBasedStateMachine):
    """What goes into any channel comes out with its number, in order; no wake-up is lost."""

    @initialize(counts=st.lists(st.integers(1, 3), min_size=2, max_size=3))
    def open(self, counts: list[int]) -> None:
        self.union, gates = make_union(*counts)
        self.channels = [channel for channels in gates for channel in channels]
        self.put: list[list[object]] = [[] for _ in self.channels]
        self.over = [False] * len(self.channels)
        self.blocked = [False] * len(self.channels)
        self.asleep = True
        self.union.notify = self._wake
        self.number = 0

    def _wake(self) -> None:
        self.asleep = False

    @rule(channel=st.integers(0, 8), ends=st.booleans())
    def something_arrives(self, channel: int, ends: bool) -> None:
        channel %= len(self.channels)
        if self.over[channel]:
            return
        self.number += 1
        item = END_OF_PARTITION if ends and self.number % 3 == 0 else b"%d" % self.number
        self.over[channel] = item == END_OF_PARTITION
        self.put[channel].append(item)
        self.channels[channel].put(item)  # type: ignore[arg-type]

    @rule(channel=st.integers(0, 8), blocks=st.booleans())
    def channel_is_blocked_or_unblocked(self, channel: int, blocks: bool) -> None:
        channel %= len(self.channels)
        if not self.channels[channel].releases:
            self.blocked[channel] = blocks
            (self.union.block if blocks else self.union.unblock)(channel)

    def _readable(self) -> bool:
        return any(
            queue and not blocked for queue, blocked in zip(self.put, self.blocked, strict=True)
        )

    @rule()
    def task_polls(self) -> None:
        got = plain(self.union.poll())
        if got is None:
            assert not self._readable()
            self.asleep = True
        else:
            assert not self.blocked[got[0]]
            assert got[1] == self.put[got[0]].pop(0)

    @precondition(lambda self: hasattr(self, "union"))
    @invariant()
    def law_holds(self) -> None:
        if self._readable():
            assert self.union.available() and not self.asleep
        assert self.union.finished == (all(self.over) and not any(self.put))


TestUnionTwin = UnionTwin.TestCase
