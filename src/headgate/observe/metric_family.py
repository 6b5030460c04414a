"""One metric by its stable name: what it means, and how its value is read and merged.

Law: units are seconds and bytes; a counter ends in ``_total`` and never falls as long as its labels
are the same; figures of subtasks are merged, so that the number of series depends on the program
and not on its parallelism. ``metric_families`` lists them all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

Subject = TypeVar("Subject")


class MetricKind(Enum):
    """As Prometheus has them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricMerge(Enum):
    """How the values of several subtasks become one."""

    SUM = "sum"
    MAX = "maximum"
    MIN = "minimum"


@dataclass(frozen=True, slots=True)
class MetricFamily(Generic[Subject]):
    """``read`` gives the value for a subject, or None if it has none."""

    name: str
    """As a query spells it; that of a counter ends in ``_total``."""
    meaning: str
    read: Callable[[Subject], float | None]
    merge: MetricMerge = MetricMerge.SUM
    flink: str = ""
    """What Flink calls it, or what comes closest."""
    is_moment: bool = False
    """``read`` gives milliseconds since 1970; what is shown is how long ago that was."""

    @property
    def kind(self) -> MetricKind:
        return MetricKind.COUNTER if self.name.endswith("_total") else MetricKind.GAUGE

    def value_of(self, subjects: list[Subject], now_ms: float) -> float | None:
        """Of all of them together; None: none of them has one."""
        read = self.read
        values = [value for subject in subjects if (value := read(subject)) is not None]
        if not values:
            return None
        value = _MERGES[self.merge](values)
        return (now_ms - value) / 1000 if self.is_moment else value


_MERGES: Final[Mapping[MetricMerge, Callable[[list[float]], float]]] = {
    MetricMerge.SUM: sum,
    MetricMerge.MAX: max,
    MetricMerge.MIN: min,
}


@dataclass(frozen=True, slots=True)
class SpecialMetric:
    """One that is not read from a single figure; ``prometheus`` knows how it is made."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str
    flink: str = ""


JOB_LABELS: Final = ("job", "job_id")
PROCESS_LABELS: Final = (*JOB_LABELS, "slot", "host", "pid")
TASK_LABELS: Final = (*JOB_LABELS, "task", "vertex")
GATE_LABELS: Final = (*TASK_LABELS, "gate")
OUTPUT_LABELS: Final = (*TASK_LABELS, "output")
OPERATOR_LABELS: Final = (*TASK_LABELS, "operator")
