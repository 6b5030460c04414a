"""Seals: a frame opens once, in its place, in its direction, on its connection, and unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import FrameForged, FrameTooLong
from headgate.base.ids import PeerName
from headgate.base.messages import Cancel, Challenge, Heartbeat, Shutdown, ToTaskManager
from headgate.control.frames import (
    HEAD_BYTES,
    MESSAGE_BYTES,
    SEALED_BYTES,
    TO_TASK_MANAGER,
    FrameReader,
    FrameWriter,
    Seal,
    SealKeys,
    driver_keys,
    worker_keys,
)
from headgate.control.proof import DriverProof, WorkerProof

PEER = PeerName("driver")
SECRET = b"s" * 32
AGREED = b" headgate control 3 3 job" + b"1" * 32 + b"2" * 32
MESSAGES: list[ToTaskManager] = [Cancel("r", "x" * 300), Heartbeat(), Shutdown("r"), Heartbeat()]


def reader_of(keys: SealKeys) -> FrameReader:
    reader = FrameReader(PEER)
    reader.proven(keys.receiving, MESSAGE_BYTES)
    return reader


def sealed() -> list[bytes]:
    writer = FrameWriter(driver_keys(SECRET, AGREED).sending)
    return [writer.encode(message) for message in MESSAGES]


def read_all(reader: FrameReader) -> list[ToTaskManager]:
    got = []
    while (message := reader.next(TO_TASK_MANAGER)) is not None:
        got.append(message)
    return got


def opened(stream: bytes, keys: SealKeys | None = None) -> list[ToTaskManager]:
    reader = reader_of(keys or worker_keys(SECRET, AGREED))
    reader.received(stream)
    return read_all(reader)


@given(st.lists(st.integers(1, 90), max_size=40))
def test_what_the_other_side_has_sealed_opens_however_it_is_cut(cuts: list[int]) -> None:
    stream, reader, got = b"".join(sealed()), reader_of(worker_keys(SECRET, AGREED)), []
    for cut in [*cuts, len(stream)]:
        reader.received(stream[:cut])
        stream = stream[cut:]
        got += read_all(reader)
    assert got == MESSAGES


@given(st.data())
def test_a_flipped_bit_is_found_wherever_it_is(data: st.DataObject) -> None:
    stream = bytearray(b"".join(sealed()))
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    stream[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameForged, match="driver"):
        opened(bytes(stream))


@given(st.permutations(range(4)), st.integers(0, 4))
def test_only_a_beginning_of_the_whole_opens(order: list[int], count: int) -> None:
    """Left out, repeated or in another order: nothing behind the first difference is delivered."""
    frames, chosen = sealed(), [*order[:count], *order[:2]]
    same = next((i for i, place in enumerate(chosen) if i != place), len(chosen))
    reader = reader_of(worker_keys(SECRET, AGREED))
    reader.received(b"".join(frames[place] for place in chosen))
    for place in range(same):
        assert reader.next(TO_TASK_MANAGER) == MESSAGES[place]
    if same < len(chosen):
        with pytest.raises(FrameForged) as caught:
            reader.next(TO_TASK_MANAGER)
        assert caught.value.number == same


def test_an_earlier_body_of_the_same_length_does_not_open_behind_a_later_head() -> None:
    frames = sealed()
    earlier, later = frames[1], frames[3]
    assert MESSAGES[1] == MESSAGES[3] and len(earlier) == len(later)
    reader = reader_of(worker_keys(SECRET, AGREED))
    reader.received(b"".join(frames[:3]) + later[:HEAD_BYTES] + earlier[HEAD_BYTES:])
    for message in MESSAGES[:3]:
        assert reader.next(TO_TASK_MANAGER) == message
    with pytest.raises(FrameForged):
        reader.next(TO_TASK_MANAGER)


def test_a_false_length_is_found_before_anybody_waits_for_the_body() -> None:
    frame = bytearray(sealed()[0])
    frame[3] ^= 0x40  # a gigabyte
    with pytest.raises(FrameForged):
        opened(bytes(frame[:SEALED_BYTES]))


def test_a_frame_does_not_open_in_the_other_direction() -> None:
    with pytest.raises(FrameForged):
        opened(sealed()[0], driver_keys(SECRET, AGREED))


def test_a_frame_does_not_open_on_another_connection_or_for_another_job() -> None:
    for keys in (worker_keys(SECRET, AGREED[:-1] + b"3"), worker_keys(b"x" * 32, AGREED)):
        with pytest.raises(FrameForged):
            opened(sealed()[0], keys)


def test_a_greeting_after_the_proof_is_no_message() -> None:
    with pytest.raises(FrameForged):
        opened(b"\x01\x00\x00\x00\xc0" + bytes(SEALED_BYTES))


def test_what_a_proven_peer_announces_beyond_the_limit_is_refused() -> None:
    head = Seal(driver_keys(SECRET, AGREED).sending)._head_code(MESSAGE_BYTES + 1)
    with pytest.raises(FrameTooLong):
        opened((MESSAGE_BYTES + 1).to_bytes(4, "little") + head)


def test_long_and_short_bodies_are_sealed_alike() -> None:
    """The two ways to compute a code agree at the length where one takes over."""
    for length in (0, 1, 64 * 1024, 64 * 1024 + 1, 200_000):
        body = bytes(length)
        sending, receiving = Seal(b"k" * 32), Seal(b"k" * 32)
        front = sending.make(body)
        assert receiving.fits_head(front)
        assert receiving.opens(front[20:], memoryview(body))


def test_both_sides_of_a_handshake_have_the_same_keys_and_nobody_else() -> None:
    def keys(nonce: bytes) -> tuple[SealKeys, SealKeys]:
        here = DriverProof({"job": SECRET}.get, nonce, PEER)
        there = WorkerProof("job", SECRET, b"1" * 32, PEER)
        challenge = here.received(there.first_word())
        assert isinstance(challenge, Challenge)
        proof = there.received(challenge)
        assert proof is not None
        there.received(here.received(proof))
        return here.keys, there.keys

    here, there = keys(b"2" * 32)
    assert here == SealKeys(there.receiving, there.sending)
    other, _ = keys(b"3" * 32)
    assert len({here.sending, here.receiving, other.sending, other.receiving, SECRET}) == 5
    assert "sending" not in repr(here)


def test_keys_are_not_there_before_the_end_of_the_handshake() -> None:
    with pytest.raises(AssertionError):
        _ = WorkerProof("job", SECRET, b"1" * 32, PEER).keys
    with pytest.raises(AssertionError):
        _ = DriverProof({"job": SECRET}.get, b"2" * 32, PEER).keys
