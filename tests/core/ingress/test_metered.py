"""The metered gate counts and changes nothing. Row 92."""

import pytest

from headgate.base.errors import ElementBroken, TaskCancelled
from headgate.base.events import END_OF_PARTITION, TaskEvent
from headgate.core.ingress.metered import MeteredGate
from headgate.core.ingress.union import UnionGate
from tests.core.ingress.test_gate import OVERTAKING, FakeChannel, make_gate, plain


def make_metered() -> tuple[MeteredGate, FakeChannel]:
    gate, (channel,) = make_gate(1)
    return MeteredGate(gate), channel


def test_bytes_buffers_and_events_are_counted_as_they_pass() -> None:
    metered, channel = make_metered()
    channel.put(b"123", b"45", END_OF_PARTITION)
    assert (metered.bytes_in, metered.buffers_in, metered.events_in) == (0, 0, 0)
    assert plain(metered.poll()) == (0, b"123", True)
    assert (metered.bytes_in, metered.buffers_in, metered.events_in) == (3, 1, 0)
    metered.poll()
    metered.poll()
    assert (metered.bytes_in, metered.buffers_in, metered.events_in) == (5, 2, 1)
    assert metered.poll() is None
    assert metered.buffers_in == 2


def test_metered_gate_behaves_as_the_gate_inside() -> None:
    metered, channel = make_metered()
    woken: list[int] = []
    metered.notify = lambda: woken.append(1)
    assert not metered.available() and metered.channel_count == 1
    channel.put(END_OF_PARTITION)
    assert woken == [1] and metered.available()
    metered.notify()
    assert woken == [1, 1]
    metered.send_event(TaskEvent())
    assert len(channel.events) == 1
    metered.poll()
    assert metered.finished
    metered.close()
    with pytest.raises(TaskCancelled):
        metered.poll()


def test_metered_gates_can_be_united() -> None:
    (first, a), (second, b) = make_metered(), make_metered()
    union = UnionGate([first, second])
    a.put(b"1")
    b.put(b"23")
    while union.poll() is not None:
        pass
    assert (first.bytes_in, second.bytes_in) == (1, 2)


def test_metered_gate_hands_on_what_checkpoints_need() -> None:
    inner, (channel,) = make_gate(1)
    gate = MeteredGate(inner)
    channel.put(b"x")
    gate.block(0)
    assert channel.blocks == [True] and not gate.available()
    assert [bytes(one.view) for one in gate.queued(0)] == [b"x"]
    gate.unblock(0)
    assert channel.blocks == [True, False]
    gate.hold(0)
    gate.let_go(0)
    assert channel.blocks == [True, False] * 2
    heard: list[int] = []
    gate.on_announced = lambda channel, barrier: heard.append(channel)
    gate.on_arrived = lambda channel, buffer: heard.append(channel)
    assert gate.on_arrived is inner.on_arrived and gate.on_announced is inner.on_announced
    inner.barrier_arrived(0, OVERTAKING, is_next=True)
    assert heard == [0]
    with pytest.raises(ElementBroken, match="compression"):
        gate.expand(b"packed")
