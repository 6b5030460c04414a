"""Keys as people type them, and values as they read them."""

import datetime
import enum
import pickle
from decimal import Decimal
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.errors import StateUnreadable
from headgate.base.inspections import ShownValue, StateValue
from headgate.host.driver.state_reads import (
    LONGEST_REPR,
    in_json,
    parse_key,
    shown_repr,
    shown_value,
)

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
NAMELESS = Types.ROW([Types.STRING(), Types.INT()])
ROW = Types.ROW_NAMED(["day", "shop"], [Types.SQL_DATE(), Types.STRING()])


@pytest.mark.parametrize(
    ("text", "declared", "key"),
    [
        ("42", None, 42),
        ('"42"', None, "42"),
        ("abc", None, "abc"),
        ("", None, ""),
        ("null", None, None),
        ('["a", [1, 2]]', None, ("a", (1, 2))),
        ("42", Types.STRING(), "42"),
        ('"42"', Types.STRING(), '"42"'),
        ("42", Types.LONG(), 42),
        ("2.5", Types.DOUBLE(), 2.5),
        ("0.1", Types.FLOAT(), 0.1),
        ("true", Types.BOOLEAN(), True),
        ('["a", 1]', PAIR, ("a", 1)),
        ('{"day": "2026-02-03", "shop": "x"}', ROW, (datetime.date(2026, 2, 3), "x")),
        ("2026-02-03", Types.SQL_DATE(), datetime.date(2026, 2, 3)),
        ("1.10", Types.BIG_DEC(), Decimal("1.10")),
        ("ä", Types.PRIMITIVE_ARRAY(Types.BYTE()), "ä".encode()),
        ("42", Types.PICKLED_BYTE_ARRAY(), 42),
        ('["a", 0.1]', Types.TUPLE([Types.STRING(), Types.FLOAT()]), ("a", 0.1)),
    ],
)
def test_a_text_is_read_by_the_declared_type_or_as_a_literal(
    text: str, declared: object, key: object
) -> None:
    found = parse_key(text, declared)
    if isinstance(found, Row):
        found = tuple(found)
    assert found == key and type(found) is type(key)


@pytest.mark.parametrize(
    ("text", "declared", "key"),
    [
        ('["a", 1]', NAMELESS, Row("a", 1)),
        ('{"f0": "a", "f1": 1}', NAMELESS, Row(f0="a", f1=1)),
        ('["2026-02-03", "x"]', ROW, Row(day=datetime.date(2026, 2, 3), shop="x")),
        ('[["a", 1]]', Types.TUPLE([NAMELESS]), (Row("a", 1),)),
    ],
)
def test_a_row_has_the_names_that_the_key_selector_would_give(
    text: str, declared: object, key: object
) -> None:
    assert parse_key(text, declared) == key


@pytest.mark.parametrize(
    ("text", "key_type", "key"),
    [
        ("42", "string", "42"),
        ("42", "int", 42),
        ("42", "float", 42.0),
        ("True", "bool", True),
        ("42", "bytes", b"42"),
        ("[1, [2]]", "tuple", (1, (2,))),
        ("[1, [2]]", "json", [1, [2]]),
    ],
)
def test_people_may_say_what_a_key_is(text: str, key_type: str, key: object) -> None:
    found = parse_key(text, Types.INT() if key_type == "int" else None, key_type)
    assert found == key and type(found) is type(key)


@pytest.mark.parametrize(
    ("text", "declared", "key_type", "words"),
    [
        ("x", Types.INT(), "", r"the key 'x' is not of the type Types\.INT\(\): "),
        ("1.5", Types.INT(), "", "is not of the type"),
        ('["a"]', PAIR, "", "is not of the type"),
        ('{"date": 1}', ROW, "", "it has no field 'date'"),
        ("x", None, "int", "the key 'x' is not a int: ValueError"),
        ("1", None, "tuple", "give a JSON array"),
        ("1", None, "row", "give one of string, int"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(
    text: str, declared: object, key_type: str, words: str
) -> None:
    with pytest.raises(StateUnreadable, match=words):
        parse_key(text, declared, key_type)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, (2.5, None)], "b": True}, {"a": [1, [2.5, None]], "b": True}),
        (Row(name="a", n=1), {"name": "a", "n": 1}),
        (Decimal("1.10"), "1.10"),
        (datetime.datetime(2026, 2, 3, 4), "2026-02-03T04:00:00"),
        (Colour.RED, "RED"),
        (2**62, 2**62),
        (2**64, None),
        (float("nan"), None),
        ({1: "a"}, None),
        (b"x", None),
        ("\ud800", None),
        ({1, 2}, None),
    ],
)
def test_values_are_shown_in_json_where_it_says_the_same(value: Any, words: Any) -> None:
    assert in_json(value) == words


def test_deep_values_and_values_of_the_users_classes_are_shown_as_repr() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert in_json(deep) is None
    assert shown_repr("x" * 20_000).endswith("…") and len(shown_repr("x" * 20_000)) == LONGEST_REPR

    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert shown_repr(Broken()) == "a Broken, whose repr() fails: ValueError('no')"


def test_a_value_is_told_from_nothing() -> None:
    assert shown_value(1, StateValue()) == ShownValue(1, False)
    assert shown_value(1, StateValue(pickle.dumps(None))) == ShownValue(1, True)
    assert shown_value(b"k", StateValue(pickle.dumps({1}))) == ShownValue("b'k'", True, text="{1}")
    assert shown_value(1, StateValue(problem="too large")).problem == "too large"
    assert "cannot be unpickled" in shown_value(1, StateValue(b"junk")).problem
