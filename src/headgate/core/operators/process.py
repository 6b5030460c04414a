"""Process functions: any number of records out, also to side outputs, with a context per record.

On a keyed stream the context also knows the key and the timers, and ``on_timer`` is called when one
is due. What ``process_element`` yields has its record's timestamp, what ``on_timer`` yields the
timer's time.
"""

from typing import Protocol

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Key, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.record_failures import RecordFailures
from headgate.core.chain.user_function import iterable
from headgate.core.operators.basic import FunctionOperator
from headgate.core.operators.record_loops import RecordLoops
from headgate.core.state.cursor import Cursor
from headgate.functions.context import TimeDomain, TimerService
from headgate.functions.error_policy import FailedTimer


class ProcessContext:
    """What ``process_element`` learns about the record; one object, set anew for each."""

    __slots__ = ("_timers", "time_ms")

    def __init__(self, timers: TimerService) -> None:
        self.time_ms: int | None = None
        self._timers = timers

    def timestamp(self) -> int:
        """The record's event time; the smallest of all times if it has none."""
        return MIN_WATERMARK_MS if self.time_ms is None else self.time_ms

    def timer_service(self) -> TimerService:
        """Event and processing time; on a keyed stream timers too."""
        return self._timers


class KeyedProcessContext(ProcessContext):
    """The same on a keyed stream."""

    __slots__ = ("_cursor",)

    def __init__(self, timers: TimerService, cursor: Cursor) -> None:
        super().__init__(timers)
        self._cursor = cursor

    def get_current_key(self) -> Key:
        """The key of the record or the timer."""
        return self._cursor.plain_key


class OnTimerContext(KeyedProcessContext):
    """What ``on_timer`` learns beside the time."""

    __slots__ = ("domain",)

    def __init__(self, timers: TimerService, cursor: Cursor) -> None:
        super().__init__(timers, cursor)
        self.domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        """Whether a timer of event time or of processing time has fired."""
        return self.domain


class ReadOnlyTimerService(TimerService):
    """The times, for functions on streams without keys; these have no timers."""

    def __init__(self, context: OperatorContext) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self._context = context

    def current_processing_time(self) -> int:
        return self._context.now_ms()

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise RuntimeError(
            "timers are only there for functions on a keyed stream; call key_by() before process()"
        )


class ProcessOperator(FunctionOperator):
    """``process_element(value, context)`` for each record."""

    method = "process_element"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._times = ReadOnlyTimerService(context)
        self._context = ProcessContext(self._times)
        self._collector = Collector(self.output, not self.reuses_objects)
        self._loops = RecordLoops(
            self._call,
            self.method,
            context,
            self._collector,
            passed=self._context,
            failures=self.failures,
        )

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._times.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)


class KeyedProcessOperator(FunctionOperator):
    """The same on a keyed stream, with state and timers."""

    method = "process_element"

    def open(self, context: OperatorContext) -> None:
        self._collector = Collector(self.output, not self.reuses_objects)
        super().open(context)
        self._loops = RecordLoops(
            self._call,
            self.method,
            context,
            self._collector,
            passed=self._context,
            cursor=self._cursor,
            selection=self._selection,
            failures=self.failures,
        )

    def keyed_context(self, context: OperatorContext) -> KeyedContext:
        keyed = KeyedContext(context, self._fire, self._collector.flush)
        self._cursor, self._timers = keyed.cursor, keyed.timers
        self._context = KeyedProcessContext(keyed.timers, keyed.cursor)
        on_timer = OnTimerContext(keyed.timers, keyed.cursor)
        self._timer_call = TimerCall(
            self._function.function, on_timer, self._collector, self.failures
        )
        return keyed

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._timers.watermark_advanced(watermark.timestamp_ms)
        self._collector.flush()
        super().watermark_advanced(watermark)

    def key_ended(self) -> None:
        super().key_ended()
        self._collector.flush()

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        self._timer_call.fire(time_ms, domain)


class TimerContext(Protocol):
    """What is set before ``on_timer`` is called."""

    time_ms: int | None
    domain: TimeDomain

    def get_current_key(self) -> Key: ...


class TimerCall:
    """Calls a function's ``on_timer`` and collects what it yields, with the timer's time."""

    __slots__ = ("_collector", "_context", "_function", "_streak")

    def __init__(
        self,
        function: object,
        context: TimerContext,
        collector: Collector,
        failures: RecordFailures | None,
    ) -> None:
        self._function = function
        self._context = context
        self._collector = collector
        self._streak = None if failures is None else failures.streak()

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        """The cursor stands at the timer's key. Of a call that fails nothing is sent."""
        if self._streak is None:
            self._call(time_ms, domain)
            return
        before = self._collector.mark
        try:
            self._call(time_ms, domain)
            self._streak.passed()
        except Exception as error:
            self._collector.take_back(before)
            key = self._context.get_current_key()
            self._streak.failed(error, FailedTimer(key, time_ms, domain), time_ms)

    def _call(self, time_ms: int, domain: TimeDomain) -> None:
        context = self._context
        context.time_ms, context.domain = time_ms, domain
        call = getattr(self._function, "on_timer", None)
        if call is None:
            raise TypeError(
                f"{type(self._function).__name__} has registered a timer and has no on_timer; "
                f"add the method on_timer(timestamp, ctx)"
            )
        self._collector.take(iterable(call(time_ms, context), "on_timer"), time_ms)
