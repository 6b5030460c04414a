"""Calls of value states become reads and writes of dictionaries, where nobody can tell."""

from typing import Any

import pytest

from headgate.core.inlining.loops import body_of
from headgate.core.inlining.state_calls import state_calls
from tests.core.chain.kit import definitions_of


class Plain:
    count: Any
    last: Any
    limit = 3

    def process_element(self, value: Any, ctx: Any) -> Any:
        if (self.count.value() or 0) > self.limit:
            self.count.update(self.last.value())
        yield value


class CallsAnotherMethod(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.reset()
        yield self.count.value()

    def reset(self) -> None:
        self.count = self.last


class HandsItselfOver(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        setattr(self, "count", self.last)  # noqa: B010
        yield self.count.value()


class AssignsAState(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count = self.last
        yield self.count.value()


class AsksForTheAnswer(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.count.update(value)


class OtherCalls(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.clear()
        self.count.update(value, 1)
        yield self.count.value(1), value.count.value()


def states_of(function: Plain) -> list[str] | None:
    call = function.process_element
    body = body_of(call, 2, definitions_of(function))
    assert body is not None
    states = state_calls(call, body)
    return None if states is None else list(states.names)


def test_states_in_attributes_are_found() -> None:
    assert states_of(Plain()) == ["count", "last"]


@pytest.mark.parametrize(
    "function",
    [CallsAnotherMethod(), HandsItselfOver(), AssignsAState(), AsksForTheAnswer(), OtherCalls()],
)
def test_states_that_may_change_or_are_called_otherwise_are_left(function: Plain) -> None:
    assert states_of(function) is None


def test_a_function_without_an_object_has_no_states() -> None:
    count = Plain()
    call = lambda value, ctx: count.count.value()  # noqa: E731
    body = body_of(call, 2, definitions_of(call))
    assert body is not None and state_calls(call, body) is None
