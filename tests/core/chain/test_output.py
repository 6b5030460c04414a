"""Every output takes the same calls. Row 2, 3, 4, 13."""

import pytest

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.fanout import BroadcastingOutput, CopyingBroadcastingOutput
from headgate.core.chain.operator import Operator
from headgate.core.chain.output import Output
from headgate.core.chain.outputs import ChainedOutput, CopyingChainedOutput, CountingOutput
from tests.core.chain.kit import KeptOutput

OUTPUTS = {
    "chained": lambda: ChainedOutput(_forwarding(), "next"),
    "copying": lambda: CopyingChainedOutput(_forwarding(), "next"),
    "counting": lambda: CountingOutput(KeptOutput()),
    "to none": lambda: BroadcastingOutput([]),
    "to two": lambda: CopyingBroadcastingOutput([KeptOutput(), KeptOutput()]),
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
