"""The landing row: head, segment, head, segment, …, head. Rows 115, 130 (no copy on arrival)."""

from headgate.core.buffers.buffer import Lease, Segment
from headgate.core.exchange.decoder import (
    CONTROL_BYTES,
    GREETING_BYTES,
    HEAD_BYTES,
    ControlLanding,
    Landing,
)
from tests.arena import plain_pool, plain_segments


class Nobody:
    def segment_returned(self, segment: Segment) -> None:
        raise AssertionError("nothing goes home here")


def test_row_without_segments_is_one_head() -> None:
    assert [len(part) for part in Landing(64).row()] == [HEAD_BYTES]


def test_row_grows_with_every_segment_of_the_claim() -> None:
    pool, landing = plain_pool(3), Landing(64)
    pool.claim("a connection", landing, 3)
    assert [len(part) for part in landing.row()] == [32, 64, 32, 64, 32, 64, 32]
    pool.unclaim(landing, landing.surrender())
    assert len(pool.free) == 3 and pool.claimed == 0


def test_row_is_a_copy_that_the_reader_may_change() -> None:
    landing = Landing(64)
    landing.row().clear()
    assert len(landing.row()) == 1


def test_exchange_swaps_segments_and_keeps_their_number() -> None:
    mine, promised = plain_segments(2)
    landing, lease = Landing(64), Lease(promised, Nobody())
    landing.segment_returned(mine)
    landing.swap(0, lease)
    assert lease.segment is mine
    assert landing.segments == [promised]
    assert landing.row()[1] is promised.memory


def test_segment_that_comes_late_stands_behind_the_others() -> None:
    first, late = plain_segments(2)
    landing = Landing(64)
    landing.segment_returned(first)
    before = landing.row()
    landing.segment_returned(late)
    assert [part is known for part, known in zip(landing.row(), before, strict=False)] == [True] * 3


def test_surrender_leaves_an_empty_row() -> None:
    segments = plain_segments(2)
    landing = Landing(64)
    for segment in segments:
        landing.segment_returned(segment)
    assert landing.surrender() == segments
    assert landing.surrender() == []
    assert [len(part) for part in landing.row()] == [HEAD_BYTES]


def test_control_landing_has_no_segments() -> None:
    landing = ControlLanding()
    assert [len(part) for part in landing.row()] == [HEAD_BYTES, GREETING_BYTES]
    landing.widen()
    assert [len(part) for part in landing.row()] == [HEAD_BYTES, CONTROL_BYTES]
    assert landing.segments == []
