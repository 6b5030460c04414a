"""Outputs: where an operator's records go, a bundle at a time.

Law: an output without a tag takes the main records only, one with a tag those emitted for an equal
tag only; the rest is dropped silently. Watermarks, statuses and latency markers go to all.
"""

from typing import Protocol

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark


class Output(Protocol):
    """What an operator writes to. Nobody changes a bundle that was handed on."""

    watermark_ms: int
    """The last watermark that passed."""

    def collect(self, bundle: Bundle) -> None:
        """Records of the main output."""

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        """Records of the side output with this tag."""

    def emit_watermark(self, watermark: Watermark) -> None: ...

    def emit_status(self, status: StreamStatus) -> None: ...

    def emit_marker(self, marker: LatencyMarker) -> None: ...
