"""Event time of a task: one watermark out of those of many channels, then of several inputs.

Law: what comes out never goes back, and is the minimum over the channels that count. A channel does
not count while it is idle, nor after that until its watermark has caught up with what came out. One
that is idle together with its stream counts while another channel of the stream is active: whatever
wakes the stream has yet to arrive there. When the last channel falls idle, the maximum of all comes
out first: nobody waits for anybody then. A channel at the end of event time holds back nobody, so
that the end comes out when all others are there or idle. It waits for those that are active, or
have fallen idle only because there was nothing to read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    StreamStatus,
    Watermark,
)

Outcome: TypeAlias = list[Watermark | StreamStatus]
"""What to send on, in this order."""

ACTIVE: Final = StreamStatus(active=True)
IDLE: Final = StreamStatus(active=False)


@dataclass(slots=True)
class _Channel:
    stream: int
    watermark_ms: int = MIN_WATERMARK_MS
    status: StreamStatus = ACTIVE
    caught_up: bool = True
    ended: bool = False

    @property
    def time(self) -> tuple[int, StreamStatus]:
        return self.watermark_ms, self.status


class WatermarkValve:
    """Gets every watermark and status of its channels; returns what to send on."""

    def __init__(self, *streams: int) -> None:
        """``streams``: how many channels each one has; there are several in a union."""
        assert sum(streams) > 0
        self.watermark_ms = MIN_WATERMARK_MS
        """What came out last."""
        self.active = True
        self._channels = [
            _Channel(stream) for stream, channels in enumerate(streams) for _ in range(channels)
        ]

    def watermark_received(self, watermark: Watermark, channel: int) -> Outcome:
        """A channel's event time has moved on."""
        state = self._channels[channel]
        if not state.status.active or watermark.timestamp_ms <= state.watermark_ms:
            return []
        state.watermark_ms = watermark.timestamp_ms
        if state.watermark_ms >= self.watermark_ms:
            state.caught_up = True
        return self._changed(state)

    def status_received(self, status: StreamStatus, channel: int) -> Outcome:
        """A channel has fallen idle, or is active again."""
        state = self._channels[channel]
        if status == state.status:
            return []
        state.status = status
        state.caught_up = status.active and state.watermark_ms >= self.watermark_ms
        return self._changed(state)

    def channel_ended(self, channel: int) -> Outcome:
        """Nothing follows in the channel; the others do not wait for it."""
        state = self._channels[channel]
        state.ended = True
        at_end = state.watermark_ms == MAX_WATERMARK_MS
        return [] if at_end else self.status_received(IDLE, channel)

    def check(self) -> None:
        """Assert the law."""
        for channel in self._channels:
            assert not channel.caught_up or channel.status.active
            assert not channel.caught_up or channel.watermark_ms >= self.watermark_ms
        assert self.active == _is_active(channel.time for channel in self._channels)

    def _changed(self, channel: _Channel) -> Outcome:
        was_active, self.active = self.active, _is_active(other.time for other in self._channels)
        if self.active:
            advanced = self._advance(self._slowest())
            return advanced if was_active else [ACTIVE, *advanced]
        if not was_active:
            return []
        left = [other for other in self._channels if not other.ended]
        status = _idleness(other.time for other in left)
        return [*self._advance(self._fastest(channel)), status]

    def _slowest(self) -> int | None:
        counting = [channel.watermark_ms for channel in self._channels if channel.caught_up]
        resting = [channel for channel in self._channels if channel.status.together]
        if resting:
            awake = {channel.stream for channel in self._channels if channel.status.active}
            of_awake = (channel.watermark_ms for channel in resting if channel.stream in awake)
            counting += [reached_ms for reached_ms in of_awake if reached_ms >= self.watermark_ms]
        slowest = min(counting, default=None)
        if slowest != MAX_WATERMARK_MS:
            return slowest
        live = (channel.time for channel in self._channels)
        return min(_without_end(live, active=True), default=MAX_WATERMARK_MS)

    def _fastest(self, last: _Channel) -> int | None:
        """What comes out when all have fallen idle, or have ended beside such as found nothing."""
        if last.status.active:
            return self._slowest()
        if last.watermark_ms != self.watermark_ms:
            return None
        # The slowest fell idle last: what the others had reached no longer waits for it.
        reached: dict[object, int] = {}
        for number, channel in enumerate(self._channels):
            if not channel.ended and channel.watermark_ms != MAX_WATERMARK_MS:
                place: object = ("stream", channel.stream) if channel.status.together else number
                reached[place] = min(channel.watermark_ms, reached.get(place, MAX_WATERMARK_MS))
        return max(reached.values(), default=None)

    def _advance(self, watermark_ms: int | None) -> Outcome:
        if watermark_ms is None or watermark_ms <= self.watermark_ms:
            return []
        self.watermark_ms = watermark_ms
        return [Watermark(watermark_ms)]


def slowest_input(inputs: Iterable[tuple[int, StreamStatus]]) -> int | None:
    """The event time of several inputs: the minimum that ignores idle ones.

    One at the end of event time waits for those that have fallen idle because there was nothing to
    read.
    """
    known = list(inputs)
    slowest = min((reached_ms for reached_ms, status in known if status.active), default=None)
    if slowest != MAX_WATERMARK_MS:
        return slowest
    return min(_without_end(known), default=MAX_WATERMARK_MS)


def _without_end(inputs: Iterable[tuple[int, StreamStatus]], active: bool = False) -> Iterable[int]:
    """Where those stand that may go on: they have found nothing to read, or are ``active``."""
    for reached_ms, status in inputs:
        goes_on = status.awaits_splits or (active and status.active)
        if goes_on and reached_ms != MAX_WATERMARK_MS:
            yield reached_ms


def _is_active(inputs: Iterable[tuple[int, StreamStatus]]) -> bool:
    """Whether event time is waited for: one goes on, or all have ended or are idle for good."""
    at_end = awaits_splits = False
    for reached_ms, status in inputs:
        if status.active and reached_ms != MAX_WATERMARK_MS:
            return True
        at_end = at_end or status.active
        awaits_splits = awaits_splits or status.awaits_splits
    return at_end and not awaits_splits


def _idleness(inputs: Iterable[tuple[int, StreamStatus]]) -> StreamStatus:
    """What to tell when all are idle, except for those at the end."""
    idle = [status for _, status in inputs if not status.active]
    together = bool(idle) and all(status.together for status in idle)
    return StreamStatus(False, together, any(status.awaits_splits for status in idle))


class InputTimes:
    """Gets what the valves of the inputs send on; returns what the operator gets."""

    def __init__(self, inputs: int) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._times = [(MIN_WATERMARK_MS, ACTIVE)] * inputs

    def advanced(self, number: int, outcome: Outcome) -> Outcome:
        """Input ``number`` has moved on, fallen idle or become active."""
        if len(self._times) == 1:
            for element in outcome:
                if isinstance(element, Watermark):
                    self.watermark_ms = element.timestamp_ms
                else:
                    self.active = element.active
            return outcome
        result: Outcome = []
        for element in outcome:
            watermark_ms, status = self._times[number]
            if isinstance(element, Watermark):
                self._times[number] = element.timestamp_ms, status
            else:
                self._times[number] = watermark_ms, element
            result += self._look()
        return result

    def _advance(self) -> Outcome:
        slowest = slowest_input(self._times)
        if slowest is None or slowest <= self.watermark_ms:
            return []
        self.watermark_ms = slowest
        return [Watermark(slowest)]

    def _look(self) -> Outcome:
        advanced = self._advance()
        active = _is_active(self._times)
        if active == self.active:
            return advanced
        self.active = active
        return [ACTIVE, *advanced] if active else [*advanced, _idleness(self._times)]
