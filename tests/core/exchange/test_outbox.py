"""The outbox: order, water marks, release of buffers. Rows 114, 126, 133."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.core.buffers.buffer import Buffer, Lease, Segment
from headgate.core.exchange.outbox import CLOG_BYTES, MAX_PARTS, Outbox


class Home:
    """Counts what comes back."""

    def __init__(self) -> None:
        self.back: list[int] = []

    def segment_returned(self, segment: Segment) -> None:
        self.back.append(segment.index)


def leased(home: Home, segment: Segment, data: bytes) -> Buffer:
    segment.memory[: len(data)] = data
    return Buffer(segment.memory[: len(data)], Lease(segment, home))


def test_messages_clog_an_outbox_and_buffers_do_not() -> None:
    outbox = Outbox(low_bytes=5, high_bytes=8)
    for _ in range(3):
        outbox.add_buffer(b"head", Buffer(bytes(CLOG_BYTES)))
    assert not outbox.is_clogged
    outbox.add(bytes(CLOG_BYTES))
    assert outbox.is_clogged
    outbox.sent(3 * (CLOG_BYTES + 4))
    assert not outbox.is_clogged and outbox.pending_bytes == CLOG_BYTES
    outbox.add(b"x")
    assert outbox.is_clogged
    outbox.close()
    assert not outbox.is_clogged


def test_one_call_gets_no_more_parts_than_the_kernel_takes() -> None:
    outbox = Outbox(5, 8)
    for _ in range(MAX_PARTS + 1):
        outbox.add(b"x")
    assert len(outbox.gather()) == MAX_PARTS
    outbox.sent(MAX_PARTS)
    assert len(outbox.gather()) == 1


def test_more_sent_than_there_was_is_a_bug() -> None:
    outbox = Outbox(5, 8)
    outbox.add(b"x")
    with pytest.raises(AssertionError):
        outbox.sent(2)


class OutboxTwin(RuleBasedStateMachine):
    """Bytes leave in order, buffers go home when their bytes have gone, marks hold."""

    @initialize(low=st.integers(1, 10), more=st.integers(0, 10))
    def open(self, low: int, more: int) -> None:
        self.low, self.high = low, low + more
        self.outbox = Outbox(self.low, self.high)
        self.home = Home()
        self.put = b""
        self.gone = 0
        self.ends: list[int] = []  # where in the stream each buffer ends
        self.writable = True

    @rule(data=st.binary(min_size=1, max_size=9))
    def frame_is_added(self, data: bytes) -> None:
        self.outbox.add(data)
        self._grown(data)

    @rule(data=st.binary(max_size=9))
    def buffer_is_added(self, data: bytes) -> None:
        segment = Segment(len(self.ends), memoryview(bytearray(16)))
        self.outbox.add_buffer(b"hd", leased(self.home, segment, data))
        self._grown(b"hd" + data)
        self.ends.append(len(self.put) if data else 0)

    @rule(count=st.integers(1, 30))
    def socket_takes(self, count: int) -> None:
        data = b"".join(self.outbox.gather())[:count]
        assert data == self.put[self.gone : self.gone + len(data)]
        self.outbox.sent(len(data))
        self.gone += len(data)
        if len(self.put) - self.gone < self.low:
            self.writable = True

    def _grown(self, data: bytes) -> None:
        self.put += data
        if len(self.put) - self.gone > self.high:
            self.writable = False

    @invariant()
    def law_holds(self) -> None:
        assert self.outbox.pending_bytes == len(self.put) - self.gone
        assert self.outbox.writable == self.writable
        through = [number for number, end in enumerate(self.ends) if end <= self.gone]
        assert sorted(self.home.back) == through

    def teardown(self) -> None:
        if hasattr(self, "outbox"):
            self.outbox.close()
            assert sorted(self.home.back) == list(range(len(self.ends)))


TestOutboxTwin = OutboxTwin.TestCase
