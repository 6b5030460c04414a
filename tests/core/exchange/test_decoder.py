"""The decoder: the same deliveries wherever the stream was cut. Rows 115, 121, 130, 135."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import (
    FrameMalformed,
    FrameTooLong,
    FrameTruncated,
    HeadgateError,
    UnknownMessage,
    WrongVersion,
)
from headgate.base.ids import ChannelId, PeerName
from headgate.core.buffers.buffer import Buffer, Lease, Segment
from headgate.core.exchange.decoder import Decoder, Landing, NoLease
from headgate.core.exchange.frames import (
    MAGIC,
    PREFIX,
    VERSION,
    AddCredit,
    Alive,
    CancelReceiver,
    Kind,
    encode,
    encode_buffer_head,
)
from tests.arena import plain_segments

PEER = PeerName("peer:1")
SEGMENT = 64
LIMIT = 100
EVENT, COMPRESSED = 1, 2
WANTED, UNWANTED = ChannelId(1), ChannelId(2)


@dataclass
class Recorder:
    """A sink with a shelf of segments; buffers stay out until `consume`."""

    segments: int = 4
    pauses: bool = False
    shelf: deque[Segment] = field(init=False)
    deliveries: list[object] = field(default_factory=list)
    kept: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shelf = deque(plain_segments(self.segments, SEGMENT))

    def limit(self, kind: Kind) -> int:
        return LIMIT + 24 if kind is Kind.BUFFER else LIMIT

    def frame_received(self, kind: Kind, body: memoryview) -> None:
        self.deliveries.append((kind, bytes(body)))

    def buffer_announced(self, receiver: ChannelId, size: int, is_event: bool) -> Lease | NoLease:
        if receiver == UNWANTED:
            return NoLease.SKIP
        if is_event:
            return NoLease.UNPOOLED
        if self.shelf:
            return Lease(self.shelf.popleft(), self)
        assert self.pauses, "the test wrote more buffers than there are segments"
        return NoLease.LATER

    def buffer_received(
        self, receiver: ChannelId, sequence: int, backlog: int, buffer: Buffer
    ) -> None:
        self.kept.append(buffer)
        self.deliveries.append((receiver, sequence, backlog, buffer))

    def segment_returned(self, segment: Segment) -> None:
        segment.memory[:] = b"\xee" * SEGMENT  # whoever gets it next writes to it
        self.shelf.append(segment)

    def delivered(self) -> list[object]:
        """What came, as plain values: views are read as late as possible, to see overwriting."""
        return [
            (*delivery[:3], bytes(delivery[3].view), delivery[3].is_event, delivery[3].compressed)
            if isinstance(delivery, tuple) and len(delivery) == 4
            else delivery
            for delivery in self.deliveries
        ]

    def settle(self) -> None:
        """Put plain values in the place of buffers, then give all segments back."""
        self.deliveries = self.delivered()
        kept, self.kept = self.kept, []
        for buffer in kept:
            buffer.release()


def make_decoder(sink: Recorder, landing_segments: int) -> Decoder:
    landing = Landing(SEGMENT)
    for segment in plain_segments(landing_segments, SEGMENT):
        landing.segment_returned(segment)
    decoder = Decoder(sink, landing, PEER)
    decoder.allow_buffers(sink, LIMIT + 24)
    return decoder


def read(decoder: Decoder, data: bytes) -> int:
    """One scattered read of at most these bytes."""
    at = 0
    for target in decoder.targets():
        part = data[at : at + len(target)]
        target[: len(part)] = part
        at += len(part)
        if at == len(data):
            break
    if at:
        decoder.received(at)
    return at


def read_all(decoder: Decoder, data: bytes) -> None:
    while data:
        count = read(decoder, data)
        assert count, "the decoder does not read on"
        data = data[count:]


def data_frame(
    sequence: int, payload: bytes, flags: int = 0, receiver: ChannelId = WANTED, backlog: int = 3
) -> bytes:
    return encode_buffer_head(receiver, sequence, backlog, flags, len(payload)) + payload


def fill(number: int, size: int) -> bytes:
    return bytes((number * 37 + i) % 256 for i in range(size))


FULL = [data_frame(i, fill(i, SEGMENT)) for i in range(4)]
MIXED = [
    data_frame(0, fill(0, SEGMENT)),
    encode(Alive()),
    data_frame(1, fill(1, 10)),
    data_frame(2, b""),
    data_frame(3, b"\x01", EVENT),
    data_frame(0, fill(9, 50), receiver=UNWANTED),
    data_frame(4, fill(4, SEGMENT), COMPRESSED),
    encode(AddCredit(((ChannelId(5), 6),))),
    data_frame(1, fill(9, LIMIT), EVENT, receiver=UNWANTED),
    data_frame(5, fill(5, SEGMENT - 1)),
    data_frame(6, fill(6, LIMIT), EVENT),
    encode(CancelReceiver(ChannelId(9))),
]


def expected(frames: list[bytes]) -> list[object]:
    sink = Recorder()
    decoder = make_decoder(sink, 0)
    for frame in frames:
        read_all(decoder, frame)
    sink.settle()
    return sink.deliveries


@pytest.mark.parametrize("landing", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("frames", [FULL, MIXED], ids=["full", "mixed"])
def test_stream_cut_at_any_byte_gives_the_same_deliveries(
    frames: list[bytes], landing: int
) -> None:
    stream, wanted = b"".join(frames), expected(frames)
    for cut in range(1, len(stream)):
        sink = Recorder()
        decoder = make_decoder(sink, landing)
        read_all(decoder, stream[:cut])
        read_all(decoder, stream[cut:])
        sink.settle()
        assert sink.deliveries == wanted, f"cut at {cut}"
        decoder.ended()


@pytest.mark.parametrize("landing", [0, 1, 2, 9])
@pytest.mark.parametrize("step", [1, 2, 7, 31, 32, 33, 63, 64, 95, 96, 97, 10_000])
@pytest.mark.parametrize("frames", [FULL, MIXED], ids=["full", "mixed"])
def test_stream_in_equal_pieces_gives_the_same_deliveries(
    frames: list[bytes], step: int, landing: int
) -> None:
    stream, sink = b"".join(frames), Recorder()
    decoder = make_decoder(sink, landing)
    for at in range(0, len(stream), step):
        read_all(decoder, stream[at : at + step])
    sink.settle()
    assert sink.deliveries == expected(frames)
    assert len(decoder.landing.segments) == landing and len(sink.shelf) == 4


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    frames = []
    for sequence in range(draw(st.integers(1, 8))):
        size = draw(st.sampled_from([0, 1, 31, 32, SEGMENT - 1, SEGMENT]))
        flags = draw(st.sampled_from([0, 0, 0, EVENT, COMPRESSED])) if size else 0
        receiver = draw(st.sampled_from([WANTED, WANTED, UNWANTED]))
        frame = data_frame(sequence, fill(sequence, size), flags, receiver)
        frames.append(draw(st.sampled_from([frame, frame, frame, encode(Alive())])))
    return frames


@given(streams(), st.lists(st.integers(1, 250), min_size=1), st.integers(0, 4), st.integers(1, 3))
def test_pausing_and_resuming_gives_the_same_deliveries(
    frames: list[bytes], cuts: list[int], landing: int, segments: int
) -> None:
    plenty = Recorder(segments=9)
    read_all(make_decoder(plenty, 0), b"".join(frames))
    sink = Recorder(segments, pauses=True)
    decoder = make_decoder(sink, landing)
    stream, at, turn = b"".join(frames), 0, 0
    while at < len(stream) or decoder.paused:
        if decoder.paused:
            assert decoder.targets() == []
            sink.settle()
            decoder.resume()
        else:
            at += read(decoder, stream[at : at + cuts[turn % len(cuts)]])
            turn += 1
    sink.settle()
    assert sink.deliveries == plenty.delivered()
    assert len(sink.shelf) == segments
    assert len(decoder.landing.segments) == landing
    held = [*sink.shelf, *decoder.landing.segments]
    assert len(set(held)) == len(held)


def test_resume_without_room_stays_paused_and_loses_nothing() -> None:
    sink = Recorder(1, pauses=True)
    decoder = make_decoder(sink, 2)
    read(decoder, b"".join(FULL[:2]))
    assert decoder.paused
    decoder.resume()
    assert decoder.paused
    sink.settle()
    decoder.resume()
    assert not decoder.paused
    sink.settle()
    assert sink.deliveries == expected(FULL[:2])


def test_bytes_that_wait_outlive_the_segment_they_were_read_into() -> None:
    """A short payload leaves with its segment, in which the next frames lie, and is consumed."""
    sink = Recorder(1, pauses=True)
    decoder = make_decoder(sink, 2)
    frames = [data_frame(number, fill(number, 3)) for number in range(3)]
    read(decoder, b"".join(frames))
    for _ in frames[1:]:
        assert decoder.paused
        sink.settle()
        decoder.resume()
    assert not decoder.paused
    sink.settle()
    assert sink.deliveries == expected(frames)


def test_resume_of_a_decoder_that_reads_does_nothing() -> None:
    sink = Recorder()
    decoder = make_decoder(sink, 1)
    read(decoder, FULL[0][:50])
    decoder.resume()
    read(decoder, FULL[0][50:])
    sink.settle()
    assert sink.deliveries == expected(FULL[:1])


def test_full_payload_is_not_copied_but_changes_places() -> None:
    sink = Recorder()
    decoder = make_decoder(sink, 2)
    landed = list(decoder.landing.segments)
    promised = list(sink.shelf)[:2]
    read(decoder, b"".join(FULL[:2]))
    assert [buffer.lease and buffer.lease.segment for buffer in sink.kept] == landed
    assert decoder.landing.segments == promised


def test_payload_that_is_cut_stays_in_the_segment_where_it_began() -> None:
    sink = Recorder()
    decoder = make_decoder(sink, 1)
    (landed,) = decoder.landing.segments
    read(decoder, FULL[0][:40])
    read(decoder, FULL[0][40:])
    (buffer,) = sink.kept
    assert buffer.lease is not None and buffer.lease.segment is landed
    assert bytes(buffer.view) == fill(0, SEGMENT)


def test_events_take_no_segment() -> None:
    sink = Recorder(segments=0)
    read_all(make_decoder(sink, 1), data_frame(0, b"\x01", EVENT))
    assert sink.delivered() == [(WANTED, 0, 3, b"\x01", True, False)]
    assert sink.kept[0].lease is None


def test_close_gives_a_half_received_buffer_back() -> None:
    sink = Recorder()
    decoder = make_decoder(sink, 1)
    read(decoder, FULL[0][:40])
    assert len(sink.shelf) == 3
    decoder.close()
    assert len(sink.shelf) == 4
    assert sink.deliveries == []


def test_close_ends_a_pause() -> None:
    sink = Recorder(0, pauses=True)
    decoder = make_decoder(sink, 1)
    read(decoder, FULL[0])
    assert decoder.paused
    decoder.close()
    decoder.resume()
    assert not decoder.paused and sink.deliveries == []


@pytest.mark.parametrize(
    "frame", [FULL[0], encode(CancelReceiver(ChannelId(9)))], ids=["buffer", "cancel"]
)
def test_end_in_the_middle_of_a_frame_is_truncation(frame: bytes) -> None:
    for cut in range(1, len(frame)):
        decoder = make_decoder(Recorder(), 1)
        read_all(decoder, frame[:cut])
        with pytest.raises(FrameTruncated) as caught:
            decoder.ended()
        assert caught.value.peer == PEER


def test_end_while_paused_is_truncation() -> None:
    decoder = make_decoder(Recorder(0, pauses=True), 1)
    read(decoder, FULL[0])
    with pytest.raises(FrameTruncated):
        decoder.ended()


def test_end_between_frames_is_an_end() -> None:
    decoder = make_decoder(Recorder(), 1)
    decoder.ended()
    read_all(decoder, FULL[0] + encode(Alive()))
    decoder.ended()


def prefix(length: int = 0, magic: int = MAGIC, version: int = VERSION, kind: int = 48) -> bytes:
    return PREFIX.pack(length, magic, version, kind) + bytes(min(length, 200))


WRONG: list[tuple[bytes, type[HeadgateError], dict[str, object]]] = [
    (prefix(magic=0x5448), FrameMalformed, {}),
    (prefix(magic=0x5448, kind=32, length=40), FrameMalformed, {}),
    (prefix(version=VERSION + 1), WrongVersion, {"theirs": VERSION + 1, "ours": VERSION}),
    (prefix(version=0, kind=32, length=40), WrongVersion, {"theirs": 0}),
    (prefix(kind=0), UnknownMessage, {}),
    (prefix(kind=255), UnknownMessage, {}),
    (prefix(LIMIT + 1), FrameTooLong, {"length": LIMIT + 1, "limit": LIMIT}),
    (prefix(2**32 - 1), FrameTooLong, {"length": 2**32 - 1}),
    (prefix(LIMIT + 25, kind=32), FrameTooLong, {"length": LIMIT + 25, "limit": LIMIT + 24}),
    (prefix(23, kind=32) + bytes(9), FrameMalformed, {}),
    (data_frame(0, bytes(SEGMENT + 1)), FrameTooLong, {"length": SEGMENT + 1, "limit": SEGMENT}),
    (data_frame(0, b"x", flags=EVENT | COMPRESSED), FrameMalformed, {}),
    (data_frame(0, b"", flags=EVENT), FrameMalformed, {}),
    (data_frame(0, b"", flags=COMPRESSED), FrameMalformed, {}),
    (data_frame(0, b"x", flags=4), FrameMalformed, {}),
    (data_frame(0, b"x", flags=255), FrameMalformed, {}),
]


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize("landing", [0, 2])
@pytest.mark.parametrize(("stream", "error", "facts"), WRONG)
def test_wrong_bytes_end_in_the_error_that_names_them(
    stream: bytes, error: type[HeadgateError], facts: dict[str, object], landing: int, step: int
) -> None:
    decoder = make_decoder(Recorder(), landing)

    def feed() -> None:
        for at in range(0, len(stream), step):
            read_all(decoder, stream[at : at + step])

    with pytest.raises(error) as caught:
        feed()
    assert caught.value.peer == PEER  # type: ignore[attr-defined]
    assert {name: getattr(caught.value, name) for name in facts} == facts


def test_frame_of_the_longest_size_is_accepted() -> None:
    sink = Recorder()
    read_all(make_decoder(sink, 1), prefix(LIMIT) + data_frame(0, bytes(LIMIT), EVENT))
    assert len(sink.deliveries) == 2


def test_overlong_frame_is_refused_before_memory_is_taken_for_it() -> None:
    decoder = make_decoder(Recorder(), 1)
    with pytest.raises(FrameTooLong):
        read(decoder, PREFIX.pack(2**32 - 1, MAGIC, VERSION, Kind.ALIVE))
    assert sum(map(len, decoder.targets())) < 1000
