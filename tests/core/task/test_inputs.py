"""The network input: elements of each channel in order, one a call. Row 155-158, 162, 165."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    Bundle,
    LatencyMarker,
    PickleSerializer,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import ElementBroken
from headgate.base.events import CancelMarker, CheckpointBarrier, EndOfSuperstep
from headgate.base.fields import RecordFields, Same
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.egress.router import Forward
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import AGAIN, ENDED, NOTHING, NetworkInput, TimeAdvanced
from tests.core.pair import Pair, assert_credit_law, remote, write
from tests.core.task.kit import Lab, take_all

BARRIER = CheckpointBarrier(7, 1234)


def after_an_event(source: NetworkInput) -> object:
    """The end of a channel is taken out of the stream before it changes anything."""
    assert source.take(9) is AGAIN
    return source.take(9)


sendings = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 999), min_size=1, max_size=9)),
    max_size=15,
)


@given(sendings, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_records_of_each_channel_come_in_order_whatever_the_limit(
    sent: list[tuple[int, list[int]]], limits: list[int], timed: bool
) -> None:
    with Lab(400) as lab:
        writers = [lab.writer(f"p{index}") for index in range(3)]
        source = lab.open_input("p0", "p1", "p2")
        got: list[list[Any]] = [[], [], []]
        for channel, records in sent:
            tagged = [(channel, record) for record in records]
            writers[channel].emit_all(tagged, list(records) if timed else None)
        for writer in writers:
            writer.finish()
        turn = 0
        while (taken := source.take(limits[turn % len(limits)])) is not ENDED:
            assert taken is not NOTHING
            if isinstance(taken, Bundle):
                assert len(taken.records) <= limits[turn % len(limits)]
                times = taken.timestamps or [None] * len(taken.records)
                for (channel, record), time in zip(taken.records, times, strict=True):
                    got[channel].append((record, time))
            turn += 1
        for index in range(3):
            assert got[index] == [
                (record, record if timed else None)
                for channel, records in sent
                if channel == index
                for record in records
            ]
        assert source.records_in == sum(len(records) for _, records in sent)
        assert source.ended
        source.close()


def test_without_data_there_is_nothing_and_with_the_end_it_has_ended() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        assert source.take(9) is NOTHING
        assert not source.available()
        assert not source.ended
        writer.emit_all([1])
        assert lab.woken > 0
        assert source.available()
        assert source.take(9) == Bundle([1])
        writer.finish()
        assert after_an_event(source) is ENDED
        assert source.ended
        source.close()


def test_the_rest_of_a_bundle_counts_as_available() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.emit_all([1, 2, 3])
        assert source.take(2) == Bundle([1, 2])
        assert source.available()
        assert source.take(2) == Bundle([3])
        assert not source.available()
        source.close()


def test_watermarks_go_through_the_valve_and_markers_past_it() -> None:
    marker = LatencyMarker(1, 2, 3)
    with Lab() as lab:
        writers = [lab.writer("a"), lab.writer("b")]
        source = lab.open_input("a", "b")
        writers[0].emit_element(Watermark(10))
        assert take_all(source) == [TimeAdvanced([])]
        writers[1].emit_element(Watermark(4))
        writers[1].emit_element(marker)
        assert take_all(source) == [TimeAdvanced([Watermark(4)]), marker]
        assert source.watermark_ms == 4
        writers[1].emit_element(StreamStatus(active=False))
        assert take_all(source) == [TimeAdvanced([Watermark(10)])]
        source.close()


def test_a_channel_that_has_ended_is_not_waited_for() -> None:
    with Lab() as lab:
        writers = [lab.writer("a"), lab.writer("b")]
        source = lab.open_input("a", "b")
        writers[0].emit_element(Watermark(10))
        writers[1].finish()
        assert take_all(source) == [TimeAdvanced([]), AGAIN, TimeAdvanced([Watermark(10)])]
        writers[0].finish()
        assert after_an_event(source) is ENDED
        source.close()


def test_a_barrier_is_taken_out_of_the_stream_and_returns_at_once() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        seen: list[Any] = []
        source.on_barrier = lambda channel, event: seen.append((channel, event))
        writer.emit_all([1])
        writer.broadcast_event(BARRIER)
        writer.broadcast_event(CancelMarker(8))
        writer.emit_all([2])
        assert source.take(9) == Bundle([1])
        assert seen == []
        assert source.take(9) is AGAIN
        assert seen == [(0, BARRIER)]
        assert source.take(9) is AGAIN
        assert seen[1:] == [(0, CancelMarker(8))]
        assert source.take(9) == Bundle([2])
        source.close()


def test_a_barrier_that_nobody_expects_is_an_error() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.broadcast_event(BARRIER)
        with pytest.raises(ElementBroken, match="takes no checkpoints"):
            source.take(9)
        source.close()


def test_other_events_are_passed_over() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.broadcast_event(EndOfSuperstep())
        writer.emit_all([1])
        assert source.take(9) == Bundle([1])
        source.close()


def test_an_end_in_the_middle_of_an_element_is_an_error() -> None:
    with Lab() as lab:
        partition = lab.partition("p")
        source = lab.open_input("p")
        write(partition, (20).to_bytes(4, "little") + b"\1half")
        partition.finish()
        with pytest.raises(ElementBroken, match="channel 0 has ended in the middle"):
            source.take(9)
        source.close()


def test_two_gates_of_one_input_are_read_as_one() -> None:
    with Lab() as lab:
        writers = [lab.writer(name) for name in "abc"]
        gates = [lab.gate("a"), lab.gate("b", "c")]
        source = lab.input(1, *gates)
        for gate in gates:
            gate.request_partitions()
        for index, writer in enumerate(writers):
            writer.emit_all([index])
            writer.finish()
        found = [element.records[0] for element in take_all(source) if isinstance(element, Bundle)]
        assert sorted(found) == [0, 1, 2]
        assert source.ended
        source.close()


def test_closing_in_the_middle_of_a_buffer_gives_everything_back() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        for _ in range(4):
            writer.emit_all([1, 2, 3])
        assert source.take(1) == Bundle([1])
        source.close()
        source.close()


# What is on its way.


def encoded(*bundles: Bundle) -> bytes:
    return b"".join(bundle_bytes(bundle, PickleSerializer()) for bundle in bundles)


def test_the_end_of_a_channel_is_told_before_anything_else_learns_of_it() -> None:
    with Lab() as lab:
        writers = [lab.writer(name) for name in ("p", "q")]
        source = lab.open_input("p", "q")
        ended: list[tuple[int, bool]] = []
        source.on_channel_ended = lambda channel: ended.append((channel, source.ended))
        writers[1].finish()
        assert source.take(9) is AGAIN
        assert ended == [(1, False)]
        assert source.available(), "its time is still to end"
        assert isinstance(source.take(9), TimeAdvanced)
        writers[0].finish()
        assert after_an_event(source) is ENDED
        assert ended == [(1, False), (0, False)]
        source.close()


def test_the_rest_of_a_bundle_is_unread_in_its_channel_only() -> None:
    with Lab() as lab:
        writers = [lab.writer(name) for name in ("p", "q")]
        source = lab.open_input("p", "q")
        writers[0].emit_all([1, 2, 3], [7, None, 9])
        writers[1].emit_all([4])
        assert source.take(1) == Bundle([1], [7])
        for _ in range(2):
            assert source.unread(0) == encoded(Bundle([2, 3], [None, 9]))
            assert source.unread(1) == b""
        assert source.take(9) == Bundle([2, 3], [None, 9])
        assert source.unread(0) == b""
        source.close()


def test_restored_input_comes_before_what_the_gate_brings() -> None:
    with Lab() as lab:
        writers = [lab.writer(name) for name in ("p", "q")]
        source = lab.open_input("p", "q")
        whole = encoded(Bundle([1]), Bundle([2]), Bundle(["later"]))
        begun, rest = whole[:-3], whole[-3:]
        source.restore(1, [begun[:5], begun[5:]])
        source.restore_reassigned(0, iter([Bundle(["reassigned"]), Bundle([])]))
        assert source.available()
        write(writers[1].partition, rest)
        writers[0].emit(0)
        for writer in writers:
            writer.finish()
        assert source.take(9) == Bundle(["reassigned"])
        assert [source.take(9) for _ in range(2)] == [Bundle([1]), Bundle([2])]
        rest_of_it = [element for element in take_all(source) if isinstance(element, Bundle)]
        assert sorted(str(bundle.records) for bundle in rest_of_it) == ["['later']", "[0]"]
        assert source.ended
        source.close()


def test_restored_input_that_was_not_read_belongs_to_the_next_checkpoint() -> None:
    with Lab() as lab:
        lab.writer("p")
        source = lab.open_input("p")
        parts = [encoded(Bundle([1, 2]))[:-2], encoded(Bundle([1, 2]))[-2:] + encoded(Bundle([3]))]
        source.restore(0, parts)
        source.restore_reassigned(0, [Bundle([8, 9])])
        every = encoded(Bundle([8, 9]), Bundle([1, 2]), Bundle([3]))
        assert source.unread(0) == every
        assert source.take(1) == Bundle([8])
        assert source.unread(0) == encoded(Bundle([9]), Bundle([1, 2]), Bundle([3]))
        assert source.take(1) == Bundle([9])
        assert source.take(1) == Bundle([1])
        assert source.unread(0) == encoded(Bundle([2]), Bundle([3]))
        assert source.serializer_of(0).dumps([1]) == PickleSerializer().dumps([1])
        source.close()
        assert not source.available() or source.gate.closed


def test_bundles_that_follow_in_a_buffer_are_read_together_up_to_the_limit() -> None:
    timed, apart = Bundle([8], [1]), Bundle.of_fields(RecordFields([["a"], Same(1)], 1))
    elements = [*(Bundle([number]) for number in range(5)), timed, timed, apart, apart.copy()]
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.finish()
        source.restore(0, [encoded(*elements[:3], Bundle([9, 9]), *elements[3:])])
        assert source.take(4) == Bundle([0, 1, 2, 9])
        assert source.take(2) == Bundle([9]), "the rest of what was read"
        assert source.take(1) == Bundle([3])
        assert source.take(9) == Bundle([4]), "the next one has times"
        assert source.take(9) == Bundle([8, 8], [1, 1])
        together = source.take(9)
        assert isinstance(together, Bundle) and together.fields is not None
        assert together == Bundle([("a", 1), ("a", 1)])
        assert after_an_event(source) is ENDED
        source.close()


def test_a_gate_that_has_ended_does_not_end_the_input_while_restored_data_remain() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.finish()
        source.restore(0, [encoded(Bundle([1]), Bundle([2]))])
        assert [source.take(1) for _ in range(2)] == [Bundle([1]), Bundle([2])]
        assert not source.ended
        assert after_an_event(source) is ENDED
        source.close()


def test_restored_data_that_stay_in_the_middle_of_an_element_are_an_error_at_the_end() -> None:
    with Lab() as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        source.restore(0, [encoded(Bundle([1]))[:-1]])
        writer.finish()
        with pytest.raises(ElementBroken, match="middle of an element"):
            source.take(9)
        source.close()


def restored_pair(pair: Pair, left: tuple[bytes, bytes]) -> tuple[RecordWriter, NetworkInput]:
    """A producer and its consumer elsewhere, with what an earlier run has ``left`` at each."""
    writer = RecordWriter(pair.partition(), Forward(), timeout_ms=0)
    writer.restore(0, [left[0]])
    gate = pair.gate()
    source = NetworkInput(0, gate, pair.consumer.create_deserializers(gate))
    source.on_barrier = lambda channel, event: None
    source.restore(0, [left[1]])
    gate.request_partitions()
    pair.settle()
    return writer, source


def gate_of(source: NetworkInput) -> Gate:
    assert isinstance(source.gate, Gate)
    return source.gate


def test_a_producer_elsewhere_sends_only_barriers_beside_restored_input() -> None:
    with Pair() as pair:
        writer, source = restored_pair(pair, (b"", encoded(Bundle([1]), Bundle([2]))))
        announced: list[CheckpointBarrier] = []
        source.gate.on_announced = lambda channel, barrier: announced.append(barrier)
        writer.emit_all(["new"])
        pair.settle()
        assert source.take(1) == Bundle([1]) and source.gate.queued(0) == ()
        overtaking = CheckpointBarrier(1, 0, unaligned=True)
        assert writer.overtake(overtaking) == {0: [encoded(Bundle(["new"]))]}
        pair.settle()
        assert announced == [overtaking]
        assert_credit_law(pair.wire, remote(gate_of(source)))
        assert take_all(source) == [Bundle([2]), AGAIN]
        pair.settle()
        assert_credit_law(pair.wire, remote(gate_of(source)))
        assert take_all(source) == [Bundle(["new"])]
        writer.close()
        source.close()


def test_what_is_on_its_way_does_not_grow_from_restart_to_restart() -> None:
    """A job that fails before it has read anything, again and again."""
    left, sizes, sent = (b"", b""), [], 0
    for attempt in range(8):
        with Pair() as pair:
            writer, source = restored_pair(pair, left)
            while writer.available():
                writer.emit(sent)
                sent += 1
                pair.settle()
            (overtaken,) = writer.overtake(CheckpointBarrier(attempt, 0, unaligned=True)).values()
            queued = b"".join(bytes(buffer.view) for buffer in source.gate.queued(0))
            left = b"".join(overtaken), source.unread(0) + queued
            sizes.append(sum(map(len, left)))
            writer.close()
            source.close()
    assert sizes[0] > 0 and sizes == sizes[:1] * 8
    with Pair() as pair:
        writer, source = restored_pair(pair, left)
        got: list[Any] = []
        while len(got) < sent:
            got += [record for bundle in take_all(source) for record in bundle.records]
            pair.settle()
        assert got == list(range(sent)) and writer.available()
        writer.close()
        source.close()
