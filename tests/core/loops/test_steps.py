"""Which maps and filters can be steps in the loop of another function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headgate.core.loops.loops import body_of
from headgate.core.loops.steps import Step, step_of
from tests.core.chain.kit import definitions_of

LIMIT = 3


@dataclass
class Event:
    name: str
    size: int = 0


def helped(value: Any) -> Any:
    return value


def two_statements(value: Any) -> bool:
    limit = LIMIT
    return bool(value < limit)


class Owned:
    def __init__(self) -> None:
        self.limit = 5

    def above(self, value: Any) -> bool:
        return bool(value > self.limit)

    def asked(self, value: Any) -> bool:
        return self.above(value)


def step_for(function: Callable[[Any], Any], is_filter: bool = False) -> Step | None:
    def again(record: Any) -> Any:
        raise AssertionError(record)

    return step_of(function, body_of(function, 1, definitions_of(function)), is_filter, again)


@pytest.mark.parametrize(
    "function",
    [
        lambda value: value,
        lambda value: value["a"] > LIMIT and value["b"] is not None,
        lambda value: (value.name, value.size + 1),
        lambda value: {"a": value[0], "b": [value[1]]},
        lambda value: Event(value["name"], size=value["size"]),
        lambda value: len(value) + int(value[0]),
        lambda value: value.name.startswith("x") or value.name.strip().lower() == "y",
        lambda value: isinstance(value, str),
        Owned().above,
    ],
)
def test_a_function_that_only_reads_its_record_is_a_step(function: Callable[[Any], Any]) -> None:
    assert step_for(function) is not None


def enclosing() -> Callable[[Any], Any]:
    limit = 4
    return lambda value: value > limit


@pytest.mark.parametrize(
    "function",
    [
        lambda value: helped(value),
        lambda value: helped(value=value),
        lambda value: [helped][0](value),
        lambda value: value.append(1),
        lambda value: value.get("a"),
        lambda value: Event(helped(value)),
        lambda value: [Event(value)],
        lambda value: sorted(value),
        lambda value: print(value),
        lambda value: (*value, 1),
        lambda value: missing_everywhere,  # type: ignore[name-defined] # noqa: F821
        enclosing(),
        two_statements,
        Owned().asked,
    ],
)
def test_a_function_that_may_do_more_has_a_loop_of_its_own(function: Callable[[Any], Any]) -> None:
    assert step_for(function) is None


def test_a_filter_makes_nothing_of_its_record() -> None:
    assert step_for(lambda value: Event(value)) is not None
    assert step_for(lambda value: Event(value), is_filter=True) is None


def test_a_step_holds_as_long_as_names_mean_the_same() -> None:
    source = step_for(lambda value: Event(len(value)))  # type: ignore[arg-type]
    assert source is not None and source.holds()
    globals()["len"] = lambda value: 7
    try:
        assert not source.holds()
    finally:
        del globals()["len"]
    assert source.holds()
