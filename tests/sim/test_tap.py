"""The tap sees the frames in a pipe, however they were cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.ids import ChannelId, PartitionId
from headgate.core.exchange.frames import (
    FLAG_EVENT,
    AddCredit,
    Alive,
    CancelReceiver,
    Kind,
    PartitionRequest,
    encode,
    encode_buffer_head,
)
from tests.sim.tap import Tap

FRAMES = [
    encode(PartitionRequest(ChannelId(7), 3, 0, PartitionId("p"))),
    encode(Alive()),
    encode(AddCredit(((ChannelId(7), 2), (ChannelId(9), 1)))),
    encode_buffer_head(ChannelId(7), 0, 0, 0, 5) + b"hello",
    encode_buffer_head(ChannelId(7), 1, 0, FLAG_EVENT, 1) + b"e",
    encode(CancelReceiver(ChannelId(7))),
    encode_buffer_head(ChannelId(9), 0, 0, 0, 2) + b"ho",
]
SEEN = [
    (Kind.PARTITION_REQUEST, 7, 3),
    (Kind.ADD_CREDIT, 7, 2),
    (Kind.ADD_CREDIT, 9, 1),
    (Kind.BUFFER, 7, 0),
    (Kind.BUFFER, 9, 0),
]
STREAM = b"".join(FRAMES)


def kinds_and_numbers(tap_frames) -> list[tuple[Kind, int, int]]:
    return [(seen.kind, seen.receiver, seen.credit) for seen in tap_frames]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_cuts_make_no_difference(cuts: list[int]) -> None:
    tap = Tap()
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        tap.feed(STREAM[start:end])
    assert kinds_and_numbers(tap.frames) == SEEN


@given(at=st.integers(0, len(STREAM)))
def test_a_look_ahead_goes_on_where_the_pipe_ends_and_is_not_remembered(at: int) -> None:
    tap = Tap()
    tap.feed(STREAM[:at])
    before = kinds_and_numbers(tap.frames)
    assert kinds_and_numbers(tap.peek([STREAM[at:]])) == SEEN
    assert kinds_and_numbers(tap.frames) == before


def test_a_frame_is_on_the_way_until_its_last_byte_is_read() -> None:
    tap = Tap()
    tap.feed(STREAM)
    tap.forget(len(FRAMES[0]) - 1)
    assert kinds_and_numbers(tap.frames) == SEEN
    tap.forget(len(FRAMES[0]))
    assert kinds_and_numbers(tap.frames) == SEEN[1:]
    tap.forget(len(STREAM))
    assert not tap.frames
