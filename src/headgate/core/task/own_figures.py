"""Figures that only the task's own thread can read, because that runs the user's code.

The metrics of users' functions, the lag of the source, the size of the state. Whoever asks gets
what was read last. Law: nothing that is raised while they are read fails the task: the figure is
left out, and told once as a warning. The number of metrics and of warnings is bounded.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from headgate.base.elements import UNREADABLE, error_text
from headgate.base.figures import UNKNOWN
from headgate.base.messages import UserFigure
from headgate.core.chain.chain import Chain
from headgate.core.chain.operator import PolledOperator
from headgate.functions.metrics import MetricGroup
from headgate.functions.source import SplitLag

MOST_METRICS: Final = 1_000
"""Of a task; later ones are not reported."""
MOST_WARNINGS: Final = 100
_WARNING_CHARS: Final = 1_000

NO_LAG: Final = SplitLag()


class OwnFigures:
    """Of one task."""

    def __init__(self, chain: Chain) -> None:
        self.user: tuple[UserFigure, ...] = ()
        """What was read last, as the following."""
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
