"""Figures of the user's functions in a task: a group for each operator, read now and then.

Law: gauges run on the task's thread only; whoever asks gets what was read last.
"""

from collections.abc import Callable

from headgate.base.messages import UserFigure
from headgate.functions.metrics import MetricGroup


class UserFigures:
    """Of one task."""

    def __init__(self) -> None:
        self.last: tuple[UserFigure, ...] = ()
        """What was read last."""
        self._groups: list[tuple[str, MetricGroup]] = []
        self._asked = False

    def group_of(self, operator: str, now_ms: Callable[[], int]) -> MetricGroup:
        """A new group for an operator; a second one of the same name is numbered."""
        group = MetricGroup(now_ms)
        taken = sum(name.partition(" #")[0] == operator for name, _ in self._groups)
        self._groups.append((f"{operator} #{taken + 1}" if taken else operator, group))
        return group

    def ask(self) -> bool:
        """Somebody wants new figures; says whether the task must be told to read them."""
        if self._asked or not any(group.has_figures for _, group in self._groups):
            return False
        self._asked = True
        return True

    def read(self) -> None:
        """Read all of them, on the task's thread."""
        self._asked = False
        self.last = tuple(
            UserFigure(operator, figure.scope, figure.name, figure.kind, figure.values)
            for operator, group in self._groups
            for figure in group.read()
        )
