"""What the tasks of a job have done, over all its attempts.

Every attempt counts from zero in its workers. Law: a count never falls: what earlier attempts have
done is added to it, also what is done again after a restart. What is not a count (queues, times of
event time, a user's gauge) is that of the present attempt.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from headgate.base.messages import TaskFigures, TaskState, UserFigure

COUNTS: Final = (
    "records_in",
    "records_out",
    "bytes_in",
    "bytes_out",
    "buffers_in",
    "buffers_out",
    "busy_ms",
    "backpressured_ms",
    "idle_ms",
    "records_made",
)
_COUNTED: Final = ("count", "sum")
"""Parts of a user's figures that only grow, unless the user counts down."""
_COUNTERS: Final = ("counter", "distribution", "meter")


class JobFigures:
    """Whoever holds the lock of the job's runs may ask and tell."""

    def __init__(self) -> None:
        self._now: dict[str, TaskFigures] = {}
        self._before: dict[str, TaskFigures] = {}

    def measured(self, figures: Iterable[TaskFigures]) -> None:
        """Tasks of the present attempt."""
        self._now.update((one.task, one) for one in figures)

    def attempt_ended(self) -> None:
        """Another one begins."""
        for task, figures in self._now.items():
            self._before[task] = _added(self._before.get(task), figures)
        self._now.clear()

    def latest(self, tasks: Iterable[str]) -> list[TaskFigures]:
        """Of these tasks, in their order; those that have never reported are missing."""
        found: list[TaskFigures] = []
        for task in tasks:
            now, before = self._now.get(task), self._before.get(task)
            if now is not None:
                found.append(_added(before, now))
            elif before is not None:
                found.append(_waiting(before))
        return found


def _added(before: TaskFigures | None, now: TaskFigures) -> TaskFigures:
    if before is None:
        return now
    counts = {name: getattr(before, name) + getattr(now, name) for name in COUNTS}
    return structs.replace(now, **counts, user=_added_users(before.user, now.user))


def _waiting(before: TaskFigures) -> TaskFigures:
    """Of a task that has not reported since the job began anew."""
    counts = {name: getattr(before, name) for name in COUNTS}
    fresh = TaskFigures(before.task, before.vertex, before.subtask, TaskState.DEPLOYING)
    return structs.replace(fresh, **counts, user=before.user)


def _added_users(
    before: tuple[UserFigure, ...], now: tuple[UserFigure, ...]
) -> tuple[UserFigure, ...]:
    known = {(one.operator, one.scope, one.name): one for one in before}
    added = []
    for figure in now:
        old = known.pop((figure.operator, figure.scope, figure.name), None)
        if old is not None and old.kind == figure.kind and figure.kind in _COUNTERS:
            values = {
                part: value + old.values.get(part, 0) if part in _COUNTED else value
                for part, value in figure.values.items()
            }
            figure = structs.replace(figure, values=values)
        added.append(figure)
    # One that is registered late in an attempt keeps its count until then.
    return (*added, *(one for one in known.values() if one.kind in _COUNTERS))
