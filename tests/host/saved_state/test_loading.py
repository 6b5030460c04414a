"""Pickles of a checkpoint become plain data and stand-ins, and never run anything."""

import copyreg
import datetime
import os
import pickle
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from headgate.api.row import Row, RowKind, make_row
from headgate.base.errors import StateBroken
from headgate.core.state.snapshot import Folded
from headgate.functions.evictors import TimestampedValue
from headgate.functions.time import Instant, Time
from headgate.functions.window import GlobalWindow, TimeWindow
from headgate.host.saved_state.loading import (
    _PLAIN,
    SafeLoader,
    SavedRow,
    StandIn,
    _Unpickler,
    load_classes,
    shown,
)
from tests.host.saved_state.kit import Colour, Order

PLAIN = [
    None,
    [1, "a", b"b", 2.5, True, (3,), {"k": {1}}, frozenset({2})],
    [datetime.datetime(2024, 5, 6, 7, tzinfo=ZoneInfo("Europe/Berlin")), datetime.date(2024, 1, 2)],
    [Decimal("1.5"), range(3, 9, 2), UUID(int=7), OrderedDict(a=1), deque([1])],
    [Row(a=1, b=Row("x")), TimeWindow(0, 5), GlobalWindow(), Folded.NONE, Time.hours(1)],
    [Fraction(1, 3), Fraction(-5), Counter("aab"), Instant(1, 2), TimestampedValue(3, 4)],
]


class Touches:
    """A pickle that would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class Zone(datetime.tzinfo):
    def utcoffset(self, dt: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=1)


@pytest.mark.parametrize("value", PLAIN)
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    loader = SafeLoader()
    found = loader(pickle.dumps(value, 5))
    assert found == value
    assert repr(pickle.loads(pickle.dumps(found, 5))) == repr(value), "as it is written again"
    assert not loader.unknown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Order(3, "tea"), "tests.host.saved_state.kit.Order(number=3, item='tea')"),
        (Colour.RED, "tests.host.saved_state.kit.Colour(1)"),
        ({"k": Order}, "{'k': tests.host.saved_state.kit.Order}"),
    ],
)
def test_an_object_of_another_class_is_shown_by_its_parts(value: object, text: str) -> None:
    assert shown(SafeLoader()(pickle.dumps(value, 5))) == text


def test_nothing_that_a_pickle_names_is_called(tmp_path: Path) -> None:
    loader = SafeLoader()
    made = loader(pickle.dumps([Touches(tmp_path / "made")], 5))
    assert not (tmp_path / "made").exists()
    assert isinstance(made[0], StandIn)
    assert [*loader.unknown] == ["posix.mkdir"]
    pickle.loads(pickle.dumps(Touches(tmp_path / "made"), 5))
    assert (tmp_path / "made").exists(), "the pickle was harmless anyway"


def test_a_datetime_with_a_foreign_zone_spoils_nothing_beside_it() -> None:
    moment = datetime.datetime(2024, 1, 1, tzinfo=Zone())
    found = SafeLoader()(pickle.dumps([moment, TimeWindow(1, 2), datetime.date(2024, 1, 1)], 5))
    assert isinstance(found[0], StandIn)
    assert found[1:] == [TimeWindow(1, 2), datetime.date(2024, 1, 1)]


def test_classes_that_have_moved_are_found_under_their_old_names() -> None:
    old = b"\x80\x05\x8c\x1bheadgate.core.window.window\x8c\nTimeWindow\x93K\x01K\x02\x86\x81."
    assert SafeLoader()(old) == TimeWindow(1, 2)


def test_a_missing_module_is_named_where_classes_are_loaded() -> None:
    data = pickle.dumps(Order(1, "x"), 5).replace(
        b"tests.host.saved_state.kit", b"tests.host.saved_state.gon"
    )
    with pytest.raises(StateBroken, match="module 'tests.host.saved_state.gon', which is not here"):
        load_classes(data)


def test_a_value_that_cannot_be_shown_says_so() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "<list that cannot be shown: RecursionError>"
    while nested:  # freed level by level
        nested = nested.pop()


def named(thing: Any) -> bytes:
    """The opcode that names a class or function."""
    return f"c{thing.__module__}\n{thing.__qualname__}\n".encode()


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def changing(target: bytes, name: str) -> bytes:
    """A pickle that sets an attribute of what ``target`` makes, as the state of its slots."""
    return b"\x80\x04" + target + b"N}" + text(name) + named(Decimal) + b"s\x86b."


@pytest.mark.parametrize("thing", [Row, TimeWindow, Fraction, Counter, make_row])
def test_a_pickle_cannot_change_classes_or_functions(thing: Any) -> None:
    with pytest.raises(TypeError, match="a pickle cannot change"):
        SafeLoader()(changing(named(thing), "spoiled"))
    assert not hasattr(thing, "spoiled")
    pickle.loads(changing(named(thing), "spoiled"))
    assert hasattr(thing, "spoiled"), "the pickle was harmless anyway"
    del thing.spoiled


CHANGES = {
    "fields": b"}" + text("spoiled") + b"K\x01sb",
    "slots": b"N}" + text("spoiled") + b"K\x01s\x86b",
    "item": b"K\x01K\x02s",
    "items": b"(K\x01K\x02u",
    "append": b"K\x01a",
    "appends": b"(K\x01e",
    "add": b"(K\x01\x90",
}
NAMED = [*_PLAIN, ("builtins", "getattr"), ("os", "system"), ("zoneinfo", "ZoneInfo")]


@pytest.mark.parametrize("saves_rows", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NAMED, ids=".".join)
def test_a_pickle_cannot_change_what_it_gets_by_its_name(
    name: tuple[str, str], change: str, saves_rows: bool
) -> None:
    named_thing = "c{}\n{}\n".format(*name).encode()
    with pytest.raises((AttributeError, TypeError, pickle.UnpicklingError)):
        SafeLoader(saves_rows)(b"\x80\x04" + named_thing + CHANGES[change] + b".")
    assert not vars(_Unpickler._attribute).get("spoiled")


def test_codes_of_the_registry_of_pickle_are_refused() -> None:
    code = 0x7FFF_FF17
    data = b"\x80\x04\x84" + code.to_bytes(4, "little") + b"."
    copyreg.add_extension("os", "system", code)
    try:
        with pytest.raises(pickle.UnpicklingError, match="registry of copyreg"):
            SafeLoader()(data)
        with pytest.raises(pickle.UnpicklingError, match="registry of copyreg"):
            SafeLoader()(data)  # nor is it taken from a cache
        assert SafeLoader()(pickle.dumps(["\x84", b"\x82\x83\x84"], 5)) == ["\x84", b"\x82\x83\x84"]
        assert pickle.loads(data) is os.system, "the pickle was harmless anyway"
    finally:
        copyreg.remove_extension("os", "system", code)


def test_parts_stand_for_rows_where_only_parts_are_looked_at() -> None:
    rows = [Row(a=1, b=Row("x")), Row(2, [3]), make_row(["c"], [4], RowKind.DELETE)]
    loader = SafeLoader(saves_rows=True)
    found, keys = loader(pickle.dumps([rows, [{Row(a=1, b=2): "v"}, {Row(b=2, a=1): "v"}]], 5))
    assert found == rows
    assert repr(found) == repr(rows)
    assert {type(row) for row in found} == {SavedRow}
    assert keys[0] == keys[1], "equal, with equal hashes"
    assert not loader.unknown


def test_a_pickle_cannot_change_what_makes_parts_of_rows() -> None:
    loader = SafeLoader(saves_rows=True)
    row = named(make_row) + b"N)N\x87R"
    for target in (named(make_row), row):
        with pytest.raises((AttributeError, TypeError)):
            loader(changing(target, "values"))
    assert loader(b"\x80\x04" + row + b".").values == ()
    unfit = b"\x80\x04" + named(make_row) + b"NK\x07N\x87R."
    assert shown(loader(unfit)) == "make_row(None, 7, None)", "as what it is, in a table"


@pytest.mark.parametrize("shared", [RowKind.INSERT, Folded.NONE, GlobalWindow()])
def test_a_pickle_cannot_change_objects_of_which_there_is_one(shared: Any) -> None:
    argument = b"K\x00\x85" if isinstance(shared, Enum) else b")"
    with pytest.raises(TypeError, match="a pickle cannot change"):
        SafeLoader()(changing(named(type(shared)) + argument + b"R", "spoiled"))
    assert not hasattr(shared, "spoiled")


@pytest.mark.parametrize(
    "bomb",
    [
        named(set) + named(range) + b"J\xff\xff\xff\x7f\x85R\x85R",
        named(Fraction) + text("1e999999999") + b"\x85R",
        named(Fraction) + text("1e999999999") + b"\x85\x81",
        named(Fraction) + named(Decimal) + text("1e999999999") + b"\x85R\x85R",
    ],
)
def test_a_few_bytes_do_not_fill_the_memory(bomb: bytes) -> None:
    with pytest.raises((TypeError, pickle.UnpicklingError)):
        SafeLoader()(b"\x80\x04" + bomb + b".")
