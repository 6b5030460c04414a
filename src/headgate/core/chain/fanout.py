"""Outputs to several others: to all of them, or to those that a selector names.

The inner outputs copy records themselves while object reuse is off. With object reuse on they do
not, so the fan-out copies instead, as Flink does: only the envelope (the bundle) for all but the
last, the values stay shared; that is what object reuse asks for.
"""

from collections.abc import Callable, Sequence

from headgate.base.elements import (
    MIN_WATERMARK_MS,
    Bundle,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.core.chain.output import Output
from headgate.core.chain.spec import Selector


class BroadcastingOutput:
    """Every record to every inner output, also to none."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.outputs = list(outputs)

    def collect(self, bundle: Bundle) -> None:
        for output in self.outputs:
            output.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        for output in self.outputs:
            output.collect_side(tag, bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        for output in self.outputs:
            output.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        for output in self.outputs:
            output.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        """To all: every way is measured."""
        for output in self.outputs:
            output.emit_marker(marker)


class CopyingBroadcastingOutput(BroadcastingOutput):
    """The same with object reuse on: an envelope of its own for each but the last."""

    def collect(self, bundle: Bundle) -> None:
        for output in self.outputs[:-1]:
            output.collect(envelope_of(bundle))
        for output in self.outputs[-1:]:
            output.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        for output in self.outputs[:-1]:
            output.collect_side(tag, envelope_of(bundle))
        for output in self.outputs[-1:]:
            output.collect_side(tag, bundle)


class DirectedOutput(BroadcastingOutput):
    """Each record to the outputs that were selected by one of the names its selectors give it.

    Outputs without a selection get every record.
    """

    def __init__(
        self,
        outputs: Sequence[tuple[Output, frozenset[str] | None]],
        selectors: Sequence[Selector],
    ) -> None:
        super().__init__([output for output, _ in outputs])
        self._selections = [selected for _, selected in outputs]
        self._selectors = list(selectors)

    def collect(self, bundle: Bundle) -> None:
        names = [self._names_of(record) for record in bundle.records]
        for output, selected in zip(self.outputs, self._selections, strict=True):
            if selected is None:
                self._hand_on(output, bundle)
                continue
            chosen = [not selected.isdisjoint(some) for some in names]
            if all(chosen):
                self._hand_on(output, bundle)
            elif any(chosen):
                output.collect(select(bundle, chosen))

    def _hand_on(self, output: Output, bundle: Bundle) -> None:
        output.collect(bundle)

    def _names_of(self, record: Record) -> set[str]:
        names: set[str] = set()
        for selector in self._selectors:
            names.update(selector(record))
        return names


class CopyingDirectedOutput(DirectedOutput):
    """The same with object reuse on: a whole bundle that goes on gets an envelope of its own."""

    def _hand_on(self, output: Output, bundle: Bundle) -> None:
        output.collect(envelope_of(bundle))


def choose_output(
    outputs: Sequence[tuple[Output, frozenset[str] | None]],
    selectors: Sequence[Selector],
    object_reuse: bool,
) -> Output:
    """One output without selector: itself. Otherwise broadcasting, or directed by the selectors."""
    if selectors:
        directed: Callable[..., Output] = CopyingDirectedOutput if object_reuse else DirectedOutput
        return directed(outputs, selectors)
    if len(outputs) == 1:
        return outputs[0][0]
    inner = [output for output, _ in outputs]
    return CopyingBroadcastingOutput(inner) if object_reuse else BroadcastingOutput(inner)


def envelope_of(bundle: Bundle) -> Bundle:
    """The same records in a bundle of its own."""
    timestamps = bundle.timestamps
    return Bundle(list(bundle.records), None if timestamps is None else list(timestamps))


def select(bundle: Bundle, chosen: Sequence[bool]) -> Bundle:
    """Those records of a bundle that were chosen, with their timestamps."""
    records = [record for record, wanted in zip(bundle.records, chosen, strict=True) if wanted]
    if bundle.timestamps is None:
        return Bundle(records)
    times = [time for time, wanted in zip(bundle.timestamps, chosen, strict=True) if wanted]
    return Bundle(records, times)
