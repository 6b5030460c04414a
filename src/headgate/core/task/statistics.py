"""A moment of a task in figures, put together from its parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.messages import UserFigure
from headgate.base.states import TaskState
from headgate.core.chain.chain import Chain, OperatorStatistics
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.buffer_sizes import NO_SIZES, SizeStatistics
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.latency import Latencies, LatencyStatistics
from headgate.core.task.times import Spent


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """A moment of a task."""

    state: TaskState
    spent: Spent
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    buffers_in: int
    buffers_out: int
    queued_in: int
    queued_out: int
    watermark_in_ms: int
    watermark_out_ms: int
    operators: tuple[OperatorStatistics, ...]
    latency: LatencyStatistics | None
    user: tuple[UserFigure, ...] = ()
    sizes: SizeStatistics = NO_SIZES


def statistics_of(
    state: TaskState,
    spent: Spent,
    chain: Chain,
    inputs: Sequence[NetworkInput],
    gates: Sequence[Gate],
    writers: Sequence[RecordWriter],
    *,
    latencies: Latencies | None,
    user: tuple[UserFigure, ...],
    sizes: SizeStatistics,
) -> TaskStatistics:
    """Asked inside the baton."""
    read = [gate.statistics() for gate in gates]
    written = [writer.statistics() for writer in writers]
    return TaskStatistics(
        state=state,
        spent=spent,
        records_in=sum(one.records_in for one in inputs),
        records_out=sum(one.records_out for one in written),
        bytes_in=sum(one.bytes_in for one in read),
        bytes_out=sum(one.bytes_out for one in written),
        buffers_in=sum(one.buffers_in for one in read),
        buffers_out=sum(one.buffers_out for one in written),
        queued_in=sum(one.queued for one in read),
        queued_out=sum(writer.partition.queued for writer in writers),
        watermark_in_ms=min((one.watermark_ms for one in inputs), default=MIN_WATERMARK_MS),
        watermark_out_ms=min((one.watermark_ms for one in written), default=MIN_WATERMARK_MS),
        operators=tuple(chain.statistics()),
        latency=None if latencies is None else latencies.statistics(),
        user=user,
        sizes=sizes,
    )
