"""ConnectedStreams: two streams, each with its own type, and first function for both.

One of them may be a broadcast stream, which every task gets and remembers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic

from headgate.api.checks import check_object, check_type, key_function
from headgate.api.datastream import BroadcastStream, DataStream
from headgate.api.draft import (
    Factory,
    Translate,
    TranslationContext,
    fixed,
    sorted_in_batch,
)
from headgate.api.keyed import KeyedStream
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.user_function import UserFunction
from headgate.core.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
    TwoInputOperator,
)
from headgate.functions.broadcast_functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from headgate.functions.function import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from headgate.functions.type_variables import T, U, V


class ConnectedStreams(Generic[T, U]):
    """Made by ``connect``; it has keys if both streams have.

    ::

        orders.connect(rates).key_by(lambda o: o.currency, lambda r: r.currency).process(Join())
    """

    def __init__(self, stream1: DataStream[T], stream2: DataStream[U]) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[T], object] | KeySelector[T, object],
        key_selector2: Callable[[U], object] | KeySelector[U, object],
        key_type: TypeInformation | None = None,
    ) -> "ConnectedStreams[T, U]":
        """Equal keys of both streams to the same task; keys that they had are replaced."""
        first = key_function(key_selector1, "key_by")
        second = key_function(key_selector2, "key_by")
        check_type(key_type, "key_by")
        return ConnectedStreams(
            KeyedStream(_unkeyed(self.stream1), first, key_type),
            KeyedStream(_unkeyed(self.stream2), second, key_type),
        )

    def map(
        self, func: CoMapFunction[T, U, V], output_type: TypeInformation | None = None
    ) -> DataStream[V]:
        """``map1`` for records of the first stream, ``map2`` for those of the second."""
        check_object(func, "map", ("map1", "map2"), CoMapFunction)
        return self._transform("Co-Map", self._with_state(CoMapOperator, func), func, output_type)

    def flat_map(
        self, func: CoFlatMapFunction[T, U, V], output_type: TypeInformation | None = None
    ) -> DataStream[V]:
        """``flat_map1`` for records of the first stream, ``flat_map2`` for those of the second."""
        check_object(func, "flat_map", ("flat_map1", "flat_map2"), CoFlatMapFunction)
        translate = self._with_state(CoFlatMapOperator, func)
        return self._transform("Co-Flat Map", translate, func, output_type)

    def process(
        self,
        func: CoProcessFunction[T, U, V] | KeyedCoProcessFunction[Any, T, U, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """``process_element1`` and ``process_element2``, with a context and side outputs."""
        check_object(func, "process", ("process_element1", "process_element2"), CoProcessFunction)
        first, second = self.stream1, self.stream2
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            keyed = partial(KeyedCoProcessOperator, func, first.key_of, second.key_of)
            translate = sorted_in_batch(keyed, first.key_of, second.key_of)
            return self._transform("Keyed Co-Process", translate, func, output_type)
        if isinstance(func, KeyedCoProcessFunction):
            where = _without_keys(first, second)
            raise PlanInvalid(
                f"process() was given {type(func).__name__}, a KeyedCoProcessFunction, on {where}; "
                f"call key_by() with two selectors before, or make it a CoProcessFunction"
            )
        plain = fixed(partial(CoProcessOperator, func))
        return self._transform("Co-Process", plain, func, output_type)

    def _transform(
        self, name: str, translate: Translate, func: object, output_type: TypeInformation | None
    ) -> DataStream:
        role = f"{name.lower()} function"
        return self.stream1._transform_with(name, translate, role, func, output_type, self.stream2)

    def _with_state(self, operator: type[TwoInputOperator], func: object) -> Translate:
        """Keys and state only for functions that can ask for it; the rest runs quicker without."""
        first, second = self.stream1, self.stream2
        if (
            isinstance(first, KeyedStream)
            and isinstance(second, KeyedStream)
            and UserFunction(func, "").opens
        ):
            keyed = partial(operator, func, (first.key_of, second.key_of))
            return sorted_in_batch(keyed, first.key_of, second.key_of)
        return fixed(partial(operator, func))


class BroadcastConnectedStream(Generic[T, U]):
    """Made by ``connect`` with a broadcast stream; it has keys if the other stream has."""

    def __init__(self, stream: DataStream[T], broadcast_stream: BroadcastStream[U]) -> None:
        self.non_broadcast_stream = stream
        self.broadcast_stream = broadcast_stream

    def process(
        self,
        func: BroadcastProcessFunction[T, U, V] | KeyedBroadcastProcessFunction[Any, T, U, V],
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """``process_element`` for first stream, ``process_broadcast_element`` for the broadcast."""
        stream = self.non_broadcast_stream
        keyed = isinstance(stream, KeyedStream)
        kind = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        other = BroadcastProcessFunction if keyed else KeyedBroadcastProcessFunction
        check_object(func, "process", ("process_element", "process_broadcast_element"), kind)
        if isinstance(func, other):
            raise PlanInvalid(
                f"process() was given {type(func).__name__}, a {other.__name__}, on a stream "
                f"{'with' if keyed else 'without'} keys; make it a {kind.__name__}, or "
                f"{'leave out' if keyed else 'call'} key_by() before connect()"
            )
        broadcast = self.broadcast_stream.input_stream
        if isinstance(stream, KeyedStream):
            factory = partial(KeyedBroadcastProcessOperator, func, stream.key_of)
            name = "Keyed Broadcast Process"
            translate = sorted_in_batch(factory, stream.key_of, None)
        else:
            name, translate = "Broadcast Process", partial(_broadcast_operator, func)
        role = f"{name.lower()} function"
        return stream._transform_with(name, translate, role, func, output_type, broadcast)


def _broadcast_operator(func: object, context: TranslationContext) -> Factory:
    return partial(BroadcastProcessOperator, func, None, context.batch)


def _unkeyed(stream: DataStream[T]) -> DataStream[T]:
    return stream.original if isinstance(stream, KeyedStream) else stream


def _without_keys(first: DataStream, second: DataStream) -> str:
    """Which of two streams has no keys, in words."""
    if isinstance(first, KeyedStream):
        return "a second stream without keys"
    return (
        "a first stream without keys" if isinstance(second, KeyedStream) else "streams without keys"
    )
