"""Headgate: stream processing in Python, one record at a time, on Spark.

Importing this package is cheap: it loads neither pyspark nor pyarrow and starts nothing. The names
below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headgate.api.runtime import Runtime, set_runtime

if TYPE_CHECKING:
    from headgate.api.async_data_stream import AsyncDataStream
    from headgate.api.cached import CachedDataStream
    from headgate.api.columns import ColumnStream, col
    from headgate.api.connected import BroadcastConnectedStream, ConnectedStreams
    from headgate.api.datastream import BroadcastStream, DataStream, SplitStream
    from headgate.api.environment import StreamExecutionEnvironment, transform
    from headgate.api.job import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
    from headgate.api.joined import CoGroupedStreams, JoinedStreams
    from headgate.api.keyed import KeyedStream
    from headgate.api.operator_settings import MemorySize, SlotSharingGroup
    from headgate.api.row import Row, RowKind
    from headgate.api.settings.checkpointing import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from headgate.api.settings.configuration import (
        ConfigOption,
        ConfigOptions,
        Configuration,
        ExecutionConfig,
        RuntimeExecutionMode,
    )
    from headgate.api.settings.restarts import RestartStrategies, RestartStrategyConfiguration
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
    from headgate.api.types.types import TypeInformation, Types
    from headgate.api.windowed import AllWindowedStream, WindowedStream
    from headgate.base.elements import Watermark
    from headgate.base.errors import (
        FunctionUnpicklable,
        HeadgateError,
        JobFailed,
        PlanInvalid,
        RestoreRefused,
    )
    from headgate.functions.assigners import (
        CountSlidingWindowAssigner,
        CountTumblingWindowAssigner,
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows,
        GlobalWindows,
        MergingWindowAssigner,
        ProcessingTimeSessionWindows,
        SessionWindowTimeGapExtractor,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        WindowAssigner,
    )
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
    from headgate.functions.context import (
        ConnectorContext,
        KeyedStateStore,
        OperatorStateStore,
        RuntimeContext,
        SnapshotMoment,
        TimeDomain,
        TimerService,
    )
    from headgate.functions.error_policy import DeadLetter, ErrorPolicy, FailedTimer, FailedWindow
    from headgate.functions.evictors import (
        CountEvictor,
        DeltaEvictor,
        Evictor,
        TimeEvictor,
        TimestampedValue,
    )
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
    from headgate.functions.sink import (
        Committer,
        CommittingSinkWriter,
        DeliveryGuarantee,
        Sink,
        SinkWriter,
        TwoPhaseCommittingSink,
    )
    from headgate.functions.source import Source, SplitEnumerator, SplitLag, SplitReader
    from headgate.functions.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        BroadcastState,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        ReducingState,
        ReducingStateDescriptor,
        State,
        StateDescriptor,
        StateTtlConfig,
        ValueState,
        ValueStateDescriptor,
    )
    from headgate.functions.time import Duration, Instant, Time
    from headgate.functions.triggers import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        Trigger,
        TriggerResult,
    )
    from headgate.functions.watermarks import (
        TimestampAssigner,
        WatermarkGenerator,
        WatermarkOutput,
        WatermarkStrategy,
    )
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

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
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
    "BroadcastState",
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
    "ColumnStream",
    "Committer",
    "CommittingSinkWriter",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "ConnectedStreams",
    "ConnectorContext",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "DeadLetter",
    "DeliveryGuarantee",
    "DeltaEvictor",
    "Duration",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EmbeddedRocksDBStateBackend",
    "ErrorPolicy",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "ExecutionConfig",
    "ExternalizedCheckpointRetention",
    "FailedTimer",
    "FailedWindow",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionUnpicklable",
    "GlobalWindow",
    "GlobalWindows",
    "HashMapStateBackend",
    "HeadgateError",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobFailed",
    "JobID",
    "JobManagerCheckpointStorage",
    "JobStatus",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MemorySize",
    "MergingWindowAssigner",
    "NeverTrigger",
    "NullByteKeySelector",
    "OperatorStateStore",
    "OutputTag",
    "Partitioner",
    "PlanInvalid",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "RateLimit",
    "RateLimited",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "RestoreRefused",
    "Row",
    "RowKind",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SessionWindowTimeGapExtractor",
    "Sink",
    "SinkFunction",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlotSharingGroup",
    "SnapshotMoment",
    "Source",
    "SourceFunction",
    "SplitEnumerator",
    "SplitLag",
    "SplitReader",
    "SplitStream",
    "State",
    "StateBackend",
    "StateDescriptor",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "Time",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "TimerService",
    "TimestampAssigner",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TwoPhaseCommittingSink",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "__version__",
    "col",
    "transform",
]

_FACADES = (
    "headgate.datastream",
    "headgate.datastream.functions",
    "headgate.datastream.state",
    "headgate.datastream.window",
    "headgate.common",
    "headgate.functions.context",
    "headgate.functions.sink",
    "headgate.base.errors",
    "headgate.api.environment",
    "headgate.api.columns",  # last: it loads pyarrow
)


if not TYPE_CHECKING:  # for type checkers there is what is imported above, and nothing else

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
