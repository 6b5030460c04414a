"""Joins of two streams: window joins, co-groups and interval joins.

::

    clicks.join(orders).where(user_of_click).equal_to(user_of_order).window(
        TumblingEventTimeWindows.of(Time.minutes(1))
    ).apply(lambda click, order: (click, order))

Law: a window join emits each pair of a window once and drops records without a partner; a co-group
sees those, too. An interval join emits a pair if ``left + lower <= right <= left + upper``, where
either bound may be exclusive.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, TypeVar

from headgate.api.checks import (
    check_object,
    check_tag,
    check_type,
    key_function,
    refuse_other_kinds,
)
from headgate.api.datastream import DataStream
from headgate.api.draft import Factory, TranslationContext, sorted_in_batch, surely_untimed
from headgate.api.keyed import KeyedStream
from headgate.api.types.types import TypeInformation
from headgate.api.windowed import Windowing
from headgate.base.errors import PlanInvalid
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.window.operator import (
    CoGroupCall,
    FlatJoinCall,
    JoinCall,
    JoinedWindowOperator,
    SidedKey,
)
from headgate.core.window.spec import Listed, WindowCall
from headgate.functions.assigners import WindowAssigner
from headgate.functions.function import Function, KeySelector, OutputTag, ProcessJoinFunction
from headgate.functions.time import whole_ms
from headgate.functions.type_variables import T, U, V
from headgate.functions.window_functions import CoGroupFunction, FlatJoinFunction, JoinFunction

_Windows = TypeVar("_Windows", bound="TwoStreamWindows")


class TwoStreamWindows(Windowing, Generic[T, U]):
    """Windows of two keyed streams; triggers, evictors and assigners see ``(side, record)``."""

    def __init__(
        self,
        first: KeyedStream[T, Any],
        second: KeyedStream[U, Any],
        assigner: WindowAssigner[Any, Any],
    ) -> None:
        super().__init__(assigner, first, second)
        self._first = first
        self._second = second

    def _transform(
        self, name: str, call: CoGroupCall, output_type: TypeInformation | None
    ) -> DataStream:
        first, second = self._first, self._second
        key_of = SidedKey(first.key_of, second.key_of)
        plan = self._plan(key_of, Listed(), WindowCall("apply", call))

        def translate(context: TranslationContext) -> Factory:
            factory = partial(JoinedWindowOperator, replace(plan, batch=context.batch))
            return sorted_in_batch(factory, first.key_of, second.key_of)(context)

        role, function = f"{call.method} function", call.function
        stream = first._transform_with(name, translate, role, function, output_type, second)
        stream._origins[0].transformation.assigns_times = True  # the time of the window
        return stream


class JoinedWindows(TwoStreamWindows[T, U]):
    """Two streams to be joined, with their windows."""

    def apply(
        self,
        function: Callable[[T, U], V] | JoinFunction[T, U, V] | FlatJoinFunction[T, U, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``join(first, second)`` for each pair of a window when it fires.

        A FlatJoinFunction, or a function with ``yield``, gives any number of records for a pair.
        """
        join = join_function(function)
        is_flat = isinstance(function, FlatJoinFunction) or isgeneratorfunction(join)
        call = FlatJoinCall(function) if is_flat else JoinCall(function)
        return self._transform("Window Join", call, output_type)


def join_function(function: object) -> Callable[..., Any]:
    """What to call for a pair; raises if there is nothing."""
    if isinstance(function, type) and issubclass(function, Function):
        raise PlanInvalid(
            f"apply() was given the class {function.__name__}; "
            f"give an object of it: {function.__name__}()"
        )
    join = getattr(function, "join", function)
    # Texts have a method of this name.
    if isinstance(function, str | bytes) or not callable(join) or iscoroutinefunction(join):
        raise PlanInvalid(
            f"apply() was given {function!r}; give a plain callable of two records, a JoinFunction "
            f"or a FlatJoinFunction"
        )
    return join


class CoGroupedWindows(TwoStreamWindows[T, U]):
    """Two streams to be grouped together, with their windows."""

    def apply(
        self,
        function: Callable[[list[T], list[U]], Iterable[V]] | CoGroupFunction[T, U, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``co_group(first, second)`` with the records of a window when it fires."""
        if not callable(function) or isinstance(function, type):
            check_object(function, "apply", ("co_group",), CoGroupFunction)
        return self._transform("Window Co-Group", CoGroupCall(function), output_type)


class TwoStreams(Generic[_Windows, T, U]):
    """Two streams that are to be joined or grouped; name the first key with ``where``."""

    _windows: Callable[[KeyedStream, KeyedStream, Any], _Windows]

    def __init__(self, first: DataStream[T], second: DataStream[U]) -> None:
        self._first = first
        self._second = second

    def where(
        self,
        key_selector: Callable[[T], object] | KeySelector[T, object],
        key_type: TypeInformation | None = None,
    ) -> "Where[_Windows, U]":
        """The key of records of the first stream."""
        key_function(key_selector, "where")
        return Where(self._first.key_by(key_selector, key_type), self._second, self._windows)


class JoinedStreams(TwoStreams[JoinedWindows[T, U], T, U]):
    """Made by ``join``."""

    _windows = JoinedWindows


class CoGroupedStreams(TwoStreams[CoGroupedWindows[T, U], T, U]):
    """Made by ``co_group``."""

    _windows = CoGroupedWindows


class Where(Generic[_Windows, U]):
    """The first stream has its keys."""

    def __init__(
        self,
        first: KeyedStream,
        second: DataStream[U],
        windows: Callable[[KeyedStream, KeyedStream, Any], _Windows],
    ) -> None:
        self._first = first
        self._second = second
        self._windows = windows

    def equal_to(
        self,
        key_selector: Callable[[U], object] | KeySelector[U, object],
        key_type: TypeInformation | None = None,
    ) -> "EqualTo[_Windows]":
        """The key of records of the second stream; equal keys meet."""
        key_function(key_selector, "equal_to")
        return EqualTo(self._first, self._second.key_by(key_selector, key_type), self._windows)


class EqualTo(Generic[_Windows]):
    """Both streams have their keys."""

    def __init__(
        self,
        first: KeyedStream,
        second: KeyedStream,
        windows: Callable[[KeyedStream, KeyedStream, Any], _Windows],
    ) -> None:
        self._first = first
        self._second = second
        self._windows = windows

    def window(self, assigner: WindowAssigner[Any, Any]) -> _Windows:
        """Set the windows in which the streams are joined or grouped."""
        return self._windows(self._first, self._second, assigner)


class IntervalJoin(Generic[T, U]):
    """Pairs of records of two keyed streams that are close in event time; say next how close.

    ::

        orders.key_by(user_of).interval_join(payments.key_by(payer_of)).between(
            Time.seconds(-1), Time.minutes(15)
        ).process(Match())
    """

    def __init__(self, stream1: KeyedStream[T, Any], stream2: KeyedStream[U, Any]) -> None:
        self._streams = (stream1, stream2)

    def in_event_time(self) -> "IntervalJoin[T, U]":
        """The default, and the only time there is for this join."""
        return self

    def in_processing_time(self) -> "IntervalJoin[T, U]":
        """Refused: a join by the clock would depend on how quick the job runs."""
        raise PlanInvalid(
            "in_processing_time() is not possible for an interval join, which needs event time; "
            "leave it out and call assign_timestamps_and_watermarks() on both streams"
        )

    def between(self, lower_bound: object, upper_bound: object) -> "IntervalJoined[T, U]":
        """How far right records may be from left ones, as Time or Duration; both ends count."""
        lower_ms = whole_ms(lower_bound, "between() was given")
        upper_ms = whole_ms(upper_bound, "between() was given")
        return IntervalJoined(self._streams, lower_ms, upper_ms)


class IntervalJoined(Generic[T, U]):
    """Two keyed streams and the interval; every method but ``process`` returns the object."""

    def __init__(
        self,
        streams: tuple[KeyedStream[T, Any], KeyedStream[U, Any]],
        lower_ms: int,
        upper_ms: int,
    ) -> None:
        _check_bounds(lower_ms, upper_ms)
        self._streams = streams
        self._interval = Interval(lower_ms, upper_ms)
        self._open_below = self._open_above = 0

    def lower_bound_exclusive(self) -> "IntervalJoined[T, U]":
        """Records at the lower bound itself are no pair."""
        self._open_below = 1
        return self

    def upper_bound_exclusive(self) -> "IntervalJoined[T, U]":
        """Records at the upper bound itself are no pair."""
        self._open_above = 1
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> "IntervalJoined[T, U]":
        """Left records that came after the watermark are to be read by this tag."""
        return self._with_late(0, output_tag, "side_output_left_late_data")

    def side_output_right_late_data(self, output_tag: OutputTag) -> "IntervalJoined[T, U]":
        """Right records that came after the watermark are to be read by this tag."""
        return self._with_late(1, output_tag, "side_output_right_late_data")

    def process(
        self,
        process_join_function: ProcessJoinFunction[T, U, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``process_element(left, right, ctx)`` for each pair."""
        function = process_join_function
        check_object(function, "process", ("process_element",), ProcessJoinFunction)
        refuse_other_kinds(function, "process", (ProcessJoinFunction,))
        check_type(output_type, "process")
        first, second = self._streams
        for side, stream in (("left", first), ("right", second)):
            if surely_untimed(stream._origins):
                raise PlanInvalid(
                    f"an interval join needs event time, and the records on its {side} have no "
                    f"timestamps; call assign_timestamps_and_watermarks() before key_by()"
                )
        lower_ms, upper_ms, tags = self._interval
        interval = Interval(lower_ms + self._open_below, upper_ms - self._open_above, tags)
        _check_bounds(interval.lower_ms, interval.upper_ms)
        factory = partial(IntervalJoinOperator, function, first.key_of, second.key_of, interval)
        translate = sorted_in_batch(factory, first.key_of, second.key_of)
        name, role = "Interval Join", "join function"
        pairs = first._transform_with(name, translate, role, function, output_type, second)
        pairs._origins[0].transformation.assigns_times = True
        return pairs

    def _with_late(self, number: int, tag: object, caller: str) -> "IntervalJoined[T, U]":
        late = check_tag(tag, caller).tag_id
        left, right = self._interval.late_tags
        tags = (left, late) if number else (late, right)
        self._interval = self._interval._replace(late_tags=tags)
        return self


def _check_bounds(lower_ms: int, upper_ms: int) -> None:
    if lower_ms > upper_ms:
        raise PlanInvalid(
            f"the interval of the join goes from {lower_ms} to {upper_ms} ms, so that no pair can "
            f"be in it; give between() a lower bound that is not above the upper one"
        )
