"""Window joins and co-groups: records of two streams that share a key and a window.

::

    clicks.join(orders).where(user_of_click).equal_to(user_of_order).window(
        TumblingEventTimeWindows.of(Time.minutes(1))
    ).apply(lambda click, order: (click, order))

Law: a join gives each pair of a window once and leaves out records without a partner; a co-group
sees these too.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, TypeVar

from headgate.api.checks import check_object, check_type, key_function
from headgate.api.datastream import DataStream
from headgate.api.draft import Factory, Origin, Settled, sorted_in_batch
from headgate.api.functions import Function, KeySelector
from headgate.api.keyed import KeyedStream
from headgate.api.types.types import TypeInformation
from headgate.api.window_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from headgate.api.windowed import Windowing
from headgate.base.errors import PlanInvalid
from headgate.core.window.assigners import WindowAssigner
from headgate.core.window.joining import (
    CoGroupCall,
    FlatJoinCall,
    JoinCall,
    JoinedWindowOperator,
    SidedKey,
)
from headgate.core.window.spec import Listed, WindowCall
from headgate.plan.stream_graph import NodeKind

_Selector = Callable[[Any], Any] | KeySelector[Any, Any]
_Windows = TypeVar("_Windows", bound="TwoStreamWindows")


class TwoStreamWindows(Windowing):
    """Windows of two keyed streams; triggers, evictors and assigners see ``(side, record)``."""

    def __init__(
        self, one: KeyedStream, two: KeyedStream, assigner: WindowAssigner[Any, Any]
    ) -> None:
        super().__init__(assigner, one, two)
        self._one = one
        self._two = two

    def _then(
        self, name: str, call: CoGroupCall, output_type: TypeInformation | None
    ) -> DataStream:
        output_type = check_type(output_type, name)
        one, two = self._one, self._two
        key_of = SidedKey(one.key_of, two.key_of)
        plan = self._plan(key_of, Listed(), WindowCall("apply", call))

        def make(settled: Settled) -> Factory:
            factory = partial(JoinedWindowOperator, replace(plan, batch=settled.batch))
            return sorted_in_batch(factory, one.key_of, two.key_of)(settled)

        inputs = (one._origins, two._origins)
        functions = ((f"{call.method} function", call.function),)
        step = one._draft.add(name, NodeKind.OPERATOR, make, inputs, functions)
        step.output_type = output_type
        step.assigns_times = True  # results have the time of their window
        return DataStream(one._draft, [Origin(step)], output_type)


class JoinedWindows(TwoStreamWindows):
    """Two streams to be joined, with their windows."""

    def apply(
        self,
        function: Callable[[Any, Any], Any]
        | JoinFunction[Any, Any, Any]
        | FlatJoinFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call ``join(first, second)`` for each pair of a window when it fires.

        A FlatJoinFunction, or a function with ``yield``, gives any number of records for a pair.
        """
        join = join_function(function)
        is_flat = isinstance(function, FlatJoinFunction) or isgeneratorfunction(join)
        call = FlatJoinCall(function) if is_flat else JoinCall(function)
        return self._then("Window Join", call, output_type)


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


class CoGroupedWindows(TwoStreamWindows):
    """Two streams to be grouped together, with their windows."""

    def apply(
        self,
        function: Callable[[list[Any], list[Any]], Iterable[Any]] | CoGroupFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call ``co_group(first, second)`` with the records of a window when it fires."""
        if not callable(function) or isinstance(function, type):
            check_object(function, "apply", ("co_group",), CoGroupFunction)
        return self._then("Window Co-Group", CoGroupCall(function), output_type)


class TwoStreams(Generic[_Windows]):
    """Two streams that are to meet; say next by which keys."""

    _windows: Callable[[KeyedStream, KeyedStream, Any], _Windows]

    def __init__(self, one: DataStream, two: DataStream) -> None:
        self._one = one
        self._two = two

    def where(
        self, key_selector: _Selector, key_type: TypeInformation | None = None
    ) -> "Where[_Windows]":
        """The key of records of the first stream."""
        key_function(key_selector, "where")
        return Where(self._one.key_by(key_selector, key_type), self._two, self._windows)


class JoinedStreams(TwoStreams[JoinedWindows]):
    """Made by ``join``."""

    _windows = JoinedWindows


class CoGroupedStreams(TwoStreams[CoGroupedWindows]):
    """Made by ``co_group``."""

    _windows = CoGroupedWindows


class Where(Generic[_Windows]):
    """The first stream has its keys."""

    def __init__(
        self,
        one: KeyedStream,
        two: DataStream,
        windows: Callable[[KeyedStream, KeyedStream, Any], _Windows],
    ) -> None:
        self._one = one
        self._two = two
        self._windows = windows

    def equal_to(
        self, key_selector: _Selector, key_type: TypeInformation | None = None
    ) -> "EqualTo[_Windows]":
        """The key of records of the second stream; equal keys meet."""
        key_function(key_selector, "equal_to")
        return EqualTo(self._one, self._two.key_by(key_selector, key_type), self._windows)


class EqualTo(Generic[_Windows]):
    """Both streams have their keys."""

    def __init__(
        self,
        one: KeyedStream,
        two: KeyedStream,
        windows: Callable[[KeyedStream, KeyedStream, Any], _Windows],
    ) -> None:
        self._one = one
        self._two = two
        self._windows = windows

    def window(self, assigner: WindowAssigner[Any, Any]) -> _Windows:
        """In which windows they meet."""
        return self._windows(self._one, self._two, assigner)
