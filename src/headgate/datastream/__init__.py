"""Environment, streams, functions, under the names of ``pyflink.datastream``. Re-exports only."""

from headgate.api.async_data_stream import AsyncDataStream
from headgate.api.cached import CachedDataStream
from headgate.api.connected import BroadcastConnectedStream, ConnectedStreams
from headgate.api.datastream import BroadcastStream, DataStream, SplitStream
from headgate.api.environment import StreamExecutionEnvironment
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
from headgate.api.windowed import AllWindowedStream, WindowedStream
from headgate.base.elements import Watermark
from headgate.datastream import async_retry_predicates
from headgate.functions.assigners import MergingWindowAssigner, WindowAssigner
from headgate.functions.async_functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
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
from headgate.functions.context import RuntimeContext, TimeDomain, TimerService
from headgate.functions.error_policy import DeadLetter, ErrorPolicy, FailedTimer, FailedWindow
from headgate.functions.function import (
    CheckpointedFunction,
    CheckpointListener,
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
    OutputTag,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
)
from headgate.functions.sink import Sink, SinkWriter
from headgate.functions.source import Source, SplitEnumerator, SplitLag, SplitReader
from headgate.functions.triggers import Trigger, TriggerResult
from headgate.functions.window import CountWindow, GlobalWindow, TimeWindow, Window
from headgate.functions.window_functions import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BatchAsyncFunction",
    "Batching",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CallCache",
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
    "DeadLetter",
    "EmbeddedRocksDBStateBackend",
    "ErrorPolicy",
    "ExternalizedCheckpointRetention",
    "FailedTimer",
    "FailedWindow",
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
    "RateLimit",
    "RateLimited",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Sink",
    "SinkFunction",
    "SinkWriter",
    "SlotSharingGroup",
    "Source",
    "SourceFunction",
    "SplitEnumerator",
    "SplitLag",
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
