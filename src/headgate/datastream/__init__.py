"""Environment, streams, functions, under the names of ``pyflink.datastream``. Re-exports only."""

from headgate.api.configuration import RuntimeExecutionMode
from headgate.api.connected import ConnectedStreams
from headgate.api.datastream import DataStream, SplitStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
)
from headgate.api.keyed import KeyedStream
from headgate.api.sinks import CloseableIterator, DataStreamSink
from headgate.api.slots import SlotSharingGroup
from headgate.api.source import Sink, SinkWriter, Source, SplitReader
from headgate.core.chain.runtime import RuntimeContext
from headgate.core.chain.tags import OutputTag

__all__ = [
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Sink",
    "SinkFunction",
    "SinkWriter",
    "SlotSharingGroup",
    "Source",
    "SourceFunction",
    "SplitReader",
    "SplitStream",
    "StreamExecutionEnvironment",
]
