"""Map, flat map and filter with keyed state: as without, and each key sees its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.errors import UserFunctionFailed
from headgate.core.operators.basic import FunctionOperator
from headgate.core.operators.keyed_functions import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
)
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import cut, open_operator, run

KINDS: list[Callable[[object, Callable[[Any], Any]], FunctionOperator]] = [
    KeyedMapOperator,
    KeyedFlatMapOperator,
    KeyedFilterOperator,
]


class Numbering:
    """Numbers the records of each key, by every kind of function."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def map(self, value: Any) -> Any:
        return value, self._next()

    def flat_map(self, value: Any) -> Iterator[Any]:
        number = self._next()
        for copy in range(number):
            yield value, copy
            assert self.seen.value() == number, "the generator runs at its own key"

    def filter(self, value: Any) -> bool:
        return self._next() % 2 == 1

    def _next(self) -> int:
        number = int(self.seen.value() or 0) + 1
        self.seen.update(number)
        return number


keys = st.lists(st.sampled_from(["a", "b", None, ["c"], ("d", [1])]), max_size=30)


@given(keys, st.lists(st.integers(1, 7), max_size=6), st.booleans())
def test_each_key_has_its_own_state(found: list[Any], cuts: list[int], timed: bool) -> None:
    times: list[int | None] = list(range(len(found)))
    bundles = cut(found, cuts, times if timed else None)
    numbered = [(key, found[: index + 1].count(key)) for index, key in enumerate(found)]
    mapped, flat, filtered = (run(make(Numbering(), lambda r: r), bundles) for make in KINDS)
    assert mapped.records == numbered
    assert flat.records == [(key, copy) for key, number in numbered for copy in range(number)]
    assert filtered.records == [key for key, number in numbered if number % 2]
    if timed:
        assert [time for _, time in mapped.timed] == times
        assert [time for _, time in filtered.timed] == [
            index for index, (_, number) in enumerate(numbered) if number % 2
        ]


@pytest.mark.parametrize("make", KINDS)
def test_functions_are_opened_and_closed_and_give_their_state_back(
    make: Callable[..., FunctionOperator],
) -> None:
    log: list[str] = []

    class Loud(Numbering):
        def open(self, runtime_context: Any) -> None:
            super().open(runtime_context)
            log.append("open")

        def close(self) -> None:
            log.append("close")

    operator = make(Loud(), lambda r: r)
    open_operator(operator)
    operator.process(Bundle(["a"]), 0)
    operator.close()
    operator.close()
    assert log == ["open", "close"]


@pytest.mark.parametrize("make", KINDS)
def test_a_key_selector_that_fails_names_the_operator(make: Callable[..., Any]) -> None:
    operator = make(Numbering(), lambda record: record["id"])
    open_operator(operator)
    with pytest.raises(UserFunctionFailed, match="'op' failed when the key of a record"):
        operator.process(Bundle([{}]), 0)


def test_a_map_may_return_none() -> None:
    class Nothing(Numbering):
        def map(self, value: Any) -> Any:
            return None

    operator = KeyedMapOperator(Nothing(), lambda r: r)
    output = open_operator(operator)
    operator.process(Bundle(["a"]), 0)
    assert output.records == [None]


def test_what_is_kept_in_state_can_change_after_it_was_sent() -> None:
    class Gather:
        def open(self, runtime_context: Any) -> None:
            self.all = runtime_context.get_state(ValueStateDescriptor("all"))

        def map(self, value: int) -> Any:
            gathered = self.all.value() or []
            gathered.append(value)
            self.all.update(gathered)
            return gathered

    output = run(KeyedMapOperator(Gather(), lambda r: 0), [Bundle([1, 2]), Bundle([3])])
    assert output.records == [[1], [1, 2], [1, 2, 3]]


def test_in_a_batch_the_state_of_a_key_ends_with_it() -> None:
    operator = KeyedMapOperator(Numbering(), lambda r: r)
    output = open_operator(operator)
    for _ in range(2):
        operator.process(Bundle(["a", "a"]), 0)
        operator.key_ended()
    assert output.records == [("a", 1), ("a", 2)] * 2
    operator.close()
