"""Figures of user's functions, read on the task's thread."""

from headgate.base.messages import UserFigure
from headgate.core.task.statistics import UserFigures


def test_nothing_is_asked_where_nothing_is_registered() -> None:
    figures = UserFigures()
    figures.group_of("Map", lambda: 0)
    assert not figures.ask()


def test_figures_are_those_of_the_last_reading() -> None:
    figures = UserFigures()
    counter = figures.group_of("Map", lambda: 0).counter("n")
    counter.inc()
    assert figures.ask()
    assert not figures.ask(), "one request is enough until they are read"
    assert figures.last == ()
    figures.read()
    counter.inc()
    assert figures.last == (UserFigure("Map", (), "n", "counter", {"count": 1}),)
    assert figures.ask()


def test_operators_of_the_same_name_are_told_apart() -> None:
    figures = UserFigures()
    for _ in range(3):
        figures.group_of("Map", lambda: 0).counter("n")
    figures.read()
    assert [figure.operator for figure in figures.last] == ["Map", "Map #2", "Map #3"]
