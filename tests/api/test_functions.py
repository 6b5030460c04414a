"""Base classes of functions: subscriptable, abstract, and open to plain callables."""

from types import new_class

import pytest

from headgate.datastream import functions
from headgate.datastream.functions import Function, MapFunction

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
    "BroadcastProcessFunction": 3,
    "KeyedBroadcastProcessFunction": 4,
    "ProcessJoinFunction": 3,
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


CONTEXTS = [
    (functions.ProcessFunction.Context, {"timestamp", "timer_service"}),
    (functions.KeyedProcessFunction.Context, {"timestamp", "timer_service", "get_current_key"}),
    (
        functions.KeyedProcessFunction.OnTimerContext,
        {"timestamp", "timer_service", "get_current_key", "time_domain"},
    ),
    (functions.CoProcessFunction.Context, {"timestamp", "timer_service"}),
    (functions.KeyedCoProcessFunction.Context, {"timestamp", "timer_service", "get_current_key"}),
    (
        functions.KeyedCoProcessFunction.OnTimerContext,
        {"timestamp", "timer_service", "get_current_key", "time_domain"},
    ),
    (
        functions.BroadcastProcessFunction.Context,
        {"timestamp", "get_broadcast_state", "current_processing_time", "current_watermark"},
    ),
    (
        functions.BroadcastProcessFunction.ReadOnlyContext,
        {"timestamp", "get_broadcast_state", "current_processing_time", "current_watermark"},
    ),
    (
        functions.KeyedBroadcastProcessFunction.Context,
        {"timestamp", "get_broadcast_state", "current_watermark", "apply_to_keyed_state"},
    ),
    (
        functions.KeyedBroadcastProcessFunction.ReadOnlyContext,
        {"timestamp", "get_broadcast_state", "timer_service", "get_current_key"},
    ),
    (
        functions.KeyedBroadcastProcessFunction.OnTimerContext,
        {"timestamp", "get_broadcast_state", "timer_service", "get_current_key", "time_domain"},
    ),
    (functions.ProcessJoinFunction.Context, {"get_left_timestamp", "get_right_timestamp"}),
]


@pytest.mark.parametrize(("context", "methods"), CONTEXTS)
def test_contexts_are_named_within_their_function_and_subscriptable(
    context: type, methods: set[str]
) -> None:
    assert methods <= set(dir(context))
    assert context[int] is not None  # type: ignore[index]
    assert context[int, str] is not None  # type: ignore[index]


def test_sinks_have_a_context() -> None:
    assert hasattr(functions.SinkFunction.Context, "current_processing_time")


@pytest.mark.parametrize(
    "kind",
    [
        functions.KeyedProcessFunction,
        functions.KeyedCoProcessFunction,
        functions.KeyedBroadcastProcessFunction,
    ],
)
def test_on_timer_does_nothing_unless_it_is_written(kind: type) -> None:
    methods = dict.fromkeys(kind.__abstractmethods__, lambda self, *args: None)  # type: ignore[attr-defined]
    function = type("Made", (kind,), methods)()
    assert list(function.on_timer(5, None)) == []


def test_one_key_for_all_records() -> None:
    selector: functions.NullByteKeySelector[object] = functions.NullByteKeySelector()
    assert {selector.get_key(value) for value in (1, "a", None)} == {0}
