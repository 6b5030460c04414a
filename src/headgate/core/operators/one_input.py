"""Operators with one input: map, flat map, filter and process functions.

They run loops over the records of bundles; timestamps stay with their records; None is a record
like any other. With an error policy a bundle goes on after a record that has failed; of that
nothing is sent, but for whole pieces that a flat map had sent before it failed.

Process functions also send to side outputs, and take a context with each record. On a keyed stream
the context knows the key and the timers, and ``on_timer`` is called when a timer is due. What
``process_element`` yields has its record's timestamp, what ``on_timer`` yields the timer's time.
"""

from collections.abc import Callable
from typing import NoReturn, Protocol

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Key, Record, Watermark
from headgate.base.fields import TUPLES, RecordFields, Same
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector, carried_places, is_immutable, is_pure
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.outputs import takes_fields
from headgate.core.chain.user_function import StatefulOperator, UserFunction, iterable
from headgate.core.loops.loops import Gives
from headgate.core.loops.steps import Step, step_of
from headgate.core.operators.record_loops import RecordLoops
from headgate.core.state.cursor import Cursor
from headgate.functions.context import TimeDomain, TimerService
from headgate.functions.error_policy import FailedTimer


class FunctionOperator(StatefulOperator):
    """Base of operators around one user function; ``method`` is what it is called by.

    With ``key_of`` the input has keys: the function may keep keyed state, and the cursor stands at
    a record's key while the function is called for it.
    """

    method = ""

    def __init__(self, function: object, key_of: Callable[[Record], Key] | None = None) -> None:
        self._function: UserFunction = UserFunction(function, self.method)
        self._key_of = key_of
        self._call: Callable[..., Record]
        self._loops: RecordLoops

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        opener = None
        if self._key_of is not None:
            self._keyed = self.keyed_context(context)
            self._selection = KeySelection(
                self._key_of, context.operator, self._keyed.backend.sweeps, context.key_type
            )
            opener = self._keyed.opener
        self._function.open(context, opener)
        self._call = self._function.call

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._key_of

    def keyed_context(self, context: OperatorContext) -> KeyedContext:
        """State for the function on a keyed stream; timers are for those that override this."""
        return KeyedContext(context)

    def _as_step(self, *, is_filter: bool, again: Callable[[Record], NoReturn]) -> Step | None:
        if self._keyed is not None or self.failures is not None:
            return None
        return step_of(self._call, self._loops.body, is_filter, again)

    def loops(
        self,
        gives: Gives,
        has_sides: bool = False,
        is_free: Callable[[Bundle], bool] | None = None,
    ) -> RecordLoops:
        """The loops of the function; see there."""
        collector = Collector(self.output, not self.reuses_objects, has_sides=has_sides)
        return RecordLoops(
            self._call,
            f"a {self.method} function",
            self.context,
            collector,
            cursor=None if self._keyed is None else self._keyed.cursor,
            selection=None if self._keyed is None else self._selection,
            failures=self.failures,
            gives=gives,
            takes_none=False,
            is_free=is_free,
        )


class MapOperator(FunctionOperator):
    """One record out for each record in."""

    method = "map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = self.loops(Gives.VALUE, is_free=self._is_free)
        self._keeps_nothing = is_pure(self._call)
        self._carried: list[Same | None] | None = None
        if self._keyed is None and self.failures is None:
            self._carried = carried_places(self._call)

    def process(self, bundle: Bundle, number: int) -> None:
        carried = self._carried
        if (
            carried is not None
            and takes_fields(self.output, TUPLES, len(carried))
            and (self.reuses_objects or is_immutable(bundle))  # a source may have kept them
        ):
            records = bundle.records
            places = [list(records) if place is None else place for place in carried]
            fields = RecordFields(places, len(records))
            self.output.collect(Bundle.of_fields(fields, bundle.timestamps))
            return
        self._loops.run(bundle)

    def as_step(self, again: Callable[[Record], NoReturn]) -> Step | None:
        return self._as_step(is_filter=False, again=again)

    def _is_free(self, bundle: Bundle) -> bool:
        """A function that keeps nothing makes something new of what cannot be changed."""
        return self._keeps_nothing and bundle.known_immutable is True


class FilterOperator(FunctionOperator):
    """Passes on the records for which the function says yes."""

    method = "filter"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        keeps_nothing = is_pure(self._call)
        self._loops = self.loops(
            Gives.VERDICT, is_free=lambda bundle: keeps_nothing or is_immutable(bundle)
        )

    def as_step(self, again: Callable[[Record], NoReturn]) -> Step | None:
        return self._as_step(is_filter=True, again=again)


class FlatMapOperator(FunctionOperator):
    """Any number of records out for each record in."""

    method = "flat_map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = self.loops(Gives.VALUES, has_sides=True)


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
    """What ``process_element`` learns about the record on a keyed stream: its key, too."""

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

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._times.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)


class KeyedProcessOperator(FunctionOperator):
    """``process_element(value, context)`` on a keyed stream, with state and timers."""

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
