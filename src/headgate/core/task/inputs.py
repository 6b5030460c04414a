"""The inputs of a task: the network (a gate) or a source.

The network input takes buffers out of its gate and turns them into elements, one for each call; a
bundle that is longer than the step may take comes in pieces. It is asked inside the baton; what it
returns is processed outside. Law: elements of a channel come out in order, each once; what was
restored comes before what the gate brings. What was taken out of a channel and did not come out yet
can be had as bytes, which together with what follows in the channel are the elements to come.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.base.elements import Bundle, LatencyMarker, Serializer, StreamStatus, Watermark
from headgate.base.errors import ElementBroken
from headgate.base.events import CancelMarker, CheckpointBarrier, EndOfPartition, Event
from headgate.core.buffers.buffer import Buffer, bundle_bytes
from headgate.core.checkpoint.inputs import single_gates
from headgate.core.checkpoint.restored import RestoredInput
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import InputGate
from headgate.core.ingress.valve import Outcome, WatermarkValve
from headgate.core.ingress.waiting import Place, WaitingCopier


@dataclass(frozen=True, slots=True)
class TimeAdvanced:
    """The event time or the status of the whole input has changed."""

    outcome: Outcome


class InputEnded:
    """All channels have ended."""


class Nothing:
    """No element now; the gate tells when there may be one."""


class PollAgain:
    """No element, but look again at once: an event was taken out of the stream."""


ENDED: Final = InputEnded()
NOTHING: Final = Nothing()
AGAIN: Final = PollAgain()

Taken: TypeAlias = Bundle | LatencyMarker | TimeAdvanced | InputEnded | Nothing | PollAgain


class NetworkInput:
    """Reads one gate (or a union of gates) for input ``number`` of the head operator."""

    def __init__(self, number: int, gate: InputGate, deserializers: list[Deserializer]) -> None:
        self.number = number
        self.gate = gate
        self.records_in = 0
        self.ended = False
        self.on_barrier: Callable[[int, CheckpointBarrier | CancelMarker], None] = _no_checkpoints
        self.on_channel_ended: Callable[[int], None] = lambda channel: None
        """Called when a channel was read to its end, before anybody else learns of it."""
        self._deserializers = deserializers
        self._valve = WatermarkValve(*(single.channel_count for single in single_gates(gate)))
        self._current: Deserializer | None = None
        self._channel = 0
        self._rest: Bundle | None = None
        self._ended_channel: int | None = None
        self._restored = RestoredInput(gate.pause_producer, gate.resume_producer)

    # After a restore, before the first ``take``.

    def restore(self, channel: int, parts: Iterable[bytes]) -> None:
        """A channel begins with what was in flight in it, before what the gate brings.

        Its producer sends nothing until that is read, so that no more is in flight than before.
        """
        self._restored.add_bytes(channel, parts)

    def restore_reassigned(self, channel: int, bundles: Iterable[Bundle]) -> None:
        """Records of channels that no longer exist: read before all other input.

        They count to ``channel``, one of the gate that they belong to, until they are read.
        """
        self._restored.add_reassigned(channel, bundles)

    # For checkpoints, between two calls of ``take``.

    def unread(self, channel: int) -> bytes:
        """What was taken out of a channel, or restored, and was not given to the chain yet."""
        deserializer = self._deserializers[channel]
        rest = b""
        if self._rest is not None and self._channel == channel:
            rest = bundle_bytes(self._rest, deserializer.serializer)
        restored = self._restored.unread(channel, deserializer.serializer)
        return b"".join((rest, deserializer.unread(), restored))

    # For people who look at the task, inside the baton.

    def copy_waiting(self, channel: int, copier: WaitingCopier) -> None:
        """Copy what the chain was not given yet of a channel, in the order in which it will be."""
        if self._rest is not None and self._channel == channel:
            copier.copy(Buffer(b"", bundle=self._rest), Place.BEGUN)
        self._deserializers[channel].copy_begun(copier)
        self._restored.copy_waiting(channel, copier)
        self.gate.copy_waiting(channel, copier)

    def serializer_of(self, channel: int) -> Serializer:
        """How the records of a channel become bytes."""
        return self._deserializers[channel].serializer

    # For whoever decides how long buffers should be, now and then.

    def consumed(self) -> tuple[float, int]:
        """About the bytes that the chain was given so far, and the buffers they came in."""
        read = records = buffers = 0
        for deserializer in self._deserializers:  # there may be hundreds: one loop for all of it
            read += deserializer.bytes_read
            records += deserializer.records_in
            buffers += deserializer.buffers_in
        rest = 0 if self._rest is None else len(self._rest)
        share = 1 - min(rest, records) / records if records else 1.0
        return read * share, buffers

    # In each step.

    @property
    def watermark_ms(self) -> int:
        return self._valve.watermark_ms

    def available(self) -> bool:
        """Whether ``take`` is worth a call."""
        begun = self._rest is not None or self._current is not None
        begun = begun or self._ended_channel is not None
        return begun or self._restored.waits or self.gate.available()

    def take(self, limit: int) -> Taken:
        """The next element, of a bundle at most ``limit`` records."""
        if self._rest is not None:
            return self._cut(self._rest, limit)
        if self._ended_channel is not None:
            channel, self._ended_channel = self._ended_channel, None
            if not self.gate.finished:
                return TimeAdvanced(self._valve.channel_ended(channel))
        while True:
            current = self._current
            if current is not None:
                result, element = current.next()
                if result is not DeserializationResult.MIDDLE:
                    self._current = None
                if isinstance(element, Bundle):
                    self._join(element, limit)
                if element is not None:
                    return self._dispatch(element, limit)
            if self._restored.waits and self._restored_taken():
                continue
            arrival = self.gate.poll()
            if arrival is None:
                return self._nothing()
            self._channel = arrival.channel
            if arrival.buffer is None:
                assert arrival.event is not None
                if self._event_taken(arrival.channel, arrival.event):
                    return AGAIN
                continue
            self._current = self._deserializers[arrival.channel]
            self._current.feed(arrival.buffer)

    def _join(self, bundle: Bundle, limit: int) -> None:
        """Add the next bundles of its buffer: many short ones take longer than a long one."""
        current = self._current
        while current is not None and len(bundle) < limit and current.has_more_like:
            result, element = current.next()
            if result is not DeserializationResult.MIDDLE:
                self._current = current = None
            assert isinstance(element, Bundle)
            bundle.add(element)

    def close(self) -> None:
        """Give back buffers, channels and pool. Idempotent."""
        self._rest = self._current = None
        self._restored = RestoredInput()
        with ExitStack() as all_of_it:  # whatever one of them raises, the others are closed
            all_of_it.callback(self.gate.close)
            for deserializer in reversed(self._deserializers):
                all_of_it.callback(deserializer.close)

    def _restored_taken(self) -> bool:
        """Go on with what was restored; says whether there was anything."""
        following = self._restored.next()
        if following is None:
            return False
        self._channel, buffer = following
        self._current = self._deserializers[self._channel]
        self._current.feed(buffer)
        return True

    def _dispatch(self, element: object, limit: int) -> Taken:
        match element:
            case Bundle():
                self.records_in += len(element)
                return self._cut(element, limit)
            case Watermark():
                return TimeAdvanced(self._valve.watermark_received(element, self._channel))
            case StreamStatus():
                return TimeAdvanced(self._valve.status_received(element, self._channel))
            case LatencyMarker():
                return element
            case _:
                raise ElementBroken(f"channel {self._channel} brought a {type(element).__name__}")

    def _cut(self, bundle: Bundle, limit: int) -> Bundle:
        if len(bundle) <= limit:
            self._rest = None
            return bundle
        self._rest = bundle.part(limit, len(bundle))
        return bundle.part(0, limit)

    def _event_taken(self, channel: int, event: Event) -> bool:
        """Says whether the task may do something else now than go on reading."""
        match event:
            case EndOfPartition():
                self._check_complete(channel)
                self._deserializers[channel].close()
                self.on_channel_ended(channel)  # it may hold the task from this moment on
                self._ended_channel = channel
                return True
            case CheckpointBarrier() | CancelMarker():
                self.on_barrier(channel, event)
                return True
            case _:
                return False

    def _check_complete(self, channel: int) -> None:
        if not self._deserializers[channel].is_between_elements:
            raise ElementBroken(f"channel {channel} has ended in the middle of an element")

    def _nothing(self) -> Taken:
        if self.gate.finished:
            self.ended = True
            return ENDED
        return NOTHING


def _no_checkpoints(channel: int, event: CheckpointBarrier | CancelMarker) -> None:
    raise ElementBroken(f"channel {channel} brought {event}, but this task takes no checkpoints")
