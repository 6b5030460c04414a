"""Map, filter, flat map: a list in, a list out, timestamps kept. Row 16."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.user_function import PIECE
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import KeptOutput, cut, open_operator, run

pytestmark = pytest.mark.usefixtures("inlining")

numbers = st.lists(st.integers(-50, 50), max_size=40)
sizes = st.lists(st.integers(1, 9), max_size=8)


class Life:
    """A function object that counts how it was opened and closed."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.log.append(f"open {runtime_context.get_index_of_this_subtask()}")

    def map(self, value: int) -> int:
        return -value

    def filter(self, value: int) -> bool:
        return value > 0

    def flat_map(self, value: int) -> Iterator[int]:
        yield from [value] * (value % 3)

    def close(self) -> None:
        self.log.append("close")


def bundles_of(records: list[int], cuts: list[int], timed: bool) -> list[Bundle]:
    times: list[int | None] | None = [index * 10 for index in range(len(records))]
    return cut(records, cuts, times if timed else None)


def expected(records: list[int], timed: bool, made: Any) -> list[tuple[Any, int | None]]:
    return [
        (result, index * 10 if timed else None)
        for index, record in enumerate(records)
        for result in made(record)
    ]


@given(numbers, sizes, st.booleans())
def test_map_keeps_order_and_timestamps(records: list[int], cuts: list[int], timed: bool) -> None:
    output = run(MapOperator(lambda n: n * 2), bundles_of(records, cuts, timed))
    assert output.timed == expected(records, timed, lambda n: [n * 2])


@given(numbers, sizes, st.booleans())
def test_filter_keeps_order_and_timestamps(
    records: list[int], cuts: list[int], timed: bool
) -> None:
    output = run(FilterOperator(lambda n: n % 2), bundles_of(records, cuts, timed))
    assert output.timed == expected(records, timed, lambda n: [n] if n % 2 else [])


@given(numbers, sizes, st.booleans())
def test_flat_map_keeps_order_and_gives_all_its_timestamp(
    records: list[int], cuts: list[int], timed: bool
) -> None:
    output = run(FlatMapOperator(lambda n: range(n % 4)), bundles_of(records, cuts, timed))
    assert output.timed == expected(records, timed, lambda n: range(n % 4))


@pytest.mark.parametrize("make", [MapOperator, FilterOperator, FlatMapOperator])
def test_a_function_object_is_opened_and_closed_once(make: type[FunctionOperator]) -> None:
    function = Life()
    run(make(function), [Bundle([1, 2]), Bundle([3])])
    assert function.log == ["open 0", "close"]


@pytest.mark.parametrize("make", [MapOperator, FilterOperator, FlatMapOperator])
def test_a_stop_iteration_of_the_users_does_not_shorten_the_list(
    make: type[FunctionOperator],
) -> None:
    def stop(value: int) -> Any:
        if value == 2:
            raise StopIteration
        return [value]

    operator = make(stop)
    output = open_operator(operator)
    with pytest.raises(StopIteration):
        operator.process(Bundle([1, 2, 3]), 0)
    assert not output.bundles


def test_a_map_function_may_return_none() -> None:
    operator = MapOperator(lambda n: None if n == 2 else n)
    output = open_operator(operator)
    operator.process(Bundle([1, 2]), 0)
    assert output.records == [1, None]


@pytest.mark.parametrize("found", [None, 3])
def test_a_flat_map_function_must_return_an_iterable(found: Any) -> None:
    operator = FlatMapOperator(lambda n: found)
    open_operator(operator)
    with pytest.raises(TypeError, match=r"flat_map function must return an iterable .* not"):
        operator.process(Bundle([1]), 0)


def test_a_flat_map_function_that_returns_nothing_is_told() -> None:
    seen: list[int] = []

    def forgetful(value: int) -> None:
        seen.append(value)

    with pytest.raises(TypeError, match="flat_map function must return an iterable .* not None"):
        run(FlatMapOperator(forgetful), [Bundle([1])])
    assert seen == [1]


@pytest.mark.parametrize("timed", [False, True])
def test_many_records_out_of_one_go_on_in_pieces(timed: bool) -> None:
    operator = FlatMapOperator(lambda n: range(PIECE // 2))
    output = run(operator, [Bundle([1, 2, 3, 4, 5], [10, 20, 30, 40, 50] if timed else None)])
    assert [len(bundle.records) for bundle in output.bundles] == [PIECE, PIECE, PIECE // 2]
    if timed:
        assert [set(bundle.timestamps or ()) for bundle in output.bundles] == [
            {10, 20},
            {30, 40},
            {50},
        ]


@pytest.mark.parametrize("timed", [False, True])
def test_one_generator_goes_on_in_pieces_while_it_runs(timed: bool) -> None:
    sent_at: list[int] = []

    def many(value: int) -> Iterator[int]:
        for n in range(2 * PIECE + 3):
            sent_at.append(len(output.bundles))
            yield n

    operator = FlatMapOperator(many)
    output = open_operator(operator)
    operator.process(Bundle([1], [10] if timed else None), 0)
    assert [len(bundle.records) for bundle in output.bundles] == [PIECE, PIECE, 3]
    assert [r for bundle in output.bundles for r in bundle.records] == list(range(2 * PIECE + 3))
    assert [len(bundle.timestamps or ()) for bundle in output.bundles] == (
        [PIECE, PIECE, 3] if timed else [0, 0, 0]
    )
    assert sent_at[PIECE - 1 : PIECE + 1] == [0, 1]


def test_nothing_selected_sends_nothing() -> None:
    assert run(FilterOperator(lambda n: False), [Bundle([1, 2])]).bundles == []
    assert run(FlatMapOperator(lambda n: ()), [Bundle([1, 2])]).bundles == []


# By value.


class Keeper:
    """Returns what it keeps, and changes it at the next call."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    def map(self, value: int) -> list[int]:
        self.kept.append(value)
        return self.kept

    def filter(self, value: list[int]) -> bool:
        self.kept = value
        return True

    def flat_map(self, value: int) -> Iterator[list[int]]:
        for _ in range(2):
            self.kept.append(value)
            yield self.kept


@given(st.lists(st.integers(), max_size=12), sizes)
def test_what_a_function_returned_was_sent_as_it_was_then(
    records: list[int], cuts: list[int]
) -> None:
    mapped = run(MapOperator(Keeper()), cut(records, cuts)).records
    assert mapped == [records[: end + 1] for end in range(len(records))]
    doubled = [record for record in records for _ in range(2)]
    flat = run(FlatMapOperator(Keeper()), cut(records, cuts)).records
    assert flat == [doubled[: end + 1] for end in range(len(doubled))]


def test_a_filter_that_keeps_its_record_cannot_change_what_was_sent() -> None:
    function = Keeper()
    operator = FilterOperator(function)
    output = open_operator(operator)
    operator.process(Bundle([[1]]), 0)
    function.kept.append(2)
    assert output.records == [[1]]


def test_with_object_reuse_nothing_is_copied() -> None:
    function = Keeper()
    operator = MapOperator(function)
    output: KeptOutput = open_operator(operator, reuse=True)
    operator.process(Bundle([1]), 0)
    assert output.records[0] is function.kept


KINDS: list[Callable[[object, Callable[[Any], Any]], FunctionOperator]] = [
    MapOperator,
    FlatMapOperator,
    FilterOperator,
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

    operator = MapOperator(Nothing(), lambda r: r)
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

    output = run(MapOperator(Gather(), lambda r: 0), [Bundle([1, 2]), Bundle([3])])
    assert output.records == [[1], [1, 2], [1, 2, 3]]


def test_in_a_batch_the_state_of_a_key_ends_with_it() -> None:
    operator = MapOperator(Numbering(), lambda r: r)
    output = open_operator(operator)
    for _ in range(2):
        operator.process(Bundle(["a", "a"]), 0)
        operator.key_ended()
    assert output.records == [("a", 1), ("a", 2)] * 2
    operator.close()
