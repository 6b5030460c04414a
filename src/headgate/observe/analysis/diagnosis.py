"""The answer to "is the job keeping up, and if not, why?", as it travels to pages and commands.

Law: ``summary`` says everything that the other fields say about the limit, for people; the fields
say it again for programs. Rates are records a second, shares are parts of one; field names have
dashes in JSON. What operators have left out by design (too late, skipped, or a dead letter) is in
``left_out``: every view of a job shows it, for no error tells of it.
"""

from collections.abc import Iterable, Iterator

import msgspec

from headgate.base.figures import OperatorFigures, added
from headgate.base.messages import TaskFigures


class LeftOutRecords(msgspec.Struct, frozen=True, rename="kebab"):
    """What one operator has left out since the job began, all its subtasks together."""

    vertex: int
    operator: str
    summary: str
    """All of it in words."""
    late: int = 0
    """Records, or rows of columns, that came too late and were dropped."""
    most_late_ms: int = 0
    """How much too late the latest of them came."""
    skipped: int = 0
    """Records that have failed and were skipped, as the error policy says."""
    dead_letters: int = 0


def left_out_of(figures: Iterable[TaskFigures]) -> tuple[LeftOutRecords, ...]:
    """By vertex, and in the order of its chain; operators that left out nothing are missing."""
    found: dict[tuple[int, int], OperatorFigures] = {}
    for task in figures:
        for place, operator in enumerate(task.operators):
            if operator.late or operator.skipped or operator.dead_letters:
                known = found.get((task.vertex, place))
                both = operator if known is None else added(known, operator)
                found[task.vertex, place] = both
    return tuple(
        LeftOutRecords(
            vertex,
            operator.name,
            "; ".join(_sentences(operator)),
            operator.late,
            operator.most_late_ms,
            operator.skipped,
            operator.dead_letters,
        )
        for (vertex, _), operator in sorted(found.items(), key=lambda each: each[0])
    )


def _sentences(operator: OperatorFigures) -> Iterator[str]:
    name = repr(operator.name)
    if operator.late:
        by = f"by up to {_time(operator.most_late_ms)}"
        if not operator.most_late_ms:
            by = "after the end of event time"
        yield f"{name} has dropped {_records(operator.late)} that came too late, {by}"
    if operator.skipped:
        yield f"{name} has skipped {_records(operator.skipped)} that failed"
    if operator.dead_letters:
        letters = "dead letter" if operator.dead_letters == 1 else "dead letters"
        yield f"{name} has sent {operator.dead_letters:,} {letters}"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def _time(milliseconds: int) -> str:
    if milliseconds < 10_000:
        return f"{milliseconds:,} ms"
    seconds = milliseconds / 1000
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


class VertexAdvice(msgspec.Struct, frozen=True, rename="kebab"):
    """What the analysis says of one vertex."""

    vertex: int
    name: str
    parallelism: int
    suggested: int
    """Equal to the parallelism: leave it."""
    rate: float
    true_rate: float
    """What it could take; -1: unknown, it was hardly busy."""
    target_rate: float
    """What it would have to take to keep up with the sources."""
    busy: float
    """The largest share of its tasks."""
    backpressured: float
    limited_by: str = ""
    """Why more is not suggested: ``key groups``, ``max parallelism``, ``source splits``,
    ``cores``, ``hot key``, ``skew``, ``capacity``, ``link``, ``commit``, ``alternating``."""


class Diagnosis(msgspec.Struct, frozen=True, rename="kebab"):
    """Which vertex limits the job, why, and what to do about it."""

    cause: str
    """``unknown``, ``skew``, ``waits``, ``async-capacity``, ``rate-limit``, ``cpu``, ``state``,
    ``link``, ``commit``, ``alternating``, ``busy``, ``source`` or ``none``."""
    summary: str
    vertex: int = -1
    """The vertex that limits the job; -1: none does."""
    subtask: int = -1
    """If it is one subtask."""
    keys: tuple[tuple[str, float], ...] = ()
    """If it is skew: hot keys and their shares of all records of the vertex."""
    line: str = ""
    """The Python line that waits or costs most: ``function (file.py:12)``."""
    evidence: tuple[str, ...] = ()
    rate: float = 0.0
    """Present rate of all sources."""
    possible_rate: float = -1.0
    """Rate of all sources without the bottleneck; -1: unknown."""
    next_vertex: int = -1
    """What would limit the job then; -1: unknown, or no vertex."""
    advice: tuple[VertexAdvice, ...] = ()
    """For every vertex."""
    window_s: float = 0.0
    complete: bool = True
    """False: a quick answer from counters alone, no stacks or keys were looked at."""
    advised_rate: float = -1.0
    """Rate of all sources with every suggestion applied; -1: unknown."""
    headline: str = ""
    """The summary in one line."""
    left_out: tuple[LeftOutRecords, ...] = ()
    """What operators have dropped by design since the job began, whatever limits it."""
