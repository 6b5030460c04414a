"""Base classes of functions: subscriptable, abstract, and open to plain callables."""

from types import new_class

import pytest

from headgate.datastream import functions
from headgate.datastream.functions import Function, MapFunction, ProcessFunction

ARITIES = {
    "MapFunction": 2,
    "FlatMapFunction": 2,
    "FilterFunction": 1,
    "ReduceFunction": 1,
    "KeySelector": 2,
    "Partitioner": 1,
    "ProcessFunction": 2,
    "KeyedProcessFunction": 3,
    "CoMapFunction": 3,
    "CoFlatMapFunction": 3,
    "CoProcessFunction": 3,
    "KeyedCoProcessFunction": 4,
    "SinkFunction": 1,
    "SourceFunction": 1,
}


@pytest.mark.parametrize("name", sorted(ARITIES))
def test_functions_are_subscriptable_and_need_their_method(name: str) -> None:
    kind = getattr(functions, name)
    subscripted = kind[tuple([int] * ARITIES[name])]
    made = new_class("Made", (subscripted,))
    assert issubclass(made, Function)
    with pytest.raises(TypeError, match="abstract"):
        made()


def test_open_and_close_do_nothing_unless_they_are_written() -> None:
    class Same(MapFunction[int, int]):
        def map(self, value: int) -> int:
            return value

    same = Same()
    same.open(None)  # type: ignore[arg-type]
    same.close()


def test_contexts_are_named_within_their_function() -> None:
    assert hasattr(ProcessFunction.Context, "timestamp")
    assert hasattr(functions.KeyedProcessFunction.Context, "get_current_key")
    assert hasattr(functions.KeyedCoProcessFunction.Context, "get_current_key")
    assert hasattr(functions.SinkFunction.Context, "current_processing_time")
