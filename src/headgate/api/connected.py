"""ConnectedStreams: two streams, each with its own type, and one function for both."""

from collections.abc import Callable
from functools import partial
from typing import Any

from headgate.api.checks import check_object, check_type, key_function
from headgate.api.datastream import DataStream
from headgate.api.draft import Factory, Origin, ready
from headgate.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from headgate.api.keyed import KeyedStream
from headgate.api.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
)
from headgate.plan.stream_graph import NodeKind


class ConnectedStreams:
    """Made by ``connect``; it has keys if both streams have.

    ::

        orders.connect(rates).key_by(lambda o: o.currency, lambda r: r.currency).process(Join())
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector[Any, Any],
        key_selector2: Callable[[Any], Any] | KeySelector[Any, Any],
        key_type: TypeInformation | None = None,
    ) -> "ConnectedStreams":
        """Equal keys of both streams to the same task; keys that they had are replaced."""
        first = key_function(key_selector1, "key_by")
        second = key_function(key_selector2, "key_by")
        check_type(key_type, "key_by")
        return ConnectedStreams(
            KeyedStream(_unkeyed(self.stream1), first, key_type),
            KeyedStream(_unkeyed(self.stream2), second, key_type),
        )

    def map(
        self, func: CoMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """``map1`` for records of the first stream, ``map2`` for those of the second."""
        check_object(func, "map", ("map1", "map2"), CoMapFunction)
        return self._then("Co-Map", partial(CoMapOperator, func), func, output_type)

    def flat_map(
        self, func: CoFlatMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """``flat_map1`` for records of the first stream, ``flat_map2`` for those of the second."""
        check_object(func, "flat_map", ("flat_map1", "flat_map2"), CoFlatMapFunction)
        return self._then("Co-Flat Map", partial(CoFlatMapOperator, func), func, output_type)

    def process(
        self,
        func: CoProcessFunction[Any, Any, Any] | KeyedCoProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """``process_element1`` and ``process_element2``, with a context and side outputs."""
        check_object(func, "process", ("process_element1", "process_element2"), CoProcessFunction)
        one, two = self.stream1, self.stream2
        if isinstance(one, KeyedStream) and isinstance(two, KeyedStream):
            keyed = partial(KeyedCoProcessOperator, func, one.key_of, two.key_of)
            return self._then("Keyed Co-Process", keyed, func, output_type)
        if isinstance(func, KeyedCoProcessFunction):
            raise PlanInvalid(
                f"process() was given {type(func).__name__}, a KeyedCoProcessFunction, on streams "
                f"without keys; call key_by() before, or make it a CoProcessFunction"
            )
        return self._then("Co-Process", partial(CoProcessOperator, func), func, output_type)

    def _then(
        self, name: str, factory: Factory, func: object, output_type: TypeInformation | None
    ) -> DataStream:
        output_type = check_type(output_type, name)
        draft = self.stream1._draft
        inputs = (self.stream1._origins, self.stream2._origins)
        functions = ((f"{name.lower()} function", func),)
        step = draft.add(name, NodeKind.OPERATOR, ready(factory), inputs, functions)
        return DataStream(draft, [Origin(step)], output_type)


def _unkeyed(stream: DataStream) -> DataStream:
    return stream.original if isinstance(stream, KeyedStream) else stream
