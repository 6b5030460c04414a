"""The base of all operators: what is no record is forwarded. Row 16, 163, 166, 167."""

import pytest

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.operator import Operator
from tests.core.chain.kit import open_operator


def test_watermarks_statuses_and_markers_are_forwarded_in_order() -> None:
    operator = Operator()
    output = open_operator(operator)
    marker = LatencyMarker(5, 1, 0)
    operator.watermark_advanced(Watermark(3))
    operator.marker_received(marker)
    operator.status_changed(StreamStatus(active=False))
    assert output.elements == [Watermark(3), marker, StreamStatus(active=False)]
    assert output.watermark_ms == 3


def test_an_operator_without_a_way_to_process_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Operator().process(Bundle([1]), 0)


def test_by_default_any_input_is_read_next() -> None:
    assert Operator().selection() is None


def test_the_end_may_come_before_the_beginning() -> None:
    operator = Operator()
    operator.close()
    operator.close()
