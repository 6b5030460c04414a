"""Windowed streams: records of a key, or of all keys, that are put together by time or number.

Reduce and aggregate fold records as they come, so that a window keeps one value; process and apply
get all records of a window when it fires. Law: results carry the last time of their window.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

from headgate.api.checks import check_field, check_function, check_object, check_tag, check_type
from headgate.api.datastream import DataStream
from headgate.api.draft import (
    Factory,
    KeyOf,
    TranslationContext,
    sorted_in_batch,
    surely_untimed,
)
from headgate.api.types.types import TypeInformation
from headgate.base.elements import Key, Record
from headgate.base.errors import PlanInvalid
from headgate.core.operators.reduce import Aggregation, Aggregator
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import (
    Aggregated,
    Contents,
    Listed,
    Reduced,
    Style,
    WindowCall,
    WindowPlan,
)
from headgate.functions.assigners import MergingWindowAssigner, WindowAssigner
from headgate.functions.evictors import Evictor
from headgate.functions.function import OutputTag, ReduceFunction, Reduces
from headgate.functions.time import measured_ms
from headgate.functions.triggers import Trigger
from headgate.functions.type_variables import IN, MK, OUT, K, T, V, W
from headgate.functions.window_functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

if TYPE_CHECKING:
    from headgate.api.environment import StreamExecutionEnvironment

_Self = TypeVar("_Self", bound="Windowing")
_Windows = TypeVar("_Windows", bound="Windows")


class Windowing:
    """Windows of some streams; every method returns the object itself."""

    _caller = "window"

    def __init__(self, assigner: WindowAssigner[Any, Any], *streams: DataStream) -> None:
        example = "TumblingEventTimeWindows.of(Time.seconds(5))"
        check_kind(assigner, self._caller, WindowAssigner, example)
        self._assigner = assigner
        self._environment = streams[0].get_execution_environment()
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness_ms = 0
        if assigner.is_event_time():
            for stream in streams:
                _refuse_untimed(stream, assigner)

    def trigger(self: _Self, trigger: Trigger[Any, Any]) -> _Self:
        """When windows fire, instead of the assigner's own rule."""
        check_kind(trigger, "trigger", Trigger, "CountTrigger.of(100)")
        if self._merges and not trigger.can_merge():
            raise PlanInvalid(
                f"trigger() was given {type(trigger).__name__}, which cannot merge, on "
                f"{type(self._assigner).__name__}, whose windows merge; write its can_merge() and "
                f"on_merge(), or take windows that do not merge"
            )
        self._trigger = trigger
        return self

    def evictor(self: _Self, evictor: Evictor[Any, Any]) -> _Self:
        """Remove records from a window before or after it fires; it keeps all until then."""
        check_kind(evictor, "evictor", Evictor, "CountEvictor.of(10)")
        self._evictor = evictor
        return self

    def allowed_lateness(self: _Self, time_ms: object) -> _Self:
        """How long after its end an event-time window still takes late records and fires again.

        Milliseconds, a ``Time`` or a ``Duration``. Windows in processing time have no late records.
        """
        self._lateness_ms = _span_ms(time_ms)
        return self

    def get_execution_environment(self) -> "StreamExecutionEnvironment":
        return self._environment

    @property
    def _merges(self) -> bool:
        return isinstance(self._assigner, MergingWindowAssigner)

    def _plan(
        self,
        key_of: KeyOf,
        contents: Contents,
        function: WindowCall | None,
        late_tag: str | None = None,
    ) -> WindowPlan:
        """The plan as it is now; later settings hold for later operators only."""
        trigger = self._trigger or self._assigner.get_default_trigger(self._environment)
        return WindowPlan(
            key_of,
            self._assigner,
            trigger,
            contents,
            function,
            evictor=self._evictor,
            lateness_ms=self._lateness_ms,
            late_tag=late_tag,
        )


def check_kind(given: object, caller: str, kind: type, example: str) -> None:
    """An object of this kind; the class itself is a slip."""
    if isinstance(given, type) and issubclass(given, kind):
        raise PlanInvalid(
            f"{caller}() was given the class {given.__name__}; give an object, such as {example}"
        )
    if not isinstance(given, kind):
        raise PlanInvalid(
            f"{caller}() was given {given!r}; give a {kind.__name__}, such as {example}"
        )


def _span_ms(span: Any) -> int:
    span_ms = span if type(span) is int else measured_ms(span)
    if span_ms is None or span_ms < 0:
        given = span if span_ms is None else span_ms
        raise PlanInvalid(
            f"allowed_lateness() was given {given!r}; give milliseconds, 0 or more, or a Duration"
        )
    return span_ms


def _refuse_untimed(stream: DataStream, assigner: object) -> None:
    if surely_untimed(stream._origins):
        raise PlanInvalid(
            f"{type(assigner).__name__} are windows in event time, and the records of this stream "
            f"have no timestamps; call assign_timestamps_and_watermarks() before, or take windows "
            f"in processing time"
        )


_WindowFunction: TypeAlias = (
    ProcessWindowFunction[IN, OUT, Any, Any]
    | WindowFunction[IN, OUT, Any, Any]
    | ProcessAllWindowFunction[IN, OUT, Any]
    | AllWindowFunction[IN, OUT, Any]
)


class Windows(Windowing, Generic[T]):
    """Base of windows with and without keys."""

    _kinds: tuple[type, type]
    """Classes of functions for ``process`` and ``apply``."""
    _styles: tuple[Style, Style]
    _prefix = "Window"

    def __init__(
        self, stream: DataStream[T], key_of: KeyOf, assigner: WindowAssigner[Any, Any]
    ) -> None:
        super().__init__(assigner, stream)
        self._stream = stream
        self._key_of = key_of
        self._late_tag: OutputTag | None = None

    def side_output_late_data(self: _Windows, output_tag: OutputTag) -> _Windows:
        """Records that are too late go to this side output; without it they are dropped.

        Read them with ``get_side_output(output_tag)`` of the result.
        """
        caller, known = "side_output_late_data", self._late_tag
        self._late_tag = check_tag(output_tag, caller, known, "late records")
        return self

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], V] | Reduces[T, V],
        window_function: None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], MK] | Reduces[T, MK],
        window_function: _WindowFunction[MK, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]: ...

    def reduce(
        self,
        reduce_function: object,
        window_function: object = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of a window into one: ``.reduce(lambda a, b: a + b)``.

        The window function, if there is one, gets that single record.
        """
        check_function(reduce_function, "reduce", ReduceFunction)
        if window_function is None and output_type is None:
            output_type = self._stream._type
        reduced = Reduced(reduce_function)
        return self._fold("Reduce", reduced, reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, V],
        window_function: None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, MK],
        window_function: _WindowFunction[MK, V],
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: object = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Fold the records of a window into an accumulator, and send its result.

        The window function, if there is one, gets that single result.
        """
        check_object(
            aggregate_function,
            "aggregate",
            ("create_accumulator", "add", "get_result"),
            AggregateFunction,
        )
        check_type(accumulator_type, "aggregate")
        if self._merges and not _can_merge(aggregate_function):
            raise PlanInvalid(
                f"aggregate() was given {type(aggregate_function).__name__}, which has no "
                f"merge(acc_a, acc_b), on {type(self._assigner).__name__}, whose windows merge; "
                f"write that method"
            )
        aggregated = Aggregated(aggregate_function, accumulator_type)
        return self._fold("Aggregate", aggregated, aggregate_function, window_function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """The sum of one field; the other fields are those of the window's first record."""
        return self._field("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """The smallest value of one field; the other fields are those of the first record."""
        return self._field("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """The largest value of one field; the other fields are those of the first record."""
        return self._field("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """The whole record with the smallest value, the first of equal ones."""
        return self._field("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """The whole record with the largest value, the first of equal ones."""
        return self._field("max_by", position_to_max_by)

    def get_input_type(self) -> TypeInformation:
        """The declared type of the input records."""
        return self._stream.get_type()

    def _listed(
        self, name: str, caller: str, func: object, output_type: TypeInformation | None
    ) -> DataStream:
        call = self._called(func, caller, caller)
        return self._transform(name, Listed(), call, (("window function", func),), output_type)

    def _fold(
        self,
        name: str,
        contents: Contents,
        fold: object,
        window_function: object,
        output_type: TypeInformation | None,
    ) -> DataStream:
        functions: tuple[tuple[str, object], ...] = ((f"{name.lower()} function", fold),)
        call = None
        if window_function is not None:
            method = "process" if hasattr(window_function, "process") else "apply"
            call = self._called(window_function, method, name.lower())
            functions += (("window function", window_function),)
        return self._transform(name, contents, call, functions, output_type)

    def _field(self, kind: Aggregation, position: int | str) -> DataStream:
        check_field(position, kind)
        reduced = Reduced(Aggregator(kind, position))
        name = kind.replace("_", " ").title()
        functions = (("position", position),)
        return self._transform(name, reduced, None, functions, self._stream._type)

    def _called(self, func: object, method: str, caller: str) -> WindowCall:
        """The function of a window, if it is of the right kind."""
        number = ("process", "apply").index(method)
        kind = self._kinds[number]
        if isinstance(func, _ALL_KINDS) and not isinstance(func, self._kinds):
            raise PlanInvalid(
                f"{caller}() was given {type(func).__name__}, which is no function for windows "
                f"{self._with_keys}; derive it from {kind.__name__}"
            )
        check_object(func, caller, (method,), kind)
        return WindowCall(self._styles[number], func)

    _with_keys = "of a keyed stream"

    def _transform(
        self,
        name: str,
        contents: Contents,
        call: WindowCall | None,
        functions: tuple[tuple[str, object], ...],
        output_type: TypeInformation | None,
    ) -> DataStream:
        tag = self._late_tag.tag_id if self._late_tag is not None else None
        plan = self._plan(self._key_of, contents, call, tag)

        def translate(context: TranslationContext) -> Factory:
            factory = partial(WindowOperator, replace(plan, batch=context.batch))
            return sorted_in_batch(factory, self._key_of)(context)

        (role, function), *others = functions
        name = f"{self._prefix} {name}"
        stream = self._stream._transform_with(name, translate, role, function, output_type)
        transformation = stream._transformation(name)
        transformation.functions += tuple(others)
        transformation.assigns_times = True  # results have the time of their window
        return stream


class WindowedStream(Windows[T], Generic[T, K, W]):
    """Made by ``window`` and ``count_window`` of a keyed stream: windows of each key.

    ::

        stream.key_by(user_of).window(TumblingEventTimeWindows.of(Time.minutes(1))).sum(1)
    """

    _kinds = (ProcessWindowFunction, WindowFunction)
    _styles = ("process", "apply")

    def process(
        self,
        process_window_function: ProcessWindowFunction[T, V, K, W],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``process(key, context, elements)`` when a window fires."""
        return self._listed("Process", "process", process_window_function, output_type)

    def apply(
        self,
        window_function: WindowFunction[T, V, K, W],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``apply(key, window, inputs)`` when a window fires."""
        return self._listed("Apply", "apply", window_function, output_type)


class AllWindowedStream(Windows[T], Generic[T, W]):
    """Made by ``window_all`` and ``count_window_all``: windows of all records, in one task."""

    _kinds = (ProcessAllWindowFunction, AllWindowFunction)
    _styles = ("process_all", "apply_all")
    _prefix = "Window All"
    _caller = "window_all"
    _with_keys = "without keys"

    def __init__(self, stream: DataStream[T], assigner: WindowAssigner[T, W]) -> None:
        super().__init__(stream, no_key, assigner)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[T, V, W],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``process(context, elements)`` when a window fires."""
        return self._listed("Process", "process", process_window_function, output_type)

    def apply(
        self,
        window_function: AllWindowFunction[T, V, W],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``apply(window, inputs)`` when a window fires."""
        return self._listed("Apply", "apply", window_function, output_type)

    def _transform(
        self,
        name: str,
        contents: Contents,
        call: WindowCall | None,
        functions: tuple[tuple[str, object], ...],
        output_type: TypeInformation | None,
    ) -> DataStream:
        stream = super()._transform(name, contents, call, functions, output_type)
        return stream.force_non_parallel()


_ALL_KINDS: Final = (
    ProcessWindowFunction,
    WindowFunction,
    ProcessAllWindowFunction,
    AllWindowFunction,
)


def no_key(record: Record) -> Key:
    """The one key of windows without keys."""
    return None


def _can_merge(function: object) -> bool:
    merge = getattr(type(function), "merge", None) or getattr(function, "merge", None)
    return merge is not None and merge is not AggregateFunction.merge
