"""The metrics of a job's tasks, over all its attempts.

In the workers, every attempt counts from zero. Law: a count never falls: those of earlier attempts
are added, including what is repeated after a restart. What is not a count (queue lengths,
watermarks, a user's gauge) is that of the current attempt.
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
"""Parts of a user's metrics that only grow, unless the user counts down."""
_COUNTERS: Final = ("counter", "distribution", "meter")


class JobFigures:
    """To be used under the lock of the job's runs."""

    def __init__(self) -> None:
        self._now: dict[str, TaskFigures] = {}
        self._before: dict[str, TaskFigures] = {}

    def measured(self, figures: Iterable[TaskFigures]) -> None:
        """Tasks of the current attempt have reported."""
        self._now.update((task.task, task) for task in figures)

    def attempt_ended(self) -> None:
        """Another one begins."""
        for task, figures in self._now.items():
            self._before[task] = _added(self._before.get(task), figures)
        self._now.clear()

    def latest(self, tasks: Iterable[str]) -> list[TaskFigures]:
        """Of these tasks, in their order; without those that have never reported."""
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
    """Of a task that has not reported since the restart."""
    counts = {name: getattr(before, name) for name in COUNTS}
    fresh = TaskFigures(before.task, before.vertex, before.subtask, TaskState.DEPLOYING)
    return structs.replace(fresh, **counts, user=before.user)


def _added_users(
    before: tuple[UserFigure, ...], now: tuple[UserFigure, ...]
) -> tuple[UserFigure, ...]:
    known = {(figure.operator, figure.scope, figure.name): figure for figure in before}
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
    # A metric that is not registered yet in this attempt keeps its count.
    return (*added, *(figure for figure in known.values() if figure.kind in _COUNTERS))
