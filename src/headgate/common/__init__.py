"""Types, rows, time and configuration, under the names of ``pyflink.common``. Re-exports only."""

from headgate.api.configuration import Configuration, ExecutionConfig
from headgate.api.job import CompletableFuture, JobClient, JobExecutionResult, JobStatus
from headgate.api.row import Row, RowKind
from headgate.api.time import Duration, Instant, Time
from headgate.api.types import TypeInformation, Types

__all__ = [
    "CompletableFuture",
    "Configuration",
    "Duration",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobStatus",
    "Row",
    "RowKind",
    "Time",
    "TypeInformation",
    "Types",
]
