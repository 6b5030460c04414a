"""Environment, streams, functions, under the names of ``pyflink.datastream``. Re-exports only."""

from headgate.api import async_retry_predicates
from headgate.api.async_data_stream import AsyncDataStream
from headgate.api.async_functions import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
from headgate.api.broadcast_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from headgate.api.cached import CachedDataStream
from headgate.api.checkpointed import CheckpointedFunction, CheckpointListener
from headgate.api.connected import BroadcastConnectedStream, ConnectedStreams
from headgate.api.datastream import BroadcastStream, DataStream, SplitStream
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
    NullByteKeySelector,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
)
from headgate.api.joined import CoGroupedStreams, JoinedStreams
from headgate.api.keyed import KeyedStream
from headgate.api.operator_settings import MemorySize, SlotSharingGroup
from headgate.api.settings.checkpointing import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from headgate.api.settings.configuration import RuntimeExecutionMode
from headgate.api.settings.state_backend import (
    CheckpointStorage,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
)
from headgate.api.sinks import CloseableIterator, DataStreamSink
from headgate.api.source import Sink, SinkWriter, Source, SplitReader
from headgate.api.window_functions import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headgate.api.windowed import AllWindowedStream, WindowedStream
from headgate.base.elements import Watermark
from headgate.core.chain.collector import OutputTag
from headgate.core.window.assigners import MergingWindowAssigner, WindowAssigner
from headgate.core.window.triggers import Trigger, TriggerResult
from headgate.core.window.window import CountWindow, GlobalWindow, TimeWindow, Window
from headgate.functions.context import RuntimeContext, TimeDomain, TimerService

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "NullByteKeySelector",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
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
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Watermark",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "async_retry_predicates",
]
