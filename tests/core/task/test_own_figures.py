"""Figures that the task's own thread reads: metrics of users, lag, state; none of them can harm."""

from typing import Any

import pytest

from headgate.base.figures import UNKNOWN
from headgate.base.messages import UserFigure
from headgate.core.chain.operator import Operator, PolledOperator
from headgate.core.task.statistics import MOST_METRICS, MOST_WARNINGS, NO_LAG, OwnFigures
from headgate.core.task.task import StepResult
from headgate.functions.source import SplitLag
from tests.core.task.kit import Lab, live, sink, source, step_until


class Sized(Operator):
    size: Any = None

    def state_bytes(self) -> int | None:
        if isinstance(self.size, Exception):
            raise self.size
        return self.size  # type: ignore[no-any-return]


class Lagging(PolledOperator):
    answer: Any = None

    def lag(self) -> SplitLag | None:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.fixture
def figures() -> OwnFigures:
    return OwnFigures(Lab().chain(Sized))


def test_nothing_is_asked_where_nothing_is_known(figures: OwnFigures) -> None:
    figures.group_of("Map", lambda: 0)
    figures.opened()
    assert not figures.ask()
    figures.read()
    assert (figures.user, figures.lag, figures.state_bytes) == ((), NO_LAG, UNKNOWN)


def test_figures_are_those_of_the_last_reading(figures: OwnFigures) -> None:
    counter = figures.group_of("Map", lambda: 0).counter("n")
    counter.inc()
    assert figures.ask()
    assert not figures.ask(), "one request is enough until they are read"
    assert figures.user == ()
    figures.read()
    counter.inc()
    assert figures.user == (UserFigure("Map", (), "n", "counter", {"count": 1}),)
    assert figures.ask()


def test_operators_of_the_same_name_are_told_apart(figures: OwnFigures) -> None:
    for _ in range(3):
        figures.group_of("Map", lambda: 0).counter("n")
    figures.read()
    assert [figure.operator for figure in figures.user] == ["Map", "Map #2", "Map #3"]


def test_a_gauge_that_fails_is_left_out_and_told_once(figures: OwnFigures) -> None:
    group = figures.group_of("Map", lambda: 0)
    group.add_group("cache").gauge("hits", lambda: 1 / 0)
    group.gauge("name", lambda: "seven")  # type: ignore[arg-type, return-value]
    group.gauge("good", lambda: 7)
    for _ in range(3):
        figures.read()
        assert [figure.name for figure in figures.user] == ["good"]
    assert figures.take_warnings() == [
        "metric 'name' of operator 'Map' is left out: TypeError('a str is no number')",
        "metric 'cache.hits' of operator 'Map' is left out: ZeroDivisionError('division by zero')",
    ]
    assert figures.take_warnings() == []


def test_metrics_that_fail_count_too_and_are_not_told_for_ever(figures: OwnFigures) -> None:
    first, second = figures.group_of("Map", lambda: 0), figures.group_of("Sink", lambda: 0)
    first.counter("kept")
    asked: list[int] = []
    for number in range(10_000):
        second.add_group("user", str(number)).gauge("n", lambda: asked.append(1))  # type: ignore[arg-type, return-value]
    figures.read()
    assert [figure.name for figure in figures.user] == ["kept"]
    assert len(asked) == MOST_METRICS
    assert len(figures.take_warnings()) == MOST_WARNINGS


def test_what_is_beyond_the_limit_is_not_asked(figures: OwnFigures) -> None:
    asked: list[int] = []
    group = figures.group_of("Map", lambda: 0)
    for number in range(3 * MOST_METRICS):
        group.gauge(f"g{number}", lambda number=number: asked.append(number) or 1)  # type: ignore[misc, func-returns-value]
    figures.read()
    figures.read()
    assert len(figures.user) == MOST_METRICS
    assert len(asked) <= 2 * (MOST_METRICS + 1)
    (warning,) = figures.take_warnings()
    assert "more than 1,000 metrics" in warning
    assert "operator 'Map'" in warning


def test_the_size_of_the_state_is_that_of_the_operators_that_know_it() -> None:
    made: list[Sized] = []

    def make() -> Sized:
        made.append(Sized())
        return made[-1]

    figures = OwnFigures(Lab().chain(make, make, make))
    made[0].size, made[2].size = 100, 11
    figures.opened()
    assert figures.ask()
    figures.read()
    assert figures.state_bytes == 111
    made[1].size = OSError("no disk")
    figures.read()
    assert figures.state_bytes == UNKNOWN
    assert figures.take_warnings() == ["the size of its state is not known: OSError('no disk')"]


def test_the_lag_is_that_of_the_source_and_one_that_fails_harms_nobody() -> None:
    head = Lagging()
    figures = OwnFigures(Lab().chain(lambda: head))
    for answer, lag in [
        (None, NO_LAG),
        (SplitLag(records=4), SplitLag(records=4)),
        (SystemExit(3), NO_LAG),
        (ValueError("x"), NO_LAG),
    ]:
        head.answer = answer
        figures.read()
        assert figures.lag == lag
        assert figures.ask(), "a source may know later"
    assert figures.take_warnings() == ["lag() of source 'op0' has failed: SystemExit(3)"]


def test_a_task_reads_them_by_mail_and_a_last_time_at_its_end() -> None:
    got: list[Any] = []
    with Lab() as lab:
        task = lab.task(source([1, 2], [], [3]), sink(got))
        step_until(task, StepResult.IDLE)
        assert task.figures().splits == 1
        assert task.mailbox.has_mail()
        lab.timers.pass_ms(100)
        assert live(task) is None
        assert task.figures().splits == 0
        assert got == [1, 2, 3]
