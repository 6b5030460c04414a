"""Types, rows, time and configuration, under the names of ``pyflink.common``. Re-exports only."""

from headgate.api.config_options import ConfigOption, ConfigOptions
from headgate.api.configuration import Configuration, ExecutionConfig
from headgate.api.job import CompletableFuture, JobClient, JobExecutionResult, JobStatus
from headgate.api.restarts import RestartStrategies, RestartStrategyConfiguration
from headgate.api.row import Row, RowKind
from headgate.api.time import Duration, Instant, Time
from headgate.api.types import TypeInformation, Types
from headgate.api.watermarks import WatermarkStrategy
from headgate.base.elements import Watermark
from headgate.connectors.file_sink_builder import Encoder
from headgate.connectors.schemas import (
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from headgate.core.chain.timestamps import TimestampAssigner
from headgate.core.chain.watermarks import WatermarkGenerator, WatermarkOutput

__all__ = [
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
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
