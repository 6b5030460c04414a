"""What assigners, triggers and evictors are handed: times, timers and state of a key and a window.

One object for an operator. Law: timers and state are those of the cursor's key and namespace, which
whoever calls user code has set to the window that it is about.
"""

from collections.abc import Iterable
from copy import copy
from typing import Protocol

from headgate.base.elements import MAX_WATERMARK_MS, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.runtime import OperatorRuntimeContext
from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import Namespace
from headgate.core.state.opening import StateOpener
from headgate.functions.context import RuntimeContext
from headgate.functions.metrics import MetricGroup
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
)


class WindowTools:
    """See ``TriggerTools``, ``MergeTools``, ``EvictorTools`` and ``AssignerContext``."""

    def __init__(self, keyed: KeyedContext, context: OperatorContext) -> None:
        timers = keyed.timers
        self.get_current_processing_time = context.now_ms
        self.register_event_time_timer = timers.register_event_time_timer
        self.delete_event_time_timer = timers.delete_event_time_timer
        self.merged: list[Namespace] = []
        """The windows that have become the one at hand."""
        self._timers = timers
        self._keyed = keyed
        self._runtime = OperatorRuntimeContext(context, keyed.opener)
        self._states = Compartment(keyed, context, "trigger")

    def register_processing_time_timer(self, time: int) -> None:
        """It fires when the millisecond is over: until then records of it may come."""
        self._timers.register_processing_time_timer(min(time + 1, MAX_WATERMARK_MS))

    def delete_processing_time_timer(self, time: int) -> None:
        """Nothing happens if there is none."""
        self._timers.delete_processing_time_timer(min(time + 1, MAX_WATERMARK_MS))

    def get_current_watermark(self) -> int:
        """Event time as far as it is known."""
        return self._timers.watermark_ms

    def get_metric_group(self) -> MetricGroup:
        """Figures of the user's own."""
        return self._runtime.get_metrics_group()

    def get_runtime_context(self) -> RuntimeContext:
        """With state of the key at hand."""
        return self._runtime

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        """The trigger's own state."""
        return self._states.open(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """From ``merged`` into the window at hand."""
        state = self._states.open(state_descriptor)
        if isinstance(state_descriptor, AggregatingStateDescriptor):
            name = self._states.name_of(state_descriptor)
            value = self._keyed.backend.value_state(StateSpec(name, "value", namespaced=True))
            merge = state_descriptor.agg_function.merge
            merge_values(self._keyed, value, merge, self._keyed.cursor.namespace, self.merged)
        elif isinstance(state_descriptor, ReducingStateDescriptor):
            assert isinstance(state, ReducingState)
            for value in self._taken(state):
                state.add(value)
        elif isinstance(state, ListState):
            for values in self._taken(state):
                state.add_all(list(values))
        else:
            raise TypeError(
                f"{state_descriptor!r} cannot be merged: a trigger for windows that merge keeps "
                f"its state in reducing, aggregating or list state"
            )

    def _taken(self, state: "ReducingState[Record] | ListState[Record]") -> list[Record]:
        """What the state held in the merged windows; it is empty there now."""
        cursor, taken = self._keyed.cursor, []
        target = cursor.namespace
        for window in self.merged:
            cursor.namespace = window
            held = state.get()
            if held is not None:
                taken.append(held)
            state.clear()
        cursor.namespace = target
        return taken


class Compartment:
    """States by key and window, apart from states of the same name elsewhere in the operator."""

    def __init__(self, keyed: KeyedContext, context: OperatorContext, prefix: str) -> None:
        self._prefix = prefix
        self._opener = StateOpener(keyed.backend, context.now_ms, True, context.shapes)
        self._opened: dict[str, tuple[str, State]] = {}

    def name_of(self, descriptor: StateDescriptor) -> str:
        """Under which the backend knows it."""
        return f"{self._prefix}: {descriptor.name}"

    def open(self, descriptor: StateDescriptor) -> State:
        """The state; asked for again and again, once for each record."""
        found = self._opened.get(descriptor.name)
        if found is not None and found[0] == descriptor.kind:
            return found[1]
        renamed = copy(descriptor)
        renamed.name = self.name_of(descriptor)
        state = self._opener.open(renamed)
        self._opened[descriptor.name] = descriptor.kind, state
        return state


class Merge(Protocol):
    """Two folded values in one."""

    def __call__(self, first: Record, second: Record, /) -> Record: ...


def merge_values(
    keyed: KeyedContext,
    value: ValueState[Record],
    merge: Merge,
    target: Namespace,
    sources: Iterable[Namespace],
) -> None:
    """Fold what the state holds in ``sources`` into what it holds in ``target``."""
    cursor = keyed.cursor
    back = cursor.namespace
    cursor.namespace = target
    merged = value.value()
    for source in sources:
        cursor.namespace = source
        held = value.value()
        if held is not None:
            merged = held if merged is None else merge(merged, held)
            value.clear()
    cursor.namespace = target
    if merged is not None:
        value.update(merged)
    cursor.namespace = back
