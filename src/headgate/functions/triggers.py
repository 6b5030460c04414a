"""Triggers: when the result of a window is sent, and when what it holds is dropped.

A trigger is one object for all keys and windows; what it must remember for one of them it keeps in
``ctx.get_partitioned_state``. Law: a trigger that says ``can_merge`` gives, after ``on_merge``, for
the merged window what it would have given had all records come into that window.
"""

from abc import ABC, abstractmethod
from enum import Enum
from operator import add
from typing import Final, Generic, Protocol, TypeAlias

from headgate.base.elements import MAX_WATERMARK_MS, Record
from headgate.base.errors import PlanInvalid
from headgate.functions.state import ReducingStateDescriptor, StateDescriptor
from headgate.functions.time import whole_ms
from headgate.functions.type_variables import IN, W


class TriggerResult(Enum):
    """What a trigger wants: whether to send the result, whether to drop the contents."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


CONTINUE: Final = TriggerResult.CONTINUE
FIRE: Final = TriggerResult.FIRE


class TriggerTools(Protocol):
    """Times, timers and state, for the key and the window at hand."""

    def get_current_processing_time(self) -> int: ...

    def get_current_watermark(self) -> int: ...

    def get_metric_group(self) -> Record: ...

    def register_processing_time_timer(self, time: int) -> None: ...

    def register_event_time_timer(self, time: int) -> None: ...

    def delete_processing_time_timer(self, time: int) -> None: ...

    def delete_event_time_timer(self, time: int) -> None: ...

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Record:
        """A state of its own for each key and window."""


class MergeTools(TriggerTools, Protocol):
    """Tools for the window that others were merged into."""

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Put what the merged windows had in this state into that of the new window."""


class Trigger(ABC, Generic[IN, W]):
    """Base of all triggers, also of a user's own."""

    TriggerContext: TypeAlias = TriggerTools
    OnMergeContext: TypeAlias = MergeTools

    @abstractmethod
    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools, /
    ) -> TriggerResult:
        """A record was put into the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerTools, /) -> TriggerResult:
        """A timer that was registered with ``ctx`` is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerTools, /) -> TriggerResult:
        """A timer that was registered with ``ctx`` is due."""

    def can_merge(self) -> bool:
        """Whether it can be used with session windows, and has ``on_merge``."""
        return False

    def on_merge(self, window: W, ctx: MergeTools, /) -> None:
        """Several windows became this one."""
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows")

    @abstractmethod
    def clear(self, window: W, ctx: TriggerTools, /) -> None:
        """The window has ended: drop its state and timers."""


class _MergingTrigger(Trigger[IN, W]):
    """Base of the triggers below: they can merge, and ignore timers that they have not set."""

    def on_processing_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True


class EventTimeTrigger(_MergingTrigger[IN, W]):
    """Fires when the watermark passes the end of the window, and for each late record."""

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        last_ms = window.max_timestamp()
        if last_ms <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(last_ms)
        return CONTINUE

    def on_event_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        last_ms = window.max_timestamp()
        if last_ms > ctx.get_current_watermark():
            ctx.register_event_time_timer(last_ms)

    def clear(self, window: W, ctx: TriggerTools) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> "EventTimeTrigger[Record, Record]":
        return EventTimeTrigger()


class ProcessingTimeTrigger(_MergingTrigger[IN, W]):
    """Fires when the clock passes the end of the window."""

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: W, ctx: TriggerTools) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> "ProcessingTimeTrigger[Record, Record]":
        return ProcessingTimeTrigger()


class CountTrigger(_MergingTrigger[IN, W]):
    """Fires when so many records have come since it last fired. It drops nothing."""

    def __init__(self, window_size: int) -> None:
        if type(window_size) is not int or window_size < 1:
            raise PlanInvalid(
                f"CountTrigger was given {window_size!r}; give a number of records from 1 on"
            )
        self._size = window_size
        self._count = ReducingStateDescriptor("trigger-count", add)

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._size:
            return CONTINUE
        count.clear()
        return FIRE

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: W, ctx: TriggerTools) -> None:
        ctx.get_partitioned_state(self._count).clear()

    @staticmethod
    def of(window_size: int) -> "CountTrigger[Record, Record]":
        return CountTrigger(window_size)


class PurgingTrigger(Trigger[IN, W]):
    """Fires when another trigger does, and drops the contents then."""

    def __init__(self, nested_trigger: Trigger[IN, W]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise PlanInvalid(f"PurgingTrigger was given {nested_trigger!r}; give a Trigger")
        self.nested_trigger = nested_trigger

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: TriggerTools) -> None:
        self.nested_trigger.clear(window, ctx)

    @staticmethod
    def of(nested_trigger: Trigger[IN, W]) -> "PurgingTrigger[IN, W]":
        return PurgingTrigger(nested_trigger)


class _Continuous(_MergingTrigger[IN, W]):
    """Fires at intervals; the next time is remembered for each window."""

    def __init__(self, interval: int) -> None:
        self._interval_ms = _positive(interval, type(self).__name__)
        self._next = ReducingStateDescriptor("trigger-fire-time", min)

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        ctx.merge_partitioned_state(self._next)
        due_ms = ctx.get_partitioned_state(self._next).get()
        if due_ms is not None:
            self._set_timer(due_ms, ctx)

    def clear(self, window: W, ctx: TriggerTools) -> None:
        due = ctx.get_partitioned_state(self._next)
        due_ms = due.get()
        if due_ms is not None:
            self._delete_timer(due_ms, ctx)
            due.clear()

    def _begin(self, time: int, window: W, ctx: TriggerTools) -> None:
        """Set a timer for the next whole interval after this time, unless one is set already."""
        if ctx.get_partitioned_state(self._next).get() is None:
            self._register(time - time % self._interval_ms, window, ctx)

    def _is_due(self, time: int, ctx: TriggerTools) -> bool:
        """Whether this is the time that was set; then none is any more."""
        due = ctx.get_partitioned_state(self._next)
        if due.get() != time:
            return False
        due.clear()
        return True

    def _register(self, time: int, window: W, ctx: TriggerTools) -> None:
        due_ms = min(time + self._interval_ms, window.max_timestamp())
        if due_ms > time:  # at the end of the window there is no next time
            ctx.get_partitioned_state(self._next).add(due_ms)
            self._set_timer(due_ms, ctx)

    @abstractmethod
    def _set_timer(self, time: int, ctx: TriggerTools) -> None: ...

    @abstractmethod
    def _delete_timer(self, time: int, ctx: TriggerTools) -> None: ...


class ContinuousEventTimeTrigger(_Continuous[IN, W]):
    """Fires each time the watermark passes another interval, and at the end of the window."""

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        last_ms = window.max_timestamp()
        if last_ms <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(last_ms)
        self._begin(timestamp, window, ctx)
        return CONTINUE

    def on_event_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        last_ms = window.max_timestamp()
        if time == last_ms:
            return FIRE
        if not self._is_due(time, ctx):
            return CONTINUE
        # A window without end would be fired for ever when the input has ended.
        if not last_ms == MAX_WATERMARK_MS == ctx.get_current_watermark():
            self._register(time, window, ctx)
        return FIRE

    def clear(self, window: W, ctx: TriggerTools) -> None:
        super().clear(window, ctx)
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def of(interval: object) -> "ContinuousEventTimeTrigger[Record, Record]":
        given = "ContinuousEventTimeTrigger.of() was given"
        return ContinuousEventTimeTrigger(whole_ms(interval, given))

    def _set_timer(self, time: int, ctx: TriggerTools) -> None:
        ctx.register_event_time_timer(time)

    def _delete_timer(self, time: int, ctx: TriggerTools) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_Continuous[IN, W]):
    """Fires each time the clock passes another interval, as long as records have come."""

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return CONTINUE

    def on_processing_time(self, time: int, window: W, ctx: TriggerTools) -> TriggerResult:
        if not self._is_due(time, ctx):
            return CONTINUE
        self._register(time, window, ctx)
        return FIRE

    @staticmethod
    def of(interval: object) -> "ContinuousProcessingTimeTrigger[Record, Record]":
        given = "ContinuousProcessingTimeTrigger.of() was given"
        return ContinuousProcessingTimeTrigger(whole_ms(interval, given))

    def _set_timer(self, time: int, ctx: TriggerTools) -> None:
        ctx.register_processing_time_timer(time)

    def _delete_timer(self, time: int, ctx: TriggerTools) -> None:
        ctx.delete_processing_time_timer(time)


class NeverTrigger(_MergingTrigger[IN, W]):
    """Never fires: what a global window has unless another trigger is given."""

    def on_element(
        self, element: IN, timestamp: int, window: W, ctx: TriggerTools
    ) -> TriggerResult:
        return CONTINUE

    def on_merge(self, window: W, ctx: MergeTools) -> None:
        pass

    def clear(self, window: W, ctx: TriggerTools) -> None:
        pass


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


def _positive(interval_ms: int, caller: str) -> int:
    if type(interval_ms) is not int or interval_ms < 1:
        raise PlanInvalid(f"{caller} was given {interval_ms!r}; give milliseconds from 1 on")
    return interval_ms
