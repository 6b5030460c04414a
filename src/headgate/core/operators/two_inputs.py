"""Operators with two inputs: a method of the user's function for each of them.

If both streams have keys the cursor stands at a record's key while its method is called, so that
the function has state, and process functions have timers: they meet what either side has kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TypeAlias

from headgate.base.elements import Bundle, Key, Record, Watermark
from headgate.core.chain.collector import Collector
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.operators.process import (
    KeyedProcessContext,
    OnTimerContext,
    ProcessContext,
    ReadOnlyTimerService,
    TimerCall,
)
from headgate.core.state.cursor import NO_KEY
from headgate.functions.context import TimeDomain

KeysOf: TypeAlias = Sequence[Callable[[Record], Key] | None]
"""The key selector of each input; None: its records have no keys."""


class TwoInputOperator(StatefulOperator):
    """Base: one user's object with a method for each input."""

    inputs = 2
    methods: tuple[str, str]
    has_timers = False

    def __init__(self, function: object, keys_of: KeysOf | None = None) -> None:
        """Without ``keys_of`` neither input has keys, so there is no state."""
        self._function: UserFunction = UserFunction(function, self.methods[0])
        self._calls: list[Callable[..., Record]]
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
        if self.failures is not None:
            self._streaks = [self.failures.streak() for _ in self.methods]
            self._key_streaks = [self.failures.streak() for _ in self.methods]
        self._function.open(context, opener)
        self._calls = [getattr(self._function.function, method) for method in self.methods]

    def process(self, bundle: Bundle, number: int) -> None:
        who = self.methods[number]
        if self.failures is None:
            calls = self.called(
                self.visited(bundle.records, number), bundle.timestamps or repeat(None), number
            )
            self._collector.sweep(calls, bundle.timestamps, who)
            return
        bundle, source, visited = self._visited_on(bundle, number)
        times = repeat(None) if bundle.timestamps is None else iter(bundle.timestamps)
        self._collector.sweep_on(
            lambda: self.called(visited, times, number), bundle, source, who, self._streaks[number]
        )

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return None if self._keys_of is None else self._keys_of[number]

    def called(
        self, visited: Iterable[Record], times: Iterable[int | None], number: int
    ) -> Iterator[Record]:
        """What the function returns for each record, one call at a time."""
        raise NotImplementedError

    def visited(self, records: list[Record], number: int) -> Iterable[Record]:
        """The records one after the other; if they have keys the cursor goes with them."""
        if self._keyed is None:
            return records
        selection = self._selections[number]
        if selection is None:
            self._keyed.cursor.key = NO_KEY
            return records
        return self._at_keys(records, selection.keys(records), self._keyed)

    def _visited_on(
        self, bundle: Bundle, number: int
    ) -> tuple[Bundle, Iterator[Record], Iterator[Record]]:
        """The records that have keys, the iterator of their list, and what visits them.

        Both go on behind a record that the function has failed for.
        """
        selection = None if self._keyed is None else self._selections[number]
        if self._keyed is None or selection is None:
            if self._keyed is not None:
                self._keyed.cursor.key = NO_KEY
            source = iter(bundle.records)
            return bundle, source, source
        bundle, keys = selection.keyed(bundle, self._key_streaks[number])
        source = iter(bundle.records)
        return bundle, source, self._at_keys(source, keys, self._keyed)

    def key_ended(self) -> None:
        super().key_ended()
        self._collector.flush()

    def _at_keys(
        self, records: Iterable[Record], keys: list[Key], keyed: KeyedContext
    ) -> Iterator[Record]:
        cursor = keyed.cursor
        for record, key in zip(records, keys, strict=True):
            cursor.key = key
            yield record

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        raise AssertionError("a timer fired in an operator that registers none")


class CoMapOperator(TwoInputOperator):
    """One record out for each record in; None is dropped."""

    methods = ("map1", "map2")

    def called(
        self, visited: Iterable[Record], times: Iterable[int | None], number: int
    ) -> Iterator[Record]:
        call = self._calls[number]
        for record in visited:
            result = call(record)
            yield None if result is None else (result,)


class CoFlatMapOperator(TwoInputOperator):
    """Any number of records out for each record in."""

    methods = ("flat_map1", "flat_map2")

    def called(
        self, visited: Iterable[Record], times: Iterable[int | None], number: int
    ) -> Iterator[Record]:
        call = self._calls[number]
        for record in visited:
            yield call(record)


class CoProcessOperator(TwoInputOperator):
    """``process_element1`` and ``process_element2``, with a context and side outputs."""

    methods = ("process_element1", "process_element2")

    def open(self, context: OperatorContext) -> None:
        self._times = ReadOnlyTimerService(context)
        self._context = ProcessContext(self._times)
        super().open(context)

    def called(
        self, visited: Iterable[Record], times: Iterable[int | None], number: int
    ) -> Iterator[Record]:
        call, context = self._calls[number], self._context
        for record, timestamp in zip(visited, times):  # noqa: B905 - may have no end
            context.time_ms = timestamp
            yield call(record, context)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._times.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)


class KeyedCoProcessOperator(CoProcessOperator):
    """The same on two keyed streams, with state and timers."""

    has_timers = True

    def __init__(
        self,
        function: object,
        key_of_1: Callable[[Record], Key],
        key_of_2: Callable[[Record], Key],
    ) -> None:
        super().__init__(function, (key_of_1, key_of_2))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        keyed = self._keyed
        assert keyed is not None
        self._context = KeyedProcessContext(keyed.timers, keyed.cursor)
        on_timer = OnTimerContext(keyed.timers, keyed.cursor)
        self._timer_call = TimerCall(
            self._function.function, on_timer, self._collector, self.failures
        )

    def watermark_advanced(self, watermark: Watermark) -> None:
        assert self._keyed is not None
        self._keyed.timers.watermark_advanced(watermark.timestamp_ms)
        self._collector.flush()
        super().watermark_advanced(watermark)

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        self._timer_call.fire(time_ms, domain)
