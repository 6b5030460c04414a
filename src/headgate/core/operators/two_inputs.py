"""Operators with two inputs: a method of the user's function for each of them.

If both streams have keys the cursor stands at a record's key while its method is called, so that
the function has state, and process functions have timers: they meet what either side has kept.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headgate.base.elements import Bundle, Key, Record, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector, TimedContext
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.loops.loops import Gives
from headgate.core.operators.one_input import (
    KeyedProcessContext,
    OnTimerContext,
    ProcessContext,
    ReadOnlyTimerService,
    TimerCall,
)
from headgate.core.operators.record_loops import RecordLoops
from headgate.core.state.cursor import NO_KEY
from headgate.functions.context import TimeDomain

KeysOf: TypeAlias = Sequence[Callable[[Record], Key] | None]
"""The key selector of each input; None: its records have no keys."""


class TwoInputOperator(StatefulOperator):
    """Base: one user's object with a method for each input."""

    inputs = 2
    methods: tuple[str, str]
    has_timers = False
    gives = Gives.VALUES

    def __init__(self, function: object, keys_of: KeysOf | None = None) -> None:
        """Without ``keys_of`` neither input has keys, so there is no state."""
        self._function: UserFunction = UserFunction(function, self.methods[0])
        self._keys_of = keys_of

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = Collector(self.output, not self.reuses_objects)
        opener = None
        if self._keys_of is not None:
            fire = self._fire if self.has_timers else None
            self._keyed = KeyedContext(context, fire, self._collector.flush)
            sweeps = self._keyed.backend.sweeps
            self._selections = [
                None
                if key_of is None
                else KeySelection(key_of, context.operator, sweeps, context.key_type)
                for key_of in self._keys_of
            ]
            opener = self._keyed.opener
        self._function.open(context, opener)
        self._passed = self.contexts(context)
        self._loops = [self._loops_of(number, context) for number in range(self.inputs)]

    def process(self, bundle: Bundle, number: int) -> None:
        if self._keyed is not None and self._selections[number] is None:
            self._keyed.cursor.key = NO_KEY
        self._loops[number].run(bundle)

    def contexts(self, context: OperatorContext) -> Sequence[TimedContext | None]:
        """What the method of each input takes after a record."""
        return None, None

    def _loops_of(self, number: int, context: OperatorContext) -> RecordLoops:
        return RecordLoops(
            getattr(self._function.function, self.methods[number]),
            self.methods[number],
            context,
            self._collector,
            passed=self._passed[number],
            cursor=None if self._keyed is None else self._keyed.cursor,
            selection=None if self._keyed is None else self._selections[number],
            failures=self.failures,
            gives=self.gives,
        )

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return None if self._keys_of is None else self._keys_of[number]

    def key_ended(self) -> None:
        super().key_ended()
        self._collector.flush()

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        raise AssertionError("a timer fired in an operator that registers none")


class CoMapOperator(TwoInputOperator):
    """One record out for each record in; None is dropped."""

    methods = ("map1", "map2")
    gives = Gives.VALUE_OR_NOTHING


class CoFlatMapOperator(TwoInputOperator):
    """Any number of records out for each record in."""

    methods = ("flat_map1", "flat_map2")


class CoProcessOperator(TwoInputOperator):
    """``process_element1`` and ``process_element2``, with a context and side outputs."""

    methods = ("process_element1", "process_element2")

    def contexts(self, context: OperatorContext) -> Sequence[TimedContext | None]:
        self._times = ReadOnlyTimerService(context)
        passed = ProcessContext(self._times)
        return passed, passed

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._times.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)


class KeyedCoProcessOperator(CoProcessOperator):
    """``process_element1`` and ``process_element2`` on two keyed streams, with state and timers."""

    has_timers = True

    def __init__(
        self,
        function: object,
        key_of_1: Callable[[Record], Key],
        key_of_2: Callable[[Record], Key],
    ) -> None:
        super().__init__(function, (key_of_1, key_of_2))

    def contexts(self, context: OperatorContext) -> Sequence[TimedContext | None]:
        super().contexts(context)
        keyed = self._keyed
        assert keyed is not None
        on_timer = OnTimerContext(keyed.timers, keyed.cursor)
        self._timer_call = TimerCall(
            self._function.function, on_timer, self._collector, self.failures
        )
        passed = KeyedProcessContext(keyed.timers, keyed.cursor)
        return passed, passed

    def watermark_advanced(self, watermark: Watermark) -> None:
        assert self._keyed is not None
        self._keyed.timers.watermark_advanced(watermark.timestamp_ms)
        self._collector.flush()
        super().watermark_advanced(watermark)

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        self._timer_call.fire(time_ms, domain)
