"""Frames round trip and match their fixed vectors. Rows 115-122."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import FrameMalformed
from headgate.base.ids import MAX_PARTITION_ID_BYTES, ChannelId, PartitionId, PeerName
from headgate.core.exchange.frames import (
    BODY_LIMITS,
    BUFFER_HEAD,
    BUFFER_HEAD_REST,
    MAGIC,
    MAX_GRANTS,
    MAX_TEXT_BYTES,
    PREFIX,
    TASK_EVENT_OVERHEAD,
    VERSION,
    AddCredit,
    Alive,
    Backlog,
    BufferSize,
    CancelReceiver,
    Close,
    ErrorReport,
    Kind,
    LinkChallenge,
    LinkHello,
    LinkProof,
    LinkWelcome,
    Message,
    PartitionRequest,
    TaskEventRequest,
    decode,
    encode,
    encode_buffer_head,
)
from tests.core.exchange.vectors import BUFFER_VECTORS, VECTORS

PEER = PeerName("peer:1")

receivers = st.integers(0, 2**64 - 1).map(ChannelId)
counts = st.integers(0, 2**32 - 1)
names = st.text(max_size=40).map(PartitionId)

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(LinkHello, st.integers(0, 255), counts, st.binary(min_size=16, max_size=16)),
    st.builds(
        LinkChallenge, st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32)
    ),
    st.builds(LinkProof, st.binary(min_size=32, max_size=32)),
    st.just(LinkWelcome()),
    st.builds(PartitionRequest, receivers, counts, counts, names),
    st.builds(AddCredit, st.lists(st.tuples(receivers, counts), max_size=5).map(tuple)),
    st.builds(CancelReceiver, receivers),
    st.just(Close()),
    st.builds(TaskEventRequest, receivers, names, st.binary(max_size=50)),
    st.builds(ErrorReport, st.none() | receivers, st.integers(0, 255), names, st.text(max_size=50)),
    st.builds(Backlog, receivers, counts),
    st.builds(BufferSize, receivers, counts),
    st.just(Alive()),
)


def parse(frame: bytes) -> Message:
    length, magic, version, kind = PREFIX.unpack_from(frame)
    assert (magic, version, length) == (MAGIC, VERSION, len(frame) - PREFIX.size)
    return decode(Kind(kind), memoryview(frame)[PREFIX.size :], PEER)


@pytest.mark.parametrize(("message", "frame"), VECTORS)
def test_message_looks_as_its_vector_says(message: Message, frame: str) -> None:
    assert encode(message).hex() == frame
    assert parse(bytes.fromhex(frame)) == message


@pytest.mark.parametrize(("head", "payload", "frame"), BUFFER_VECTORS)
def test_buffer_looks_as_its_vector_says(
    head: tuple[int, int, int, int], payload: bytes, frame: str
) -> None:
    receiver, sequence, backlog, flags = head
    front = encode_buffer_head(ChannelId(receiver), sequence, backlog, flags, len(payload))
    assert (front + payload).hex() == frame
    assert BUFFER_HEAD.unpack_from(bytes.fromhex(frame))[4:] == head


def test_every_message_has_a_vector() -> None:
    shown = {bytes.fromhex(frame)[7] for _, frame in VECTORS}
    shown |= {bytes.fromhex(frame)[7] for _, _, frame in BUFFER_VECTORS}
    assert shown == {int(kind) for kind in Kind}


@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert parse(encode(message)) == message


@given(messages)
def test_no_message_is_longer_than_its_limit(message: Message) -> None:
    frame = encode(message)
    kind = Kind(frame[7])
    limit = BODY_LIMITS.get(kind, TASK_EVENT_OVERHEAD + 50)
    assert len(frame) - PREFIX.size <= limit


def test_longest_messages_fit_their_limits() -> None:
    name, text = PartitionId("n" * MAX_PARTITION_ID_BYTES), "t" * MAX_TEXT_BYTES
    longest: list[Message] = [
        PartitionRequest(ChannelId(1), 1, 1, name),
        ErrorReport(ChannelId(1), 1, name, text),
        AddCredit(((ChannelId(1), 1),) * MAX_GRANTS),
    ]
    for message in longest:
        frame = encode(message)
        assert len(frame) - PREFIX.size == BODY_LIMITS[Kind(frame[7])]
        assert parse(frame) == message


def test_overlong_error_text_is_cut_and_still_readable() -> None:
    cut = parse(encode(ErrorReport(None, 1, PartitionId(""), "ü" * MAX_TEXT_BYTES)))
    assert isinstance(cut, ErrorReport)
    assert cut.text == "ü" * (MAX_TEXT_BYTES // 2)


def test_buffer_head_is_32_bytes_so_that_payloads_land_aligned() -> None:
    assert BUFFER_HEAD.size == 32
    assert BUFFER_HEAD_REST == 24


@pytest.mark.parametrize("message", [message for message, _ in VECTORS])
def test_body_cut_short_is_malformed(message: Message) -> None:
    frame = encode(message)
    kind, body = Kind(frame[7]), frame[PREFIX.size :]
    for size in range(len(body)):
        if kind is Kind.ADD_CREDIT and size and size % 12 == 0:
            continue  # fewer grants are well formed
        if kind is Kind.TASK_EVENT and size >= 17:
            continue  # so are shorter events
        with pytest.raises(FrameMalformed, match=kind.name) as caught:
            decode(kind, memoryview(body)[:size], PEER)
        assert caught.value.peer == PEER


@pytest.mark.parametrize("message", [message for message, _ in VECTORS])
def test_body_with_a_byte_too_many_is_malformed(message: Message) -> None:
    frame = encode(message)
    kind = Kind(frame[7])
    if kind is not Kind.TASK_EVENT:  # its event is the rest
        with pytest.raises(FrameMalformed):
            decode(kind, memoryview(frame[PREFIX.size :] + b"\0"), PEER)


def test_buffer_is_no_message_of_its_own() -> None:
    with pytest.raises(FrameMalformed):
        decode(Kind.BUFFER, memoryview(bytes(24)), PEER)


@given(st.sampled_from(Kind), st.binary(max_size=80))
def test_any_bytes_are_a_message_or_malformed(kind: Kind, body: bytes) -> None:
    try:
        message = decode(kind, memoryview(body), PEER)
    except FrameMalformed:
        return
    assert decode(kind, memoryview(encode(message))[PREFIX.size :], PEER) == message
