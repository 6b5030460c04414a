"""The timer service: registers timers for the current key, and knows event and processing time.

Law: a timer fires once for each time, key and namespace. An event-time timer that is not later than
the watermark fires when the watermark next moves; processing-time timers that are pending at the
end of the input never fire, but those of a batch do at the end of their key. After a restore event
time continues where it was: earlier watermarks, which sources emit again, change nothing.
"""

from collections.abc import Callable
from functools import partial
from operator import index, itemgetter

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Key
from headgate.core.chain.context import OperatorContext
from headgate.core.state.backend import KeyedBackend
from headgate.core.state.cursor import Namespace
from headgate.functions.context import TimeDomain, TimerService

Fire = Callable[[int, TimeDomain], None]
"""Called with the timer's time; the cursor stands at its key and namespace."""


class InternalTimerService(TimerService):
    """The timers of one operator on a keyed stream."""

    def __init__(
        self,
        backend: KeyedBackend,
        context: OperatorContext,
        fire: Fire,
        fired: Callable[[], None] = lambda: None,
    ) -> None:
        """``fired`` is called after timers of processing time, which come between the bundles."""
        self.watermark_ms = MIN_WATERMARK_MS
        self._behind_ms = MIN_WATERMARK_MS - 1
        """Event time had come to here before the restore."""
        self._cursor = backend.cursor
        self._event = backend.event_timers
        self._processing = backend.processing_timers
        self._context = context
        self._fire = fire
        self._fired = fired
        self._awaited_ms: int | None = None
        """When the mail comes that looks for timers of processing time; None: no mail is sent."""
        self._closed = False

    def current_processing_time(self) -> int:
        return self._context.now_ms()

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        cursor = self._cursor
        time_ms = timestamp if type(timestamp) is int else whole(timestamp)
        self._event.register(time_ms, cursor.key, cursor.namespace)

    def register_processing_time_timer(self, timestamp: int) -> None:
        cursor = self._cursor
        time_ms = timestamp if type(timestamp) is int else whole(timestamp)
        self._processing.register(time_ms, cursor.key, cursor.namespace)
        if self._awaited_ms is None or time_ms < self._awaited_ms:
            self._await(time_ms)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event.delete(timestamp, self._cursor.key, self._cursor.namespace)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing.delete(timestamp, self._cursor.key, self._cursor.namespace)

    def watermark_advanced(self, watermark_ms: int) -> None:
        """Fire what is due in event time."""
        if watermark_ms <= self._behind_ms:
            return
        self.watermark_ms = watermark_ms
        for time_ms, key, namespace in self._event.due(watermark_ms):
            self._fire_one(time_ms, key, namespace, TimeDomain.EVENT_TIME)

    def key_ended(self) -> None:
        """Batch: all that is pending fires, as at the end of time; then time begins anew.

        A timer of processing time that another one of its kind has set does not fire: one that
        always sets the next would never end.
        """
        self.watermark_advanced(MAX_WATERMARK_MS)
        queue = self._processing
        for time_ms, key, namespace in sorted(queue.items(), key=itemgetter(0)):
            if queue.has(time_ms, key, namespace):
                queue.delete(time_ms, key, namespace)
                self._fire_one(time_ms, key, namespace, TimeDomain.PROCESSING_TIME)
        self.watermark_advanced(MAX_WATERMARK_MS)
        queue.clear()
        self.watermark_ms = MIN_WATERMARK_MS

    def restored(self, watermark_ms: int | None = None) -> None:
        """Timers came out of a snapshot: those of processing time need a call.

        ``watermark_ms``: where event time was then; None: it begins anew.
        """
        if watermark_ms is not None and watermark_ms > MIN_WATERMARK_MS:
            self.watermark_ms = self._behind_ms = watermark_ms
        self._await_next()

    def close(self) -> None:
        """No timer of processing time fires any more."""
        self._closed = True

    def _await_next(self) -> None:
        first = self._processing.next_ms
        if first is not None and (self._awaited_ms is None or first < self._awaited_ms):
            self._await(first)

    def _await(self, time_ms: int) -> None:
        """One mail for the earliest timer; a mail that an earlier one has replaced does nothing."""
        self._awaited_ms = time_ms
        delay_ms = max(0, time_ms - self._context.now_ms())
        self._context.later(delay_ms, partial(self._look, time_ms))

    def _look(self, awaited_ms: int) -> None:
        """Fire what is due in processing time; called as a mail, perhaps a little early."""
        if self._closed or awaited_ms != self._awaited_ms:
            return
        self._awaited_ms = None
        for time_ms, key, namespace in self._processing.due(self._context.now_ms()):
            self._fire_one(time_ms, key, namespace, TimeDomain.PROCESSING_TIME)
        self._fired()
        self._await_next()

    def _fire_one(self, time_ms: int, key: Key, namespace: Namespace, domain: TimeDomain) -> None:
        cursor = self._cursor
        cursor.key, cursor.namespace = key, namespace
        self._fire(time_ms, domain)
        cursor.namespace = None


def whole(timestamp: int) -> int:
    """The time of a timer that is no plain int, if it is a whole number nevertheless."""
    try:
        return index(timestamp)
    except TypeError:
        raise TypeError(
            f"a timer was given the time {timestamp!r}; give whole milliseconds since 1970 (int)"
        ) from None
