"""One job at one moment, and how it is described in words; ``pictures`` draws it.

All functions are pure, and load nothing that a job without an audience does not need.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, Protocol

from headgate.api.job import ENDED
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.web.answers import VertexDetails

OVER: Final = ("FINISHED", "CANCELED", "FAILED")
"""States of tasks that have ended."""


class HasShares(Protocol):
    """What time went to, as parts of one."""

    @property
    def busy(self) -> float: ...

    @property
    def backpressured(self) -> float: ...

    @property
    def idle(self) -> float: ...


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment, ready to be drawn by the process that runs it."""

    name: str
    status: str
    seconds: float
    vertices: Sequence[VertexDetails]
    diagnosis: Diagnosis
    has_ended: bool = False
    page: str = ""
    """The address of its web page; empty: it has none."""
    waits_for: str = ""
    """What its start has to wait for; empty: it need not wait."""

    @property
    def blamed(self) -> str:
        """The vertex that limits the job; empty: none does."""
        return str(self.diagnosis.vertex) if self.diagnosis.vertex >= 0 else ""


def describe_job(view: JobView) -> list[str]:
    """Lines for a log: one for each vertex, and what holds the job up."""
    lines = [
        f"{view.name}: {title_of(vertex)}: {vertex.metrics.read_records:,} in, "
        f"{vertex.metrics.write_records:,} out, {vertex.rates.in_per_s:,.0f} in/s, "
        f"{describe_shares(vertex)}"
        for vertex in view.vertices
        if not stands_still(vertex)
    ]
    if view.waits_for:
        lines.append(f"{view.name}: {view.status}, {view.waits_for}")
    if view.blamed:
        lines.append(f"{view.name}: bottleneck: {view.diagnosis.headline}")
    return [*lines, *(f"{view.name}: {text}" for text in describe_left_out(view))]


def describe_left_out(view: JobView) -> list[str]:
    """What its operators have dropped by design, a line for each."""
    return [f"left out: {left_out.summary}" for left_out in view.diagnosis.left_out]


def describe_end(view: JobView) -> str:
    """One line when the job has ended; the figures are those of its whole life."""
    source = sum(vertex.metrics.read_records for vertex in view.vertices if vertex.is_source)
    blamed = f"; bottleneck: {view.diagnosis.headline}" if view.blamed else ""
    left_out = "".join(f"; {text}" for text in describe_left_out(view))
    records = f"{source:,} record{'' if source == 1 else 's'}"
    ending = f"{view.name}: {view.status} after {view.seconds:.1f} s, {records}"
    return ending + blamed + left_out


def describe_shares(seen: HasShares) -> str:
    return f"busy {seen.busy:.0%}, back-pressured {seen.backpressured:.0%}, idle {seen.idle:.0%}"


def stands_still(vertex: VertexDetails) -> str:
    """Why none of its tasks runs, in a word; empty: some do."""
    states = Counter(vertex.tasks)
    ended = sum(states[state] for state in OVER)
    if ended == vertex.parallelism:
        return "ended"
    return "" if states.total() - ended - states["CREATED"] else "starting"


def title_of(vertex: VertexDetails) -> str:
    """Its name, with the number of its tasks."""
    return vertex.name if vertex.parallelism == 1 else f"{vertex.parallelism} x {vertex.name}"


def describe_age(state: str, seconds: float) -> str:
    """How long ago the job was started, in words that go with its state."""
    if state in ("CREATED", "INITIALIZING", "RUNNING"):
        return f" for {short_time(seconds)}"
    if state in ENDED:
        return f" after {short_time(seconds)}"
    return f", started {short_time(seconds)} ago"  # nobody knows since when it has this state


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


def short_time(seconds: float) -> str:
    """12 s, 3 min 4 s, 2 h 5 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def short_ms(milliseconds: float) -> str:
    """At most five characters, up to a day: 3ms, 999ms, 1.2s, 99s, 17min, 12h."""
    for unit, size, most in (("ms", 1, 1_000), ("s", 1_000, 100), ("min", 60_000, 100)):
        if milliseconds < size * most:
            value = milliseconds / size
            return f"{value:.1f}{unit}" if unit == "s" and value < 10 else f"{value:.0f}{unit}"
    hours = milliseconds / 3_600_000
    return f"{hours:.0f}h" if hours < 100 else f"{hours / 24:.0f}d"


def describe_ms(milliseconds: float) -> str:
    """In a sentence: 120 ms, 3.9 s, 3 min 4 s."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    return (
        f"{milliseconds / 1000:.1f} s" if milliseconds < 10_000 else short_time(milliseconds / 1000)
    )


def short_bytes(size: float) -> str:
    """1 B, 12 kB, 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def time_text(at_ms: int) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
