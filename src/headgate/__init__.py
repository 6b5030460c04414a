"""Headgate: stream processing in Python, one record at a time, on Spark.

Importing this package is cheap: it loads neither pyspark nor pyarrow and starts nothing. The names
below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headgate.api.runtime import Runtime, set_runtime

if TYPE_CHECKING:
    from headgate.api.async_data_stream import AsyncDataStream
    from headgate.api.columns import ColumnStream, col
    from headgate.api.datastream import DataStream
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.keyed import KeyedStream
    from headgate.api.row import Row
    from headgate.api.settings.configuration import Configuration, RuntimeExecutionMode
    from headgate.api.transform import transform
    from headgate.api.types.types import Types
    from headgate.base.errors import HeadgateError
    from headgate.functions.assigners import (
        EventTimeSessionWindows,
        SlidingEventTimeWindows,
        TumblingEventTimeWindows,
    )
    from headgate.functions.async_functions import AsyncFunction, AsyncRetryStrategy
    from headgate.functions.batch_functions import (
        BatchAsyncFunction,
        Batching,
        CallCache,
        RateLimit,
        RateLimited,
    )
    from headgate.functions.broadcast_functions import (
        BroadcastProcessFunction,
        KeyedBroadcastProcessFunction,
    )
    from headgate.functions.context import RuntimeContext
    from headgate.functions.error_policy import DeadLetter, ErrorPolicy
    from headgate.functions.function import (
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        OutputTag,
        ProcessFunction,
        ReduceFunction,
        SinkFunction,
        SourceFunction,
    )
    from headgate.functions.sink import Sink, SinkWriter
    from headgate.functions.source import Source, SplitEnumerator, SplitLag, SplitReader
    from headgate.functions.state import (
        ListStateDescriptor,
        MapStateDescriptor,
        ValueStateDescriptor,
    )
    from headgate.functions.time import Duration, Time
    from headgate.functions.watermarks import TimestampAssigner, WatermarkStrategy
    from headgate.functions.window_functions import (
        AggregateFunction,
        ProcessWindowFunction,
        WindowFunction,
    )

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryStrategy",
    "BatchAsyncFunction",
    "Batching",
    "BroadcastProcessFunction",
    "CallCache",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ColumnStream",
    "Configuration",
    "DataStream",
    "DeadLetter",
    "Duration",
    "ErrorPolicy",
    "EventTimeSessionWindows",
    "FilterFunction",
    "FlatMapFunction",
    "HeadgateError",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListStateDescriptor",
    "MapFunction",
    "MapStateDescriptor",
    "OutputTag",
    "ProcessFunction",
    "ProcessWindowFunction",
    "RateLimit",
    "RateLimited",
    "ReduceFunction",
    "Row",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Sink",
    "SinkFunction",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "Source",
    "SourceFunction",
    "SplitEnumerator",
    "SplitLag",
    "SplitReader",
    "StreamExecutionEnvironment",
    "Time",
    "TimestampAssigner",
    "TumblingEventTimeWindows",
    "Types",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "WindowFunction",
    "__version__",
    "col",
    "transform",
]

_FACADES = (
    "headgate.datastream",
    "headgate.datastream.state",
    "headgate.datastream.window",
    "headgate.common",
    "headgate.base.errors",
    "headgate.api.transform",
    "headgate.api.columns",  # last: it loads pyarrow
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for facade in map(import_module, _FACADES):
            if hasattr(facade, name):
                globals()[name] = getattr(facade, name)  # the next time it is simply there
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _open_runtime() -> Runtime:
    """Imported when a program first needs it; until then there may be no Spark at all."""
    opened: Runtime = import_module("headgate.spark.runtime").open_runtime()
    return opened


set_runtime(_open_runtime)
