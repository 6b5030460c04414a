"""Broadcast process functions: one input goes to every task and writes broadcast state.

Input 0 is the normal side, input 1 the broadcast side. Law: only the broadcast side may change
broadcast state, since all tasks see its records; the normal side reads. Keys, keyed state and
timers belong to the normal side alone.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from headgate.base.elements import MIN_WATERMARK_MS, Key, Record, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import TimedContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.operators.one_input import TimerCall
from headgate.core.operators.two_inputs import KeysOf, TwoInputOperator
from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import NO_KEY
from headgate.core.state.operator_state import OperatorStates
from headgate.functions.context import TimeDomain, TimerService
from headgate.functions.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    State,
    StateDescriptor,
)

BROADCAST: Final = 1
"""The number of the broadcast side."""


class SideContext:
    """What both sides learn: the record's time, and the times of the task."""

    def __init__(self, operator: OperatorContext, states: OperatorStates) -> None:
        self.time_ms: int | None = None
        self.watermark_ms = MIN_WATERMARK_MS
        self._operator = operator
        self._states = states
        self._readable: dict[str, ReadOnlyBroadcastState[Record, Record]] = {}

    def timestamp(self) -> int:
        """The record's event time; the smallest of all times if it has none."""
        return MIN_WATERMARK_MS if self.time_ms is None else self.time_ms

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._operator.now_ms()

    def current_watermark(self) -> int:
        """The smallest of all times before the first watermark."""
        return self.watermark_ms


class NormalContext(SideContext):
    """The context of ``process_element``, which may read broadcast state."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> ReadOnlyBroadcastState[Record, Record]:
        """What the broadcast side has written so far."""
        found = self._readable.get(state_descriptor.name)
        if found is None:
            found = self._states.read_only(state_descriptor)
            self._readable[state_descriptor.name] = found
        return found


class BroadcastContext(SideContext):
    """The context of ``process_broadcast_element``, which may change broadcast state."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor
    ) -> BroadcastState[Record, Record]:
        """The task's copy; every task must change its own in the same way."""
        return self._states.get_broadcast_state(state_descriptor)


class KeyedNormalContext(NormalContext):
    """The context of ``process_element`` and ``on_timer`` on a keyed stream."""

    def __init__(
        self, operator: OperatorContext, states: OperatorStates, keyed: KeyedContext
    ) -> None:
        super().__init__(operator, states)
        self.domain = TimeDomain.EVENT_TIME
        self._keyed = keyed

    def current_watermark(self) -> int:
        return self._keyed.timers.watermark_ms

    def get_current_key(self) -> Key:
        """The key of the record or the timer."""
        return self._keyed.cursor.plain_key

    def timer_service(self) -> TimerService:
        """Event and processing time, and timers for the current key."""
        return self._keyed.timers

    def time_domain(self) -> TimeDomain:
        """In ``on_timer``: whether a timer of event time or of processing time has fired."""
        return self.domain


class KeyedBroadcastContext(BroadcastContext):
    """The context of ``process_broadcast_element`` if the other stream is keyed."""

    def __init__(
        self, operator: OperatorContext, states: OperatorStates, keyed: KeyedContext
    ) -> None:
        super().__init__(operator, states)
        self._keyed = keyed

    def current_watermark(self) -> int:
        return self._keyed.timers.watermark_ms

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Key, State], object]
    ) -> None:
        """Call ``function(key, state)`` for every key of this task that holds something in it."""
        if not isinstance(state_descriptor, StateDescriptor):
            raise TypeError(
                f"apply_to_keyed_state() was given {state_descriptor!r}; "
                f"give the descriptor of a state, for instance a ValueStateDescriptor"
            )
        keyed = self._keyed
        state = keyed.opener.open(state_descriptor)
        kind = state_descriptor.kind
        spec = StateSpec(state_descriptor.name, kind if kind in ("list", "map") else "value")
        try:
            for _, key in keyed.backend.places(spec):
                keyed.cursor.key = key
                function(keyed.cursor.plain_key, state)
        finally:
            keyed.cursor.key = NO_KEY


class BroadcastProcessOperator(TwoInputOperator):
    """``process_element`` and ``process_broadcast_element``, each with its context."""

    methods = ("process_element", "process_broadcast_element")

    def __init__(
        self, function: object, keys_of: KeysOf | None = None, batch: bool = False
    ) -> None:
        """``batch``: all of the broadcast side is read before the normal side."""
        super().__init__(function, keys_of)
        self._states = self._function.states  # the same that ``initialize_state`` gets
        self._reads_broadcast = batch

    def selection(self) -> Collection[int] | None:
        return (BROADCAST,) if self._reads_broadcast else None

    def end_input(self, number: int) -> None:
        if number == BROADCAST:
            self._reads_broadcast = False

    def watermark_advanced(self, watermark: Watermark) -> None:
        for context in self._sides:
            context.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)

    def contexts(self, context: OperatorContext) -> Sequence[TimedContext | None]:
        self._sides = self._make_contexts(context)
        return self._sides

    def _make_contexts(self, context: OperatorContext) -> tuple[SideContext, SideContext]:
        return NormalContext(context, self._states), BroadcastContext(context, self._states)


class KeyedBroadcastProcessOperator(BroadcastProcessOperator):
    """A broadcast operator with keys, state and timers on the normal side."""

    has_timers = True

    def __init__(self, function: object, key_of: Callable[[Record], Key]) -> None:
        super().__init__(function, (key_of, None))

    def watermark_advanced(self, watermark: Watermark) -> None:
        assert self._keyed is not None
        self._keyed.timers.watermark_advanced(watermark.timestamp_ms)
        self._collector.flush()
        super().watermark_advanced(watermark)

    def _make_contexts(self, context: OperatorContext) -> tuple[SideContext, SideContext]:
        keyed = self._keyed
        assert keyed is not None
        on_timer = KeyedNormalContext(context, self._states, keyed)
        self._timer_call = TimerCall(
            self._function.function, on_timer, self._collector, self.failures
        )
        return (
            KeyedNormalContext(context, self._states, keyed),
            KeyedBroadcastContext(context, self._states, keyed),
        )

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        self._timer_call.fire(time_ms, domain)
