"""Keys of many records at once: what the selector would give, and its own errors."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.fields import TUPLES, RecordFields, Same
from headgate.core.state.key_taking import key_form, key_taker, part_of

ZERO = 0


@dataclass
class Event:
    user: str


def first_of(pair: Any) -> Any:
    """The word."""
    return pair[0]


def with_type(row: dict[str, Any]) -> Any:
    key = row["user"]
    return key


def returns_another(pair: Any) -> Any:
    key = pair[0]  # noqa: F841
    return pair


class Selector:
    name = "a"

    def __call__(self, pair: Any) -> Any:
        return pair[0]

    def get_key(self, pair: Any) -> Any:
        return pair[0]

    def other(self, pair: Any) -> Any:
        return self.name


SIMPLE: list[tuple[Callable[[Any], Any], list[Any]]] = [
    (lambda pair: pair[0], [("a", 1), ["b", 2], "cd"]),
    (lambda pair: pair[-1], [("a", 1), ("b", 2)]),
    (lambda row: row["user"], [{"user": 1}, {"user": 2}]),
    (lambda event: event.user, [Event("a"), Event("b")]),
    (first_of, [("a", 1)]),
    (with_type, [{"user": 1}]),
    (Selector().get_key, [("a", 1)]),
    (lambda pair: pair[1:], [(1, 2, 3)]),
]
OTHERS: list[tuple[Callable[[Any], Any], list[Any]]] = [
    (lambda pair: pair, [1, 2]),
    (lambda pair: pair[0] % 2, [(3, 1), (4, 1)]),
    (lambda pair: pair[ZERO], [("a", 1)]),
    (lambda pair, place=0: pair[place], [("a", 1)]),
    (lambda *pair: pair[0], [("a", 1)]),
    (lambda event: event.user.upper(), [Event("a")]),
    (lambda pair: "ab"[pair], [0, 1]),
    (lambda pair: [pair][0], [5]),
    (returns_another, [("a", 1)]),
    (Selector().other, [("a", 1)]),
    (Selector(), [("a", 1)]),
    (itemgetter(0), [("a", 1)]),
]


@pytest.mark.parametrize(("key_of", "records"), SIMPLE)
def test_a_selector_that_takes_a_part_is_not_called(
    key_of: Callable[[Any], Any], records: list[Any]
) -> None:
    form = key_form(key_of)
    if form is not None:  # it may be wrong on the safe side
        assert form.take(records) == [key_of(record) for record in records]
    assert key_taker(key_of)(records) == [key_of(record) for record in records]


def test_the_selectors_that_most_programs_have_are_known() -> None:
    assert all(part_of(key_of) is not None for key_of, _ in SIMPLE[:5])


@pytest.mark.parametrize(("key_of", "records"), OTHERS)
def test_any_other_selector_is_called(key_of: Callable[[Any], Any], records: list[Any]) -> None:
    assert part_of(key_of) is None
    assert key_taker(key_of)(records) == [key_of(record) for record in records]


pairs = st.tuples(st.text(max_size=3), st.integers())


@given(st.lists(pairs | st.lists(st.integers(), max_size=2)))
def test_keys_and_errors_are_those_of_the_selector(records: list[Any]) -> None:
    def key_of(record: Any) -> Any:
        return record[1]

    assert keys_or_error(key_taker(key_of), records) == keys_or_error(
        lambda many: [key_of(record) for record in many], records
    )


def keys_or_error(take: Callable[[list[Any]], list[Any]], records: list[Any]) -> object:
    try:
        return take(records)
    except IndexError as error:
        return str(error)


def test_an_error_comes_from_the_selector_itself() -> None:
    with pytest.raises(TypeError) as failed:
        key_taker(first_of)([("a", 1), None])
    assert traceback.extract_tb(failed.tb)[-1].name == "first_of"
    assert failed.value.__context__ is None


class Ending:
    """Its parts are no iteration, whatever they raise."""

    def __getitem__(self, place: int) -> int:
        raise StopIteration("no more")


def test_a_stop_iteration_does_not_end_the_list() -> None:
    with pytest.raises(StopIteration, match="no more"):
        key_taker(lambda record: record[0])([(1,), Ending(), (2,)])


def by_variables(record: Any) -> Any:
    first = record[0]
    rest = record[1], first
    return rest, first[0]


COMPOSED: list[Callable[[Any], Any]] = [
    lambda record: (record[0], record[1]),
    lambda record: (record[1], record[0][-1]),
    lambda record: (record[0],),
    lambda record: ("of", record[0], (record[1], record[1])),
    lambda record: record[0][0],
    by_variables,
]


@pytest.mark.parametrize("key_of", COMPOSED)
@given(words=st.lists(st.tuples(st.text(min_size=1, max_size=2), st.integers()), min_size=1))
def test_keys_of_several_parts_are_taken_from_records_and_from_fields(
    key_of: Callable[[Any], Any], words: list[tuple[str, int]]
) -> None:
    form = key_form(key_of)
    assert form is not None
    expected = [key_of(word) for word in words]
    assert form.take(words) == key_taker(key_of)(words) == expected
    fields = RecordFields([list(place) for place in zip(*words, strict=True)], len(words))
    assert form.of_fields(fields) == expected


def test_keys_of_what_all_records_have_in_common_are_as_many_as_these() -> None:
    form = key_form(lambda record: (record[0], record[1]))
    assert form is not None
    assert form.of_fields(RecordFields([Same("a"), [1, 2]], 2)) == [("a", 1), ("a", 2)]
    alone = key_form(lambda record: (record[0], record[0]))
    assert alone is not None
    assert alone.of_fields(RecordFields([Same("a"), [1, 2]], 2)) == [("a", "a"), ("a", "a")]


@pytest.mark.parametrize(
    "key_of",
    [
        lambda record: (record[0], record),  # the record itself
        lambda record: (record[0], record[2]),  # there is no such field
        lambda record: (record[0], record.name),
        lambda record: (0, 1),
    ],
)
def test_fields_do_not_give_keys_that_need_the_record(key_of: Callable[[Any], Any]) -> None:
    form = key_form(key_of)
    assert form is not None
    assert form.places(TUPLES, 2) is None
    assert form.of_fields(RecordFields([["a"], [1]], 1)) is None


def test_a_part_of_a_field_that_is_not_there_is_left_to_the_selector() -> None:
    form = key_form(lambda record: (record[0][0], record[1]))
    assert form is not None
    assert form.of_fields(RecordFields([["a", ""], [1, 2]], 2)) is None
    with pytest.raises(IndexError):
        key_taker(lambda record: (record[0][0], record[1]))([("", 1)])


@pytest.mark.parametrize(
    "key_of",
    [
        lambda record: (record[0], len(record)),
        lambda record: [record[0], record[1]],
        lambda record: (record[0], *record[1]),
        lambda record: record[0] or record[1],
        lambda record: (record[0], record[1] + 1),
        lambda record: (record[0], ZERO),
    ],
)
def test_a_selector_that_does_more_has_no_form(key_of: Callable[[Any], Any]) -> None:
    assert key_form(key_of) is None
