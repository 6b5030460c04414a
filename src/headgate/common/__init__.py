"""Types, rows, time and configuration, under the names of ``pyflink.common``. Re-exports only."""

from headgate.api.job import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
from headgate.api.row import Row, RowKind
from headgate.api.settings.configuration import (
    ConfigOption,
    ConfigOptions,
    Configuration,
    ExecutionConfig,
)
from headgate.api.settings.restarts import RestartStrategies, RestartStrategyConfiguration
from headgate.api.types.types import TypeInformation, Types
from headgate.base.elements import Watermark
from headgate.connectors.files.sink import Encoder
from headgate.connectors.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from headgate.functions.time import Duration, Instant, Time
from headgate.functions.watermarks import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from headgate.functions.window import TypeSerializer

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowFieldExtractorSchema",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
