"""Frames: what goes in comes out however it is cut, and nothing above the limit is kept."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import FrameMalformed, FrameTooLong
from headgate.base.ids import PeerName
from headgate.base.messages import (
    Cancel,
    Failure,
    Heartbeat,
    Hello,
    Shutdown,
    TaskChanged,
    TaskManagerFailed,
    TaskState,
    ToTaskManager,
)
from headgate.control.frames import (
    GREETING_BYTES,
    GREETINGS,
    HEAD_BYTES,
    MESSAGE_BYTES,
    REPORT_BYTES,
    TO_DRIVER,
    TO_TASK_MANAGER,
    FrameReader,
    FrameWriter,
    encode,
)

PEER = PeerName("worker")
MESSAGES: list[ToTaskManager] = [Cancel("r", "x" * 300), Heartbeat(), Shutdown("r")]


@given(st.lists(st.integers(1, 40), max_size=60))
def test_messages_come_out_as_they_went_in_however_they_are_cut(cuts: list[int]) -> None:
    stream = b"".join(map(encode, MESSAGES))
    reader = FrameReader(PEER)
    got = []
    for cut in [*cuts, len(stream)]:
        reader.received(stream[:cut])
        stream = stream[cut:]
        while (message := reader.next(TO_TASK_MANAGER)) is not None:
            got.append(message)
    assert got == MESSAGES
    assert reader.is_between_frames


def test_a_frame_above_the_limit_is_refused_by_its_length_alone() -> None:
    reader = FrameReader(PEER)
    reader.received((GREETING_BYTES + 1).to_bytes(4, "little"))
    with pytest.raises(FrameTooLong, match="worker"):
        reader.next(GREETINGS)


def test_a_greeting_that_nests_without_end_is_malformed() -> None:
    deep = b"\x82" + msgspec.msgpack.encode("type") + msgspec.msgpack.encode("Hello")
    deep += msgspec.msgpack.encode("x") + b"\x91" * 3_900 + b"\x90"
    reader = FrameReader(PEER)
    reader.received(len(deep).to_bytes(4, "little") + deep)
    with pytest.raises(FrameMalformed):
        reader.next(GREETINGS)


def test_what_a_stranger_says_is_told_in_one_short_line() -> None:
    body = msgspec.msgpack.encode({"type": "\nCRITICAL forged\x1b[31m" + "x" * 2_000})
    reader = FrameReader(PEER)
    reader.received(len(body).to_bytes(4, "little") + body)
    with pytest.raises(FrameMalformed) as raised:
        reader.next(GREETINGS)
    text = str(raised.value)
    assert text.isprintable() and len(text) < 500


def test_a_proven_peer_may_send_more() -> None:
    reader = FrameReader(PEER)
    reader.proven(b"k" * 32, REPORT_BYTES)
    message = Cancel("r", "x" * 100_000)
    reader.received(FrameWriter(b"k" * 32).encode(message))
    assert reader.next(TO_TASK_MANAGER) == message


def test_a_proven_peer_may_not_send_more_than_its_messages_can_need() -> None:
    reader = FrameReader(PEER)
    reader.proven(b"k" * 32, REPORT_BYTES)
    frame = FrameWriter(b"k" * 32).encode(Cancel("r", "x" * (REPORT_BYTES + 1)))
    reader.received(frame[:HEAD_BYTES])
    with pytest.raises(FrameTooLong, match=f"the limit is {REPORT_BYTES}"):
        reader.next(TO_DRIVER)


def test_a_report_that_the_driver_would_refuse_is_not_sent() -> None:
    text = "x" * (REPORT_BYTES + 1)
    with pytest.raises(FrameTooLong, match="TaskManagerFailed"):
        encode(TaskManagerFailed("r", 0, Failure("builtins.ValueError", text)))
    assert len(encode(Cancel("r", text))) < MESSAGE_BYTES, "to a task manager it may go"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff" * 9,
        msgspec.msgpack.encode({"type": "Nothing"}),
        msgspec.msgpack.encode({"type": "Hello", "version": 1, "job": "j", "nonce": b"short"}),
        encode(Heartbeat())[4:],
    ],
)
def test_what_is_no_greeting_is_malformed(body: bytes) -> None:
    reader = FrameReader(PEER)
    reader.received(len(body).to_bytes(4, "little") + body)
    with pytest.raises(FrameMalformed, match="worker"):
        reader.next(GREETINGS)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_typed_error(data: bytes) -> None:
    reader = FrameReader(PEER)
    reader.received(data)
    try:
        while reader.next(GREETINGS) is not None:
            pass
    except (FrameMalformed, FrameTooLong):
        pass


def test_states_and_failures_travel() -> None:
    message = TaskChanged("r", "1.0", TaskState.FAILED, None)
    reader = FrameReader(PEER)
    reader.received(encode(message) + encode(Hello(1, "j", bytes(32))))
    assert reader.next(TO_DRIVER) == message
    assert reader.next(GREETINGS) == Hello(1, "j", bytes(32))
