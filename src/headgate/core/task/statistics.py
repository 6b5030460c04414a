"""The figures of a task: where its time goes, latencies, and all of them in one moment.

Law: busy, back-pressured and idle time add up to the time since the start.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.base.elements import UNREADABLE, error_text
from headgate.base.figures import LATENCY_BOUNDS_MS, UNKNOWN, LatencyFigures, OutputFigures
from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.core.chain.chain import Chain
from headgate.core.chain.operator import PolledOperator
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import NetworkInput
from headgate.functions.metrics import MetricGroup
from headgate.functions.source import SplitLag

if TYPE_CHECKING:
    from headgate.core.task.debloating import BufferSizes

_Number = TypeVar("_Number", int, float)


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

    def percentiles(self) -> tuple[float, float]:
        """The median and the 99th percentile of the last half minute, in ms; zero if none came."""
        since_ms = self._now_ms() - LATELY_MS
        ordered = sorted(latency_ms for at_ms, latency_ms in self._last if at_ms >= since_ms)
        last = len(ordered) - 1
        return (ordered[last // 2], ordered[round(last * 0.99)]) if ordered else (0.0, 0.0)


MOST_METRICS: Final = 1_000
"""Metrics of users that a task reports; later ones are left out."""
MOST_WARNINGS: Final = 100
_WARNING_CHARS: Final = 1_000

NO_LAG: Final = SplitLag()


class OwnFigures:
    """Figures that only the task's own thread can read, because that runs the user's code.

    They are the metrics of users' functions, the lag of the source and the size of the state.
    Whoever asks gets what was read last. Law: nothing that is raised while they are read fails the
    task: the figure is left out, and reported once as a warning. The number of metrics and of
    warnings is bounded.
    """

    def __init__(self, chain: Chain) -> None:
        self.user: tuple[UserFigure, ...] = ()
        """What was read last; the lag and the size of the state as well."""
        self.lag = NO_LAG
        self.state_bytes = UNKNOWN
        self._chain = chain
        self._groups: list[tuple[str, MetricGroup]] = []
        self._asked = False
        self._warned: set[tuple[str, str]] = set()
        self._warnings: list[str] = []

    def group_of(self, operator: str, now_ms: Callable[[], int]) -> MetricGroup:
        """A new group for an operator; a second one of the same name is numbered."""
        group = MetricGroup(now_ms)
        taken = sum(name.partition(" #")[0] == operator for name, _ in self._groups)
        self._groups.append((f"{operator} #{taken + 1}" if taken else operator, group))
        return group

    def opened(self) -> None:
        """The operators are open: it turns out whether they know the size of their state."""
        self.state_bytes = self._read_state()

    def ask(self) -> bool:
        """Somebody wants new figures; says whether the task must be told to read them."""
        if self._asked or not self._has_any():
            return False
        self._asked = True
        return True

    def read(self) -> None:
        """Read all of them, on the task's thread, while the baton is lent."""
        self._asked = False
        found: list[UserFigure | None] = []
        for name, group in self._groups:
            left = MOST_METRICS - len(found)
            found += islice(group.read(name, partial(self._left_out, name)), left + 1)
            if len(found) > MOST_METRICS:
                del found[MOST_METRICS:]
                self._warn(
                    (name, ""),
                    f"its functions have more than {MOST_METRICS:,} metrics, and only so many are "
                    f"reported; those of operator {name!r} are cut. Register fewer: what varies "
                    f"belongs into the value of a metric, not into its name",
                )
                break
        self.user = tuple(figure for figure in found if figure is not None)
        self.lag = self._read_lag()
        self.state_bytes = self._read_state()

    def take_warnings(self) -> list[str]:
        """New ones; each is returned once."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def _has_any(self) -> bool:
        return (
            isinstance(self._chain.head, PolledOperator)
            or self.state_bytes != UNKNOWN
            or any(group.has_figures for _, group in self._groups)
        )

    def _read_lag(self) -> SplitLag:
        head = self._chain.head
        if not isinstance(head, PolledOperator):
            return NO_LAG
        try:
            return head.lag() or NO_LAG
        except UNREADABLE as error:
            name = self._chain.operators[0][0].name
            self._warn((name, "lag()"), f"lag() of source {name!r} has failed: {error_text(error)}")
            return NO_LAG

    def _read_state(self) -> int:
        try:
            return self._chain.state_bytes()
        except UNREADABLE as error:
            self._warn(("", "state"), f"the size of its state is not known: {error_text(error)}")
            return UNKNOWN

    def _left_out(self, operator: str, metric: str, problem: str) -> None:
        self._warn(
            (operator, metric),
            f"metric {metric!r} of operator {operator!r} is left out: {problem}",
        )

    def _warn(self, what: tuple[str, str], text: str) -> None:
        if what not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(what)
            self._warnings.append(text[:_WARNING_CHARS])


def figures_of(
    state: TaskState,
    spent: TimeSpent,
    chain: Chain,
    inputs: Sequence[NetworkInput],
    gates: Sequence[Gate],
    writers: Sequence[RecordWriter],
    *,
    latencies: Latencies | None,
    own: OwnFigures,
    sizes: "BufferSizes | None",
) -> TaskFigures:
    """A moment of a task, asked inside the baton; whoever deployed it adds which task it is."""
    read = [gate.statistics() for gate in gates]
    outputs = tuple(map(_output, writers))
    operators = tuple(chain.figures())
    head = chain.head if isinstance(chain.head, PolledOperator) else None
    p50_ms, p99_ms = (0.0, 0.0) if latencies is None else latencies.percentiles()
    return TaskFigures(
        task="",
        vertex=-1,
        subtask=-1,
        state=state,
        records_in=sum(source.records_in for source in inputs),
        records_made=0 if gates else sum(head.records_out for head in operators[:1]),
        records_out=sum(output.records for output in outputs),
        bytes_in=sum(gate.bytes_in for gate in read),
        bytes_out=sum(output.bytes for output in outputs),
        buffers_in=sum(gate.buffers_in for gate in read),
        buffers_out=sum(output.buffers for output in outputs),
        busy_ms=spent.busy_ms,
        backpressured_ms=spent.backpressured_ms,
        soft_backpressured_ms=spent.soft_backpressured_ms,
        hard_backpressured_ms=spent.hard_backpressured_ms,
        idle_ms=spent.idle_ms,
        queued_in=sum(gate.figures.queued_buffers for gate in read),
        queued_out=sum(output.queued_buffers for output in outputs),
        gates=tuple(gate.figures for gate in read),
        outputs=outputs,
        buffer_size=0 if sizes is None else sizes.buffer_size,
        in_flight_ms=0.0 if sizes is None else sizes.in_flight_ms,
        state_bytes=own.state_bytes,
        input_watermarks_ms=tuple(source.watermark_ms for source in inputs),
        output_watermark_ms=min(
            (writer.watermark_ms for writer in writers), default=chain.watermark_ms
        ),
        splits=0 if head is None else head.splits,
        lag_records=_known(own.lag.records),
        lag_bytes=_known(own.lag.bytes),
        lag_ms=_known(own.lag.age_ms),
        latency=None if latencies is None else latencies.histogram(),
        latency_p50_ms=p50_ms,
        latency_p99_ms=p99_ms,
        user=own.user,
        operators=operators,
        async_calls=tuple(chain.async_calls()),
        batch_calls=tuple(chain.batch_calls()),
        declared_rate=UNKNOWN if head is None else _known(head.records_per_second),
    )


def _known(number: _Number | None) -> _Number | int:
    return UNKNOWN if number is None else number


def _output(writer: RecordWriter) -> OutputFigures:
    partition = writer.partition
    return OutputFigures(
        writer.records_out,
        writer.bytes_out,
        writer.buffers_out,
        partition.queued,
        partition.queued_bytes,
        partition.pool.size,
        partition.pool.lent,
    )
