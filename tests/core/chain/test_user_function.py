"""A user's function within an operator: plain callables and objects, open and close."""

import pytest

from headgate.api.functions import MapFunction
from headgate.core.chain.user_function import UserFunction
from tests.core.chain.kit import context


class Loud:
    """A function object that keeps a log of its life."""

    def __init__(self, fails_in: str = "") -> None:
        self.log: list[str] = []
        self._fails_in = fails_in

    def open(self, runtime_context: object) -> None:
        self._note("open")

    def map(self, value: int) -> int:
        return value + 1

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what == self._fails_in:
            raise ValueError(what)


def test_a_plain_callable_is_called_itself() -> None:
    wrapped = UserFunction(abs, "map")
    wrapped.open(context())
    assert wrapped.call(-3) == 3
    wrapped.close()


def test_an_object_is_called_by_its_method() -> None:
    assert UserFunction(Loud(), "map").call(1) == 2


def test_what_is_neither_says_what_it_lacks() -> None:
    with pytest.raises(AssertionError, match="has no map"):
        _ = UserFunction(object(), "map").call


def test_open_and_close_are_called_once() -> None:
    function = Loud()
    wrapped = UserFunction(function, "map")
    wrapped.open(context())
    wrapped.close()
    wrapped.close()
    assert function.log == ["open", "close"]


def test_who_was_not_opened_is_not_closed() -> None:
    function = Loud()
    UserFunction(function, "map").close()
    assert function.log == []


def test_who_failed_in_open_is_closed_nevertheless() -> None:
    function = Loud(fails_in="open")
    wrapped = UserFunction(function, "map")
    with pytest.raises(ValueError, match="open"):
        wrapped.open(context())
    wrapped.close()
    assert function.log == ["open", "close"]


def test_a_close_that_fails_is_not_called_again() -> None:
    function = Loud(fails_in="close")
    wrapped = UserFunction(function, "map")
    wrapped.open(context())
    with pytest.raises(ValueError, match="close"):
        wrapped.close()
    wrapped.close()
    assert function.log == ["open", "close"]


class Plain(MapFunction[int, int]):
    """Inherits an ``open`` that does nothing."""

    def map(self, value: int) -> int:
        return value


class Opened(Plain):
    def open(self, runtime_context: object) -> None:
        """It is there, that is enough."""


@pytest.mark.parametrize(
    ("function", "opens"),
    [(abs, False), (Plain(), False), (Opened(), True), (Loud(), True), (object(), False)],
)
def test_who_has_an_open_of_its_own_may_have_state(function: object, opens: bool) -> None:
    assert UserFunction(function, "map").opens is opens
