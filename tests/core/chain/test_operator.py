"""The operator contract: what is no record is forwarded, every output takes the same calls.

Row 2, 3, 4, 13, 16, 163, 166, 167.
"""

import pytest

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.outputs import (
    BroadcastingOutput,
    BundleCopyingBroadcastingOutput,
    ChainedOutput,
    CountingOutput,
    RecordCopyingOutput,
)
from tests.core.chain.kit import KeptOutput, open_operator


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


OUTPUTS = {
    "chained": lambda: ChainedOutput(_forwarding(), "next"),
    "copying": lambda: RecordCopyingOutput(_forwarding(), "next"),
    "counting": lambda: CountingOutput(KeptOutput()),
    "to none": lambda: BroadcastingOutput([]),
    "to two": lambda: BundleCopyingBroadcastingOutput([KeptOutput(), KeptOutput()]),
}


class Forwarding(Operator):
    """Sends on what it gets."""

    def process(self, bundle: Bundle, number: int) -> None:
        self.output.collect(bundle)


def _forwarding() -> Operator:
    operator = Forwarding()
    operator.set_up(KeptOutput())
    return operator


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_takes_all_kinds_of_elements_and_tells_its_watermark(make: object) -> None:
    output: Output = make()  # type: ignore[operator]
    assert output.watermark_ms == MIN_WATERMARK_MS
    output.collect(Bundle([1, 2]))
    output.collect_side("late", Bundle([3]))
    output.emit_status(StreamStatus(active=True))
    output.emit_marker(LatencyMarker(1, 2, 3))
    output.emit_watermark(Watermark(17))
    assert output.watermark_ms == 17
