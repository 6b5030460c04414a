"""Figures of a user's own: counters, gauges, meters and distributions, in named groups.

A function registers them in ``open``; the task reads them now and then on its own thread (a gauge
is user code) and sends them along with its figures. Law: a name stands for one figure of its group;
asked for again, a counter, meter or distribution is the same object.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import index
from typing import Final, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

from headgate.base.elements import UNREADABLE, error_text
from headgate.base.messages import UserFigure


class Metric:
    """Base of the figures that a function can have."""


class Counter(Metric):
    """Counts up and down."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class Meter(Metric):
    """Events per second over the last span of time."""

    def __init__(self, now_ms: Callable[[], int], span_ms: int) -> None:
        self._now_ms = now_ms
        self._span_ms = span_ms
        self._count = 0
        self._marks: deque[tuple[int, int]] = deque([(now_ms(), 0)])
        """When, and how many there had been by then; at most one for each part of the span."""

    def mark_event(self, value: int = 1) -> None:
        self._count += value
        self._mark()

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        """Mean over the span, or since the start if that is shorter."""
        now = self._mark()
        then, before = self._marks[0]
        return (self._count - before) * 1000 / (now - then) if now > then else 0.0

    def _mark(self) -> int:
        now, marks = self._now_ms(), self._marks
        if now - marks[-1][0] >= self._span_ms / _PARTS:
            marks.append((now, self._count))
            while len(marks) > 1 and now - marks[1][0] >= self._span_ms:
                marks.popleft()
        return now


_PARTS: Final = 60


class Distribution(Metric):
    """A summary of whole numbers: how many, their sum, the smallest and the largest."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0

    def update(self, value: int) -> None:
        self.min = min(self.min, value) if self.count else value
        self.max = max(self.max, value) if self.count else value
        self.count += 1
        self.sum += value


Gauge: TypeAlias = Callable[[], "int | float"]
_Figure: TypeAlias = Counter | Meter | Distribution
_Kind = TypeVar("_Kind", Counter, Meter, Distribution)


ReportProblem: TypeAlias = Callable[[str, str], None]
"""Called with the path of a metric that is left out, and why."""

_NAME_CHARS: Final = 200
"""A longer name is cut when it is reported."""


class MetricGroup:
    """Figures of one operator, or of a part of it that the user has named."""

    def __init__(self, now_ms: Callable[[], int], scope: tuple[str, ...] = ()) -> None:
        self._now_ms = now_ms
        self._scope = scope
        self._groups: dict[tuple[str, ...], MetricGroup] = {}
        self._figures: dict[str, _Figure] = {}
        self._gauges: dict[str, Gauge] = {}

    def add_group(self, name: str, extra: str | None = None) -> "MetricGroup":
        """A group below this one; with ``extra`` a name and its value."""
        parts = (_named(name),) if extra is None else (_named(name), _named(extra))
        if parts not in self._groups:
            self._groups[parts] = MetricGroup(self._now_ms, (*self._scope, *parts))
        return self._groups[parts]

    def counter(self, name: str) -> Counter:
        return self._figure(name, Counter, Counter)

    def gauge(self, name: str, obj: Gauge) -> None:
        """``obj`` is called now and then, on the task's thread, and returns a number."""
        if not callable(obj):
            raise TypeError(f"gauge {name!r} was given {obj!r}; give a callable without arguments")
        self._check_free(name, None)
        self._gauges[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._figure(name, Meter, lambda: Meter(self._now_ms, time_span_in_seconds * 1000))

    def distribution(self, name: str) -> Distribution:
        return self._figure(name, Distribution, Distribution)

    def get_scope_components(self) -> list[str]:
        """The names of the groups down to this one."""
        return list(self._scope)

    @property
    def has_figures(self) -> bool:
        """Whether anything is registered, here or below."""
        return bool(
            self._figures
            or self._gauges
            or any(group.has_figures for group in self._groups.values())
        )

    def read(self, operator: str, report: ReportProblem) -> Iterator[UserFigure | None]:
        """All figures of this group and those below it, as they are now; runs gauges.

        For one that raises, or is no number, there is None, and it is reported.
        """
        # Lists, because other threads of the task may register more.
        for name, figure in chain(list(self._figures.items()), list(self._gauges.items())):
            found: UserFigure | None
            try:
                found = self._read_figure(operator, name, figure)
            except UNREADABLE as error:  # a figure must never end a job
                found = None
                report(".".join((*self._scope, name)), error_text(error))
            yield found
        for group in list(self._groups.values()):
            yield from group.read(operator, report)

    def _figure(self, name: str, kind: type[_Kind], make: Callable[[], _Kind]) -> _Kind:
        figure = self._figures.get(_named(name))
        if isinstance(figure, kind):
            return figure
        self._check_free(name, kind)
        self._figures[name] = made = make()
        return made

    def _check_free(self, name: str, kind: type | None) -> None:
        taken = self._figures.get(_named(name))
        if taken is not None or (kind is not None and name in self._gauges):
            what = "gauge" if taken is None else type(taken).__name__.lower()
            raise ValueError(f"the name {name!r} is that of a {what} already; choose another")

    def _read_figure(self, operator: str, name: str, figure: _Figure | Gauge) -> UserFigure:
        match figure:
            case Counter():
                return self._figure_of(operator, name, "counter", {"count": figure.get_count()})
            case Meter():
                values = {"count": figure.get_count(), "rate": figure.get_rate()}
                return self._figure_of(operator, name, "meter", values)
            case Distribution():
                values = {"count": figure.count, "sum": figure.sum}
                values.update({"min": figure.min, "max": figure.max} if figure.count else {})
                return self._figure_of(operator, name, "distribution", values)
            case _:
                return self._figure_of(operator, name, "gauge", {"value": figure()})

    def _figure_of(
        self, operator: str, name: str, kind: str, values: dict[str, int | float]
    ) -> UserFigure:
        scope = tuple(map(_text, self._scope))
        numbers = {part: _number(value) for part, value in values.items()}
        return UserFigure(operator, scope, _text(name), kind, numbers)


def _number(value: object) -> int | float:
    """A number that can travel, of whatever the user has given; raises if it is none."""
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"a {type(value).__name__} is no number")
    if isinstance(value, SupportsIndex):
        whole = index(value)
        return whole if -_BEYOND <= whole < _BEYOND else float(whole)
    if not isinstance(value, SupportsFloat):
        raise TypeError(f"{type(value).__name__} is no number")
    return float(value)


_BEYOND: Final = 2**63


def _text(name: str) -> str:
    """A name that can travel."""
    return name.encode("utf-8", "backslashreplace").decode()[:_NAME_CHARS]


def _named(name: str) -> str:
    if not name or type(name) is not str:
        raise ValueError(f"a figure or group needs a text that is not empty, not {name!r}")
    return name
