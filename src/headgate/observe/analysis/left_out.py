"""What the operators of a job have left out by design: too late, skipped, or a dead letter.

Law: whoever shows a job shows this, for no error tells of it; a job that has left out nothing has
no such line.
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
