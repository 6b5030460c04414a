"""What the user's code in windows is given, and what becomes of what it returns.

One object of each kind for an operator. Law: timers and state are those of the cursor's key and
namespace, which whoever calls user code has set to the window that it is about. Everything that a
window sends has the last time of the window as its timestamp, and belongs to its receiver. With an
error policy a window that fails sends nothing, and ends as any other.
"""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Final, Protocol

from headgate.base.elements import MAX_WATERMARK_MS, Record
from headgate.core.chain.context import KeyedStates, OperatorContext, OperatorRuntimeContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.user_function import UserFunction, iterable
from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import Cursor, Namespace
from headgate.core.state.opening import StateOpener
from headgate.core.window.spec import Listed, WindowPlan
from headgate.functions.assigners import MergingWindowAssigner
from headgate.functions.context import KeyedStateStore, RuntimeContext
from headgate.functions.error_policy import FailedWindow
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
from headgate.functions.window import Window


class WindowTools:
    """Times, timers and state, for assigners, triggers and evictors.

    See ``TriggerTools``, ``MergeTools``, ``EvictorTools`` and ``AssignerContext``.
    """

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


class FiredContext:
    """What a process window function learns beside key and elements; one object, set anew."""

    def __init__(self, keyed: KeyedContext, context: OperatorContext, merges: bool) -> None:
        self.at: Window
        self._timers = keyed.timers
        self._merges = merges
        self._operator = context.operator
        self._global = KeyedStates(keyed.opener, context.operator)
        self._window = KeyedStates(Compartment(keyed, context, "window"), context.operator)

    def window(self) -> Window:
        """The window that fires."""
        return self.at

    def current_watermark(self) -> int:
        """Event time as far as it is known."""
        return self._timers.watermark_ms

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._timers.current_processing_time()

    def window_state(self) -> KeyedStateStore:
        """State of this key and this window; clear it in ``clear``."""
        if self._merges:
            raise RuntimeError(
                "window_state() is not there for windows that merge, such as sessions; "
                "use global_state()"
            )
        return self._window

    def global_state(self) -> KeyedStateStore:
        """State of this key, the same in all its windows."""
        return self._global


class Answers:
    """Calls the user's window function, if there is one, and sends on what it answers."""

    def __init__(
        self, plan: WindowPlan, sorter: Collector, failures: RecordFailures | None = None
    ) -> None:
        self._sorter = sorter
        self.tolerates = failures is not None
        """Whether a window that fails is left out."""
        self._streak = None if failures is None else failures.streak()
        self._plan = plan
        self._listed = isinstance(plan.contents, Listed)
        style = None if plan.function is None else plan.function.style
        self._method = "process" if style in ("process", "process_all") else "apply"
        self._with_key = style in ("process", "apply")
        self.user_function = (
            None if plan.function is None else UserFunction(plan.function.function, self._method)
        )
        self.clears = False
        """Whether the function wants to be told that a window has ended."""

    def open(self, context: OperatorContext, keyed: KeyedContext) -> None:
        """Open the function."""
        self._cursor: Cursor = keyed.cursor
        merges = isinstance(self._plan.assigner, MergingWindowAssigner)
        self._context = FiredContext(keyed, context, merges)
        if self.user_function is not None:
            self.user_function.open(context, keyed.opener)
            self._call = self.user_function.call
            clear = getattr(self.user_function.function, "clear", None)
            self._clear: Callable[[FiredContext], None] | None = clear
            self.clears = clear is not None and self._method == "process"

    def send(self, window: Window, contents: Record) -> None:
        """The window fires with its folded value, or a list of its records."""
        time_ms = window.max_timestamp()
        if self.user_function is None:
            self._sorter.take((contents,), time_ms)
        elif self._streak is None:
            self._call_for(window, contents, time_ms)
        else:
            before = self._sorter.mark
            try:
                self._call_for(window, contents, time_ms)
                self._streak.passed()
            except Exception as error:
                self._sorter.take_back(before)
                self.failed(error, window)

    def failed(self, error: Exception, window: Window) -> None:
        """User code has raised for the window at hand; it answers nothing.

        Raises the error if the operator has no policy for that.
        """
        if self._streak is None:
            raise error
        record = FailedWindow(self._cursor.plain_key, window)
        self._streak.failed(error, record, window.max_timestamp())

    def _call_for(self, window: Window, contents: Record, time_ms: int) -> None:
        context = self._context
        context.at = window
        about = context if self._method == "process" else window
        elements = contents if self._listed else [contents]
        if self._with_key:
            found = self._call(self._cursor.plain_key, about, elements)
        else:
            found = self._call(about, elements)
        if found is not None:
            self._sorter.take(iterable(found, f"{self._method}() of a window function"), time_ms)

    def ended(self, window: Window) -> None:
        """The window is over; its contents are gone already."""
        if self.clears and self._clear is not None:
            self._context.at = window
            try:
                self._clear(self._context)
            except Exception as error:
                self.failed(error, window)

    def flush(self) -> None:
        """Send on what was collected."""
        self._sorter.flush()

    def close(self) -> None:
        """Close the function. Idempotent."""
        if self.user_function is not None:
            self.user_function.close()


NO_TIMESTAMP: Final = (
    "a record without a timestamp came into windows in event time ({assigner}); call "
    "assign_timestamps_and_watermarks() before, or take windows in processing time"
)
