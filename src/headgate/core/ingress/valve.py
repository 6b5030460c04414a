"""Event time of a task: one watermark out of those of many channels, then of several inputs.

Law: what comes out never goes back, and is the minimum over the channels that count. A channel does
not count while it is idle, nor after that until its watermark has caught up with what came out.
When the last channel falls idle, the maximum of all comes out first: nobody waits for anybody then.
The end of event time comes out when all channels (inputs) have reached it; until then those that
have do not count, so that a channel that is merely idle is not taken for one that has ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    StreamStatus,
    Watermark,
)

Outcome: TypeAlias = list[Watermark | StreamStatus]
"""What to send on, in this order."""


@dataclass(slots=True)
class _Channel:
    watermark_ms: int = MIN_WATERMARK_MS
    active: bool = True
    caught_up: bool = True
    ended: bool = False

    @property
    def is_over(self) -> bool:
        return self.ended or self.watermark_ms == MAX_WATERMARK_MS


class WatermarkValve:
    """Gets every watermark and status of its channels; returns what to send on."""

    def __init__(self, channels: int) -> None:
        assert channels > 0
        self.watermark_ms = MIN_WATERMARK_MS
        """What came out last."""
        self.active = True
        self._channels = [_Channel() for _ in range(channels)]

    def watermark_received(self, watermark: Watermark, channel: int) -> Outcome:
        """A channel's event time has moved on."""
        state = self._channels[channel]
        if not state.active or watermark.timestamp_ms <= state.watermark_ms:
            return []
        state.watermark_ms = watermark.timestamp_ms
        if state.watermark_ms >= self.watermark_ms:
            state.caught_up = True
        return self._advance(self._slowest())

    def status_received(self, status: StreamStatus, channel: int) -> Outcome:
        """A channel has fallen idle, or is active again."""
        state = self._channels[channel]
        if status.active == state.active:
            return []
        state.active = status.active
        state.caught_up = status.active and state.watermark_ms >= self.watermark_ms
        if status.active:
            if self.active:
                return []
            self.active = True
            return [status]
        return self._fallen_idle(state)

    def channel_ended(self, channel: int) -> Outcome:
        """Nothing follows in the channel; the others do not wait for it."""
        self._channels[channel].ended = True
        return self.status_received(StreamStatus(active=False), channel)

    def check(self) -> None:
        """Assert the law."""
        for channel in self._channels:
            assert not channel.caught_up or channel.active
            assert not channel.caught_up or channel.watermark_ms >= self.watermark_ms
        assert self.active == any(channel.active for channel in self._channels)

    def _fallen_idle(self, channel: _Channel) -> Outcome:
        if any(other.active for other in self._channels):
            return self._advance(self._slowest())
        self.active = False
        # The slowest fell idle last: what the others had reached no longer waits for it.
        reached = [other.watermark_ms for other in self._channels if not other.is_over]
        last = channel.watermark_ms == self.watermark_ms
        fastest = max(reached, default=None) if last else None
        return [*self._advance(fastest), StreamStatus(active=False)]

    def _slowest(self) -> int | None:
        if all(channel.is_over for channel in self._channels):
            return max(channel.watermark_ms for channel in self._channels)
        counting = (
            channel.watermark_ms
            for channel in self._channels
            if channel.caught_up and not channel.is_over
        )
        return min(counting, default=None)

    def _advance(self, watermark_ms: int | None) -> Outcome:
        if watermark_ms is None or watermark_ms <= self.watermark_ms:
            return []
        self.watermark_ms = watermark_ms
        return [Watermark(watermark_ms)]


def slowest_input(watermarks: Iterable[tuple[int, bool]]) -> int | None:
    """The event time of several inputs (watermark, active): the minimum that ignores idle ones.

    An input at the end of event time counts when all are there.
    """
    known = list(watermarks)
    if all(watermark_ms == MAX_WATERMARK_MS for watermark_ms, _ in known):
        return MAX_WATERMARK_MS
    live = [reached_ms for reached_ms, active in known if active and reached_ms != MAX_WATERMARK_MS]
    return min(live, default=None)


class InputTimes:
    """Gets what the valves of the inputs send on; returns what the operator gets."""

    def __init__(self, inputs: int) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._watermarks = [MIN_WATERMARK_MS] * inputs
        self._active = [True] * inputs

    def advanced(self, number: int, outcome: Outcome) -> Outcome:
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
