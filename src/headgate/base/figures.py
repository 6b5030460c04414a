"""The table of metrics: what tasks, task managers and checkpoints report, each figure once.

A field's annotation says what the figure means, what Prometheus calls it, and how it is merged over
subtasks and attempts. Reports to the driver are these structs. Prometheus (``observe/prometheus``),
the tables of docs/metrics.md, sums over attempts (``added``), the REST API and what is drawn follow
from them. ``TaskFigures`` in ``messages`` puts the parts of a task together.

Law: counts only grow within an attempt; everything else describes the moment of the report. Sums
stand for all channels of a gate or subpartitions of an output, so that a report stays small however
many there are. Metrics are in seconds and bytes; the name of a counter ends in ``_total``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from operator import add
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import msgspec
from msgspec import structs

UNKNOWN: Final = -1
"""Instead of a size or a lag that nobody knows."""

LATENCY_BOUNDS_MS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
    *(1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0),
)
"""Upper bounds of the buckets of a latency histogram; one more bucket takes what is above."""

Figures = TypeVar("Figures", bound=msgspec.Struct)


class MetricKind(Enum):
    """The kinds of metrics that Prometheus has."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricMerge(Enum):
    """How several values become one."""

    SUM = "sum"
    MAX = "maximum"
    MIN = "minimum"


SUM, MAX, MIN = MetricMerge.SUM, MetricMerge.MAX, MetricMerge.MIN
_MERGES: Final[dict[MetricMerge, Callable[[Any], Any]]] = {SUM: sum, MAX: max, MIN: min}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Stands in the annotation of the field that it is made of."""

    name: str = ""
    """The name in Prometheus; empty: Prometheus does not get it."""
    meaning: str = ""
    flink: str = ""
    """Flink's name of the metric, or of the closest one."""
    merge: MetricMerge = SUM
    """How the values of several subtasks become one."""
    read: str = ""
    """The attribute that has the value; empty: the field itself. Milliseconds end in ``_ms``."""
    unknown: float = UNKNOWN
    """The value that says that there is none; None always does."""
    is_age: bool = False
    """The value is a moment, since 1970; what is shown is how long ago that was."""
    declared_kind: MetricKind = MetricKind.GAUGE
    """The kind of a metric that is no counter."""
    attempts: MetricMerge | None = None
    """How values of several attempts become one; None: counters are added up, of all else the
    present value counts."""

    @property
    def kind(self) -> MetricKind:
        return MetricKind.COUNTER if self.name.endswith("_total") else self.declared_kind

    @property
    def over_attempts(self) -> MetricMerge | None:
        return SUM if self.kind is MetricKind.COUNTER else self.attempts

    def merged(self, subjects: Sequence[object]) -> Any:
        """The merged value of all subjects; None: none of them has a value."""
        read, unknown = self.read, self.unknown
        known = [
            value
            for subject in subjects
            if (value := getattr(subject, read)) is not None and value != unknown
        ]
        return _MERGES[self.merge](known) if known else None

    def shown(self, subjects: Sequence[object], now_ms: float) -> float | None:
        """The merged value as Prometheus gets it, with times in seconds."""
        value: float | None = self.merged(subjects)
        if value is None or not self.read.endswith("_ms"):
            return value
        return (now_ms - value if self.is_age else value) / 1000


COUNT: Final = MetricFamily(attempts=SUM)
"""For a field that is added up over attempts and has no metric of its own."""


@cache
def metrics_of(kind: type) -> tuple[MetricFamily, ...]:
    """The named metrics of a struct, in the order of its fields."""
    return tuple(metric for _, metric in _declared(kind) if metric.name)


@cache
def metric_of(kind: type, field: str) -> MetricFamily:
    """The first metric of a field."""
    return next(metric for name, metric in _declared(kind) if name == field)


@cache
def counts_of(kind: type) -> dict[str, Callable[[Any, Any], Any]]:
    """The fields that cover all attempts, and what makes one of two."""
    types, found = get_type_hints(kind), {}
    for name, metric in _declared(kind):
        if metric.over_attempts is SUM:
            found[name] = add if types[name] in (int, float) else _added_parts
        elif metric.over_attempts is MAX:
            found[name] = max
    return found


def _declared(kind: type) -> Iterator[tuple[str, MetricFamily]]:
    """Metrics by their fields."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for metric in getattr(hint, "__metadata__", ()):
            if isinstance(metric, MetricFamily):
                yield name, metric if metric.read else replace(metric, read=name)


def added(before: Figures, now: Figures) -> Figures:
    """The counts of both added up; all other fields are those of ``now``."""
    counts = {
        name: merge(getattr(before, name), getattr(now, name))
        for name, merge in counts_of(type(now)).items()
    }
    return structs.replace(now, **counts)


def _added_parts(before: Any, now: Any) -> Any:
    """Parts of a task are those of the same place; one that has not reported keeps its counts."""
    if before is None or now is None:
        return before if now is None else now
    if isinstance(now, tuple):
        both = map(_added_parts, before, now)
        return (*both, *now[len(before) :], *before[len(now) :])
    return added(before, now) if isinstance(now, msgspec.Struct) else before + now


def only_counts(figures: Figures) -> Figures:
    """A copy in which every field that is no count has its default; required fields stay."""
    kind = type(figures)
    kept = {field.name for field in structs.fields(kind) if field.required} | {*counts_of(kind)}
    return kind(**{name: _without_gauges(getattr(figures, name)) for name in kept})


def _without_gauges(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_gauges, value))
    return only_counts(value) if isinstance(value, msgspec.Struct) else value


class GateFigures(msgspec.Struct, frozen=True, array_like=True):
    """One input gate, all its channels together."""

    channels: int
    queued_buffers: Annotated[
        int,
        MetricFamily(
            "headgate_channel_queued_buffers",
            "Buffers that have arrived from other processes and were not read yet.",
            "buffers.inputQueueLength",
        ),
    ] = 0
    queued_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_channel_queued_bytes", "The same in bytes.", "buffers.inputQueueSize"
        ),
    ] = 0
    backlog: Annotated[
        int,
        MetricFamily(
            "headgate_channel_backlog_buffers",
            "Buffers that still wait at producers in other processes.",
        ),
    ] = 0
    credit: Annotated[
        int,
        MetricFamily(
            "headgate_channel_credits",
            "Buffers that the producers may send before they are granted more.",
        ),
    ] = 0
    exclusive_in_use: Annotated[
        int,
        MetricFamily(
            "headgate_channel_exclusive_buffers_used",
            "Exclusive buffers that hold data.",
            "buffers.inputExclusiveBuffersUsage",
        ),
    ] = 0
    exclusive_total: Annotated[
        int,
        MetricFamily(
            "headgate_channel_exclusive_buffers", "Buffers that belong to one channel each."
        ),
    ] = 0
    floating_in_use: Annotated[
        int,
        MetricFamily(
            "headgate_channel_floating_buffers_used",
            "Floating buffers that hold data.",
            "buffers.inputFloatingBuffersUsage",
        ),
    ] = 0
    pool_size: Annotated[
        int,
        MetricFamily(
            "headgate_channel_floating_buffers",
            "Buffers that the channels of a gate share, as many as the gate may have now.",
        ),
    ] = 0


class OutputFigures(msgspec.Struct, frozen=True, array_like=True):
    """One output of a task, all its subpartitions together; in the order of ``JobEdge.output``."""

    records: Annotated[
        int,
        MetricFamily(
            "headgate_output_records_total", "Records written to the output.", "numRecordsOut"
        ),
    ]
    bytes: Annotated[
        int,
        MetricFamily("headgate_output_bytes_total", "Bytes written to the output.", "numBytesOut"),
    ] = 0
    buffers: Annotated[int, COUNT] = 0
    queued_buffers: Annotated[
        int,
        MetricFamily(
            "headgate_output_queued_buffers",
            "Buffers of the output that have not left yet.",
            "buffers.outputQueueLength",
        ),
    ] = 0
    queued_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_output_queued_bytes", "The same in bytes.", "buffers.outputQueueSize"
        ),
    ] = 0
    pool_size: Annotated[
        int,
        MetricFamily(
            "headgate_output_pool_buffers",
            "Buffers that the output may have, without the overdraft.",
        ),
    ] = 0
    pool_in_use: Annotated[
        int,
        MetricFamily(
            "headgate_output_pool_buffers_used",
            "Buffers that the output has, free ones not counted.",
        ),
    ] = 0


class OperatorFigures(msgspec.Struct, frozen=True, array_like=True):
    """One operator of a chain."""

    name: str
    records_in: Annotated[
        int,
        MetricFamily(
            "headgate_operator_records_in_total",
            "Records into an operator of a chain.",
            "numRecordsIn",
        ),
    ] = 0
    records_out: Annotated[
        int,
        MetricFamily(
            "headgate_operator_records_out_total",
            "Records out of an operator of a chain.",
            "numRecordsOut",
        ),
    ] = 0
    skipped: Annotated[
        int,
        MetricFamily(
            "headgate_operator_records_skipped_total",
            "Records that an operator has failed for and left out, as its error policy says.",
        ),
    ] = 0
    dead_letters: Annotated[
        int,
        MetricFamily(
            "headgate_operator_dead_letters_total",
            "Records that an operator has failed for and sent to its dead letters.",
        ),
    ] = 0
    late: Annotated[
        int,
        MetricFamily(
            "headgate_operator_late_records_dropped_total",
            "Records, or rows of columns, that came too late for an operator and were dropped.",
            "numLateRecordsDropped",
        ),
    ] = 0
    most_late_ms: Annotated[
        int,
        MetricFamily(
            "headgate_operator_late_records_most_seconds",
            "How much too late the latest of these came: so much more lateness or "
            "out-of-orderness would have kept them all.",
            merge=MAX,
            attempts=MAX,
        ),
    ] = 0


class AsyncFigures(msgspec.Struct, frozen=True, array_like=True):
    """The queue of an operator with asynchronous calls."""

    operator: str
    capacity: Annotated[
        int,
        MetricFamily(
            "headgate_async_capacity_calls",
            "Asynchronous calls that the operator may have at the same time.",
        ),
    ]
    in_flight: Annotated[
        int,
        MetricFamily(
            "headgate_async_in_flight_calls",
            "Asynchronous calls that it has, with those whose results have not left.",
            "queueSize",
        ),
    ] = 0
    full_ms: Annotated[
        float,
        MetricFamily(
            "headgate_async_full_seconds_total",
            "Time in which records have waited for a place among the calls.",
        ),
    ] = 0.0


class BatchFigures(msgspec.Struct, frozen=True, array_like=True):
    """The calls of an operator that makes them in batches; all but ``in_flight`` only grow."""

    operator: str
    calls: Annotated[
        int,
        MetricFamily(
            "headgate_async_batch_calls_total",
            "Calls for batches of records that have begun, with those that were made again.",
        ),
    ] = 0
    records: Annotated[
        int,
        MetricFamily(
            "headgate_async_batch_records_total",
            "Records in these calls; divided by the calls, the size of a batch.",
        ),
    ] = 0
    in_flight: Annotated[
        int,
        MetricFamily(
            "headgate_async_batch_in_flight_calls",
            "Calls for batches that have begun and not ended.",
        ),
    ] = 0
    throttled_ms: Annotated[
        float,
        MetricFamily(
            "headgate_async_throttled_seconds_total",
            "Time in which a batch was ready while the rate limit, or the server, allowed no call.",
        ),
    ] = 0.0
    refused: Annotated[
        int,
        MetricFamily(
            "headgate_async_refused_calls_total",
            "Calls that the server has refused because there were too many.",
        ),
    ] = 0
    retries: Annotated[
        int,
        MetricFamily(
            "headgate_async_retried_calls_total", "Calls that the retry strategy has made again."
        ),
    ] = 0
    splits: Annotated[
        int,
        MetricFamily(
            "headgate_async_split_batches_total",
            "Failed batches that were halved, to find the records that fail.",
        ),
    ] = 0
    failures: Annotated[
        int,
        MetricFamily(
            "headgate_async_failed_records_total", "Records without a result, after all retries."
        ),
    ] = 0
    cache_hits: Annotated[
        int,
        MetricFamily(
            "headgate_async_cache_hits_total",
            "Records that were answered without a call of their own.",
        ),
    ] = 0
    cache_misses: Annotated[
        int,
        MetricFamily(
            "headgate_async_cache_misses_total", "Records whose key was not in the cache."
        ),
    ] = 0


class LatencyFigures(msgspec.Struct, frozen=True, array_like=True):
    """How long latency markers took from their sources to here."""

    counts: Annotated[tuple[int, ...], COUNT]
    """For each bound of ``LATENCY_BOUNDS_MS`` those up to it and above the one before; last, those
    above all bounds."""
    sum_ms: Annotated[float, COUNT] = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


class TaskManagerFigures(msgspec.Struct, frozen=True):
    """The process of one slot."""

    slot: int = 0
    host: str = ""
    pid: int = 0
    cores: Annotated[
        int,
        MetricFamily(
            "headgate_taskmanager_cpu_cores",
            "Cores that the process may use; task managers of one host share them.",
            unknown=0,
        ),
    ] = 0
    cpu_ms: Annotated[
        float,
        MetricFamily(
            "headgate_taskmanager_cpu_seconds_total",
            "CPU time of all threads of the process.",
            "Status.JVM.CPU.Time",
        ),
    ] = 0.0
    memory_bytes: Annotated[
        int,
        MetricFamily(
            "headgate_taskmanager_memory_bytes",
            "Resident memory of the process.",
            "Status.JVM.Memory.Heap.Used",
        ),
    ] = UNKNOWN
    buffers: Annotated[
        int,
        MetricFamily(
            "headgate_taskmanager_network_buffers",
            "Segments of the memory for exchanged data.",
            "Status.Shuffle.Netty.TotalMemorySegments",
        ),
    ] = 0
    buffers_free: Annotated[
        int,
        MetricFamily(
            "headgate_taskmanager_network_buffers_available",
            "Those of them that are free.",
            "Status.Shuffle.Netty.AvailableMemorySegments",
        ),
    ] = 0
