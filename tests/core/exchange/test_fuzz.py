"""Random and damaged bytes against whole links. Rows 115, 123, 130, 132.

Whatever comes, a link goes on or ends with a typed error of its peer; it never takes more memory
than its limits, and afterwards every segment is at home.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import HeadgateError, PeerBrokeProtocol, PeerReported
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, TaskEvent, encode_event
from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import FlowControl
from headgate.core.exchange.decoder import CONTROL_BYTES
from headgate.core.exchange.frames import (
    AddCredit,
    Alive,
    Backlog,
    CancelReceiver,
    Close,
    ErrorReport,
    PartitionRequest,
    TaskEventRequest,
    encode,
    encode_buffer_head,
)
from headgate.core.exchange.link import Link
from tests.core.pair import PARTITION, SMALL, Pair, read_all, scatter, with_settings

LONGEST = 32 * 1024
"""No message of these settings is longer: the largest is an error with its text."""

EXAMPLES = settings(max_examples=2 * settings.default.max_examples)  # type: ignore[union-attr]

channels = st.sampled_from([0, 0, 1, 1, 2, 2**64 - 1]).map(ChannelId)
small = st.integers(0, 5)


@st.composite
def down_frames(draw: st.DrawFn) -> list[bytes]:
    """What a producer may send, mostly right: sequences count up for channels 0 and 1."""
    sequences = {0: 0, 1: 0}
    frames = []
    for _ in range(draw(st.integers(1, 10))):
        channel = draw(channels)
        sequence = sequences.get(channel, 0)
        event = draw(st.sampled_from([END_OF_PARTITION, CheckpointBarrier(1, 2)]))
        kind = draw(st.sampled_from(["data", "data", "event", "backlog", "error", "alive"]))
        if kind in ("data", "event"):
            size = draw(st.sampled_from([0, 1, 31, 63, 64]))
            payload = encode_event(event) if kind == "event" else bytes(range(size))
            flags = 1 if kind == "event" else draw(st.sampled_from([0, 0, 0, 2]))
            frames.append(encode_buffer_head(channel, sequence, draw(small), flags, len(payload)))
            frames.append(payload)
            sequences[channel] = sequence + 1
        elif kind == "backlog":
            frames.append(encode(Backlog(channel, draw(st.integers(0, 2**32 - 1)))))
        elif kind == "error":
            receiver = draw(st.sampled_from([channel, channel, None]))
            frames.append(encode(ErrorReport(receiver, draw(st.integers(0, 7)), PARTITION, "x")))
        else:
            frames.append(encode(Alive()))
    return frames


class Knock(TaskEvent):
    """An event that the producer of the partition wants."""

    def __init__(self, *values: object) -> None:
        self.values = values


task_events = st.builds(Knock, small, st.text(max_size=2)).map(encode_event)
up_frames = st.lists(
    st.one_of(
        st.builds(
            PartitionRequest,
            channels,
            small,
            small,
            st.sampled_from([PARTITION, PartitionId("other")]),
        ),
        st.builds(
            AddCredit,
            st.lists(st.tuples(channels, st.integers(0, 2**32 - 1)), min_size=1, max_size=3).map(
                tuple
            ),
        ),
        st.builds(CancelReceiver, channels),
        st.builds(
            TaskEventRequest, channels, st.just(PARTITION), task_events | st.binary(max_size=9)
        ),
        st.sampled_from([Alive(), Close(), ErrorReport(None, 1, PARTITION, "x")]),
    ).map(encode),
    min_size=1,
    max_size=10,
)


@st.composite
def damaged(draw: st.DrawFn, frames: st.SearchStrategy[list[bytes]]) -> bytes:
    """A valid stream with some bits flipped, parts cut out or doubled, bytes put in."""
    stream = bytearray(b"".join(draw(frames)))
    for _ in range(draw(st.integers(0, 3))):
        if not stream:
            break
        at = draw(st.integers(0, len(stream) - 1))
        size = draw(st.integers(1, 40))
        damage = draw(st.sampled_from(["flip", "flip", "cut", "double", "insert"]))
        if damage == "flip":
            stream[at] ^= 1 << draw(st.integers(0, 7))
        elif damage == "cut":
            del stream[at : at + size]
        elif damage == "double":
            stream[at:at] = stream[at : at + size]
        else:
            stream[at:at] = draw(st.binary(min_size=1, max_size=40))
    return bytes(stream)


cuts = st.lists(st.integers(1, 150), min_size=1, max_size=6)


def feed(link: Link, stream: bytes, sizes: list[int]) -> None:
    """Deliver in pieces until the link has ended, or waits for a buffer; check its memory."""
    turn = 0
    while stream and link.is_alive:
        count = scatter(link, stream[: sizes[turn % len(sizes)]])
        if not count:
            assert link.decoder.paused
            return
        link.received(count, 0.0)
        stream, turn = stream[count:], turn + 1
        assert sum(map(len, link.targets())) <= CONTROL_BYTES + LONGEST
        assert sum(map(len, link.decoder._stash)) <= CONTROL_BYTES
        assert link.outbox.pending_bytes <= CONTROL_BYTES


def assert_typed(link: Link) -> None:
    """The link goes on, or ended with a typed error; then the stream ends, maybe in a frame."""
    if link.error is not None:
        assert isinstance(link.error, PeerBrokeProtocol | PeerReported), repr(link.error)
    link.ended("the stream is over")


def read_through(pair: Pair) -> None:
    """A task reads what came; it may meet any typed error, and gives every buffer back."""
    for gate in list(pair.consumer._gates):
        for _ in range(20):
            try:
                read_all(gate)
            except HeadgateError:
                continue
            break


@EXAMPLES
@given(damaged(down_frames()), cuts, st.booleans())
def test_consumers_link_survives_a_damaged_stream(
    stream: bytes, sizes: list[int], credit: bool
) -> None:
    flow = FlowControl.CREDIT if credit else FlowControl.TCP
    with Pair(with_settings(flow_control=flow, floating_per_gate=2)) as pair:
        _, gate = pair.open(2)
        feed(pair.wire.consumer, stream, sizes)
        assert_typed(pair.wire.consumer)
        gate.check()
        read_through(pair)


@EXAMPLES
@given(damaged(up_frames), cuts)
def test_producers_link_survives_a_damaged_stream(stream: bytes, sizes: list[int]) -> None:
    with Pair() as pair:
        partition, _ = pair.open(3)
        pair.producer.events.subscribe(PARTITION, Knock, lambda event: None)
        partition.broadcast_event(CheckpointBarrier(1, 2))
        feed(pair.wire.producer, stream, sizes)
        pair.wire.producer.outgoing()
        pair.wire.producer.session.check()
        assert_typed(pair.wire.producer)


@EXAMPLES
@given(st.binary(max_size=200) | damaged(down_frames()) | damaged(up_frames), cuts, st.booleans())
def test_link_that_is_still_greeting_survives_anything(
    stream: bytes, sizes: list[int], at_consumer: bool
) -> None:
    with Pair() as pair:
        pair.gate(2).request_partitions()
        wire = pair.wire
        link: Link = wire.consumer if at_consumer else wire.producer
        feed(link, stream, sizes)
        assert not link.is_open
        assert_typed(link)
        read_through(pair)


@EXAMPLES
@given(st.sampled_from(["hello", "challenge", "proof"]), st.integers(0, 999), st.integers(0, 7))
def test_handshake_with_one_wrong_bit_never_opens_a_link(which: str, at: int, bit: int) -> None:
    with Pair() as pair:
        pair.gate(1).request_partitions()
        wire = pair.wire
        pipe = wire.up
        wire.up.take()
        if which != "hello":
            pipe = wire.down
            wire.up.deliver()
            wire.down.take()
        if which == "proof":
            pipe = wire.up
            wire.down.deliver()
            wire.up.take()
        pipe.stream[pipe.delivered + at % pipe.under_way] ^= 1 << bit
        wire.settle()
        assert not wire.consumer.is_open and not wire.producer.is_open
        read_through(pair)


def test_longest_frame_of_these_settings_is_within_the_bound() -> None:
    assert SMALL.max_event_bytes + 2048 < LONGEST and SMALL.segment_bytes < LONGEST
