"""Headgate: stream processing in Python, one record at a time, on Spark.

Importing this package is cheap: it loads neither pyspark nor pyarrow and starts nothing. The names
below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headgate.api.outside import Outside, set_outside

if TYPE_CHECKING:
    from headgate.api.configuration import Configuration, RuntimeExecutionMode
    from headgate.api.datastream import DataStream
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.functions import (
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        ProcessFunction,
        ReduceFunction,
        SinkFunction,
        SourceFunction,
    )
    from headgate.api.keyed import KeyedStream
    from headgate.api.row import Row
    from headgate.api.source import Sink, SinkWriter, Source, SplitReader
    from headgate.api.time import Duration, Time
    from headgate.api.types import Types
    from headgate.base.errors import HeadgateError
    from headgate.core.chain.runtime import RuntimeContext
    from headgate.core.chain.tags import OutputTag

__version__ = "0.1.0"

__all__ = [
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "Configuration",
    "DataStream",
    "Duration",
    "FilterFunction",
    "FlatMapFunction",
    "HeadgateError",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "ProcessFunction",
    "ReduceFunction",
    "Row",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Sink",
    "SinkFunction",
    "SinkWriter",
    "Source",
    "SourceFunction",
    "SplitReader",
    "StreamExecutionEnvironment",
    "Time",
    "Types",
    "__version__",
]

_FACADES = ("headgate.datastream", "headgate.common", "headgate.base.errors")


def __getattr__(name: str) -> object:
    if name in __all__:
        for facade in map(import_module, _FACADES):
            if hasattr(facade, name):
                globals()[name] = getattr(facade, name)  # the next time it is simply there
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _open_outside() -> Outside:
    """Imported when a program first needs it; until then there may be no Spark at all."""
    opened: Outside = import_module("headgate.spark.outside").open_outside()
    return opened


set_outside(_open_outside)
