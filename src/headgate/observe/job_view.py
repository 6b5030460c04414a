"""One job at one moment, and how it is described; what draws it, in a terminal or not, is above.

All functions are pure, and load nothing that a job without an audience does not need.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.progress import VertexRow


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment, ready to be drawn."""

    name: str
    status: str
    seconds: float
    rows: Sequence[VertexRow]
    diagnosis: Diagnosis
    has_ended: bool = False
    page: str = ""
    """The address of its web page; empty: it has none."""
    waits_for: str = ""
    """What its start has to wait for; empty: it need not wait."""

    @property
    def blamed(self) -> int:
        """The vertex that limits the job; -1: none does."""
        return self.diagnosis.vertex


def describe_job(view: JobView) -> list[str]:
    """The same for a log: a line for each vertex."""
    lines = [
        f"{view.name}: {title_of(row)}: {row.records_in:,} in, {row.records_out:,} out, "
        f"{row.in_per_s:,.0f} in/s, {row.shares.describe()}"
        for row in view.rows
        if row.running
    ]
    if view.waits_for:
        lines.append(f"{view.name}: {view.status}, {view.waits_for}")
    if view.blamed >= 0:
        lines.append(f"{view.name}: bottleneck: {view.diagnosis.headline}")
    return [*lines, *(f"{view.name}: {text}" for text in describe_left_out(view))]


def describe_left_out(view: JobView) -> list[str]:
    """What its operators have dropped by design, a line for each."""
    return [f"left out: {left_out.summary}" for left_out in view.diagnosis.left_out]


def describe_end(view: JobView) -> str:
    """One line when the job has ended; the rows are those of its whole life."""
    source = sum(row.records_in for row in view.rows if row.is_source)
    blamed = f"; bottleneck: {view.diagnosis.headline}" if view.blamed >= 0 else ""
    left_out = "".join(f"; {text}" for text in describe_left_out(view))
    records = f"{source:,} record{'' if source == 1 else 's'}"
    ending = f"{view.name}: {view.status} after {view.seconds:.1f} s, {records}"
    return ending + blamed + left_out


def short_number(number: float) -> str:
    """At most six characters: 999, 9,999, 99.9k, 1.23M."""
    if number < 10_000:
        return f"{number:,.0f}"
    for unit in "kMGT":
        number /= 1000
        if number < 9.995:
            return f"{number:.2f}{unit}"
        if number < 99.95:
            return f"{number:.1f}{unit}"
        if number < 999.5:
            return f"{number:.0f}{unit}"
    return f"{number:.0f}T"


def title_of(row: VertexRow) -> str:
    """Its name, with the number of its tasks."""
    return row.name if row.tasks == 1 else f"{row.tasks} x {row.name}"
