"""Event time of a task with several inputs: the minimum over those that are not idle.

Law: what comes out never goes back. It becomes idle when all inputs are that have not ended, active
with the first. The end of event time comes out when all inputs have reached it.
"""

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    StreamStatus,
    Watermark,
)
from headgate.core.ingress.valve import Outcome, slowest_input


class InputTimes:
    """Told what the valves of the inputs send on; answers with what the operator is told."""

    def __init__(self, inputs: int) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._watermarks = [MIN_WATERMARK_MS] * inputs
        self._active = [True] * inputs

    def told(self, number: int, outcome: Outcome) -> Outcome:
        """Input ``number`` has moved on, fallen idle or become active."""
        if len(self._active) == 1:
            for element in outcome:
                if isinstance(element, Watermark):
                    self.watermark_ms = element.timestamp_ms
                else:
                    self.active = element.active
            return outcome
        result: Outcome = []
        for element in outcome:
            if isinstance(element, Watermark):
                self._watermarks[number] = element.timestamp_ms
            else:
                self._active[number] = element.active
            result += self._look()
        return result

    def _advance(self) -> Outcome:
        slowest = slowest_input(zip(self._watermarks, self._active, strict=True))
        if slowest is None or slowest <= self.watermark_ms:
            return []
        self.watermark_ms = slowest
        return [Watermark(slowest)]

    def _look(self) -> Outcome:
        advanced = self._advance()
        live = [
            active
            for watermark_ms, active in zip(self._watermarks, self._active, strict=True)
            if watermark_ms != MAX_WATERMARK_MS
        ]
        active = any(live) if live else True  # the last of all watermarks is never idle
        if active == self.active:
            return advanced
        self.active = active
        status = StreamStatus(active)
        return [status, *advanced] if active else [*advanced, status]
