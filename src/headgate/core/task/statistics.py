"""The figures of a task: where its time goes, latencies, and all of them in one moment.

Law: busy, back-pressured and idle time add up to the time since the start.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.figures import (
    LATENCY_BOUNDS_MS,
    UNKNOWN,
    AsyncFigures,
    BatchFigures,
    GateFigures,
    LatencyFigures,
    OutputFigures,
)
from headgate.base.messages import TaskState, UserFigure
from headgate.core.chain.chain import Chain, OperatorStatistics
from headgate.core.chain.operator import PolledOperator
from headgate.core.egress.writer import RecordWriter, WriterStatistics
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.own_figures import NO_LAG, OwnFigures
from headgate.functions.source import SplitLag


class TaskActivity(Enum):
    """What a task's time is spent on."""

    BUSY = 0
    SOFT_BACKPRESSURED = 1
    """No step begins: an output has no free buffer."""
    HARD_BACKPRESSURED = 2
    """A step is blocked: an output has no free buffer."""
    IDLE = 3


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Milliseconds since the start."""

    busy_ms: float
    soft_backpressured_ms: float
    hard_backpressured_ms: float
    idle_ms: float

    @property
    def backpressured_ms(self) -> float:
        return self.soft_backpressured_ms + self.hard_backpressured_ms


class TaskTimes:
    """Adds up the time between turns."""

    def __init__(self, now_ms: float) -> None:
        self.doing = TaskActivity.IDLE
        self._since_ms = now_ms
        self._spent_ms = [0.0] * len(TaskActivity)

    def turn_to(self, doing: TaskActivity, now_ms: float) -> None:
        """From now on time is spent on this."""
        self._spent_ms[self.doing.value] += now_ms - self._since_ms
        self._since_ms = now_ms
        self.doing = doing

    def spent(self, now_ms: float) -> TimeSpent:
        """With what is going on now counted in."""
        spent = list(self._spent_ms)
        spent[self.doing.value] += now_ms - self._since_ms
        return TimeSpent(*spent)


KEPT: Final = 1024
"""So many markers at most."""
LATELY_MS: Final = 30_000.0
"""Percentiles are those of this time: a slow start is soon forgotten."""


@dataclass(frozen=True, slots=True)
class LatencyStatistics:
    """Over the markers of the last half minute; zero if none came."""

    markers: int
    """All that ever came."""
    p50_ms: float
    p99_ms: float
    max_ms: float


class Latencies:
    """How long markers took from their source to here; ``now_ms`` is good for differences."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self._sum_ms = 0.0
        self._last: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """When each came, and its latency."""

    def measured(self, latency_ms: float) -> None:
        latency_ms = max(0.0, latency_ms)
        self._counts[bisect_left(LATENCY_BOUNDS_MS, latency_ms)] += 1
        self._sum_ms += latency_ms
        self._last.append((self._now_ms(), latency_ms))

    def histogram(self) -> LatencyFigures | None:
        """Over all markers; None: none came."""
        return LatencyFigures(tuple(self._counts), self._sum_ms) if any(self._counts) else None

    def statistics(self) -> LatencyStatistics:
        markers, since_ms = sum(self._counts), self._now_ms() - LATELY_MS
        ordered = sorted(latency_ms for at_ms, latency_ms in self._last if at_ms >= since_ms)
        if not ordered:
            return LatencyStatistics(markers, 0.0, 0.0, 0.0)
        last = len(ordered) - 1
        return LatencyStatistics(
            markers, ordered[last // 2], ordered[round(last * 0.99)], ordered[-1]
        )


@dataclass(frozen=True, slots=True)
class SizeStatistics:
    """The present size of the buffers to a task, and in what time it consumes what waits."""

    buffer_size: int
    in_flight_ms: float


NO_SIZES: Final = SizeStatistics(0, 0.0)
"""Of a task that reads from nobody, or has no say in the size of buffers."""


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """A moment of a task."""

    state: TaskState
    spent: TimeSpent
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    buffers_in: int
    buffers_out: int
    queued_in: int
    queued_out: int
    watermarks_in_ms: tuple[int, ...]
    """The last one of each input."""
    watermark_out_ms: int
    operators: tuple[OperatorStatistics, ...]
    latency: LatencyStatistics | None
    user: tuple[UserFigure, ...] = ()
    sizes: SizeStatistics = NO_SIZES
    gates: tuple[GateFigures, ...] = ()
    outputs: tuple[OutputFigures, ...] = ()
    histogram: LatencyFigures | None = None
    lag: SplitLag = NO_LAG
    state_bytes: int = UNKNOWN
    """As the state backend estimates it."""
    async_calls: tuple[AsyncFigures, ...] = ()
    batch_calls: tuple[BatchFigures, ...] = ()
    splits: int = 0
    declared_rate: float = UNKNOWN


def statistics_of(
    state: TaskState,
    spent: TimeSpent,
    chain: Chain,
    inputs: Sequence[NetworkInput],
    gates: Sequence[Gate],
    writers: Sequence[RecordWriter],
    *,
    latencies: Latencies | None,
    own: OwnFigures,
    sizes: SizeStatistics,
) -> TaskStatistics:
    """Asked inside the baton."""
    read = [gate.statistics() for gate in gates]
    written = [writer.statistics() for writer in writers]
    outputs = tuple(map(_output, writers, written))
    operators = tuple(chain.statistics())
    return TaskStatistics(
        state=state,
        spent=spent,
        records_in=sum(source.records_in for source in inputs),
        records_out=sum(writer.records_out for writer in written),
        bytes_in=sum(gate.bytes_in for gate in read),
        bytes_out=sum(writer.bytes_out for writer in written),
        buffers_in=sum(gate.buffers_in for gate in read),
        buffers_out=sum(writer.buffers_out for writer in written),
        queued_in=sum(gate.figures.queued_buffers for gate in read),
        queued_out=sum(output.queued_buffers for output in outputs),
        watermarks_in_ms=tuple(source.watermark_ms for source in inputs),
        watermark_out_ms=min(
            (writer.watermark_ms for writer in written), default=_last_watermark_ms(operators)
        ),
        operators=operators,
        latency=None if latencies is None else latencies.statistics(),
        user=own.user,
        lag=own.lag,
        state_bytes=own.state_bytes,
        async_calls=tuple(chain.async_calls()),
        batch_calls=tuple(chain.batch_calls()),
        splits=chain.head.splits if isinstance(chain.head, PolledOperator) else 0,
        declared_rate=_declared_rate(chain),
        sizes=sizes,
        gates=tuple(gate.figures for gate in read),
        outputs=outputs,
        histogram=None if latencies is None else latencies.histogram(),
    )


def _last_watermark_ms(operators: Sequence[OperatorStatistics]) -> int:
    """Of a task without outputs: how far event time has come in its chain."""
    return max((operator.watermark_ms for operator in operators), default=MIN_WATERMARK_MS)


def _declared_rate(chain: Chain) -> float:
    rate = chain.head.records_per_second if isinstance(chain.head, PolledOperator) else None
    return UNKNOWN if rate is None else rate


def _output(writer: RecordWriter, written: WriterStatistics) -> OutputFigures:
    partition = writer.partition
    return OutputFigures(
        written.records_out,
        written.bytes_out,
        written.buffers_out,
        partition.queued,
        partition.queued_bytes,
        partition.pool.size,
        partition.pool.lent,
    )
