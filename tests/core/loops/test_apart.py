"""Which items of its records a function reads, and how a loop goes over them."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headgate.base.fields import TUPLES, FieldShape, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.core.loops.apart import MOST_FORMS, ApartLoop, ApartLoops, FieldForm, apart_loop
from headgate.core.loops.loops import body_of
from headgate.core.state.key_taking import KeyForm, RecordPart
from tests.core.chain.kit import definitions_of

FIRST = RecordPart(0, False)


def rebound(a: Any, b: Any) -> Any:
    b = b[0]
    return b


@dataclass
class Event:
    user: str
    cents: int

    def price(self) -> float:
        return self.cents / 100


def shape_of(kind: type) -> FieldShape:
    shape = field_shape(kind, ("user", "cents"))
    assert shape is not None
    return shape


def planned(
    function: Callable[..., Any],
    has_list: tuple[bool, ...],
    part: RecordPart = FIRST,
    all_places: bool = False,
    shape: FieldShape = TUPLES,
) -> ApartLoop | None:
    body = body_of(function, 2, definitions_of(function))
    assert body is not None
    form = FieldForm(shape, has_list)
    return apart_loop(body, "b", form, KeyForm(part), all_places=all_places)


def test_items_take_the_place_of_the_record() -> None:
    apart = planned(lambda a, b: (a, b[1], b[-1]), (True, False, True))
    assert apart is not None
    (returned,) = apart.body.statements
    assert ast.unparse(returned) == "return (a, _hg_item_at1, _hg_item_at2)"
    assert (apart.key, apart.lists, apart.same, apart.makes_records) == (0, (0, 2), (1,), False)
    fields = RecordFields([["k"], Same(7), [8]], 1)
    assert apart.arguments(fields, ["time"]) == [["k"], [8], ["time"], 7]


def test_a_place_that_nobody_reads_is_left_out() -> None:
    apart = planned(lambda a, b: (a, b[1]), (True, True, True))
    assert apart is not None and apart.lists == (0, 1)
    apart = planned(lambda a, b: (a, b[1]), (True, True, True), all_places=True)
    assert apart is not None and apart.lists == (0, 1, 2)


def test_a_record_that_is_used_as_a_whole_is_put_together() -> None:
    apart = planned(lambda a, b: (b[1], len(b)), (True, True, False))
    assert apart is not None
    assert apart.makes_records
    assert apart.whole == "(_hg_item_at0, _hg_item_at1, _hg_item_at2,)"
    assert (apart.lists, apart.same) == ((0, 1), (2,))


def test_a_loop_goes_over_a_list_though_the_key_is_the_same_for_all() -> None:
    apart = planned(lambda a, b: a, (False, True))
    assert apart is not None
    assert (apart.lists, apart.same) == ((1,), (0,))


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda a, b: b[2], FIRST),
        (lambda a, b: b[-3], FIRST),
        (rebound, FIRST),
        (lambda a, b: b[0], RecordPart(2, False)),
        (lambda a, b: b[0], RecordPart(True, False)),
        (lambda a, b: b[0], RecordPart("name", False)),
        (lambda a, b: b[0], RecordPart("name", True)),
    ],
)
def test_what_items_cannot_stand_for_is_left_to_records(
    function: Callable[..., Any], part: RecordPart
) -> None:
    assert planned(function, (True, True), part) is None


def assigns_item(a: Any, b: Any) -> Any:
    b["cents"] = 5
    return b["cents"]


def assigns_attribute(a: Any, b: Any) -> Any:
    b.cents = 5
    return b.cents


@pytest.mark.parametrize(
    ("kind", "part", "function"),
    [
        (dict, RecordPart("user", False), lambda a, b: a + b["cents"]),
        (Event, RecordPart("user", True), lambda a, b: a + b.cents),
    ],
)
def test_fields_of_dicts_and_instances_are_read_by_name(
    kind: type, part: RecordPart, function: Callable[..., Any]
) -> None:
    apart = planned(function, (True, True), part, shape=shape_of(kind))
    assert apart is not None
    (returned,) = apart.body.statements
    assert ast.unparse(returned) == "return a + _hg_item_at1"
    assert (apart.key, apart.lists, apart.makes_records) == (0, (0, 1), False)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (dict, lambda a, b: b["other"]),
        (dict, lambda a, b: b[0]),
        (dict, lambda a, b: b.get("cents")),
        (dict, lambda a, b: (b["cents"], b)),
        (dict, assigns_item),
        (Event, lambda a, b: b.price()),
        (Event, lambda a, b: b["cents"]),
        (Event, lambda a, b: (b.cents, b)),
        (Event, lambda a, b: b.other),
        (Event, assigns_attribute),
    ],
)
def test_records_that_may_be_changed_or_fail_are_records(
    kind: type, function: Callable[..., Any]
) -> None:
    part = RecordPart("user", kind is Event)
    assert planned(function, (True, True), part, shape=shape_of(kind)) is None


@pytest.mark.parametrize("kind", [dict, Event])
def test_a_loop_can_put_any_record_together(kind: type) -> None:
    part = RecordPart("user", kind is Event)
    apart = planned(lambda a, b: a, (True, True), part, all_places=True, shape=shape_of(kind))
    assert apart is not None
    given = {f"_hg_{name}": value for name, value in apart.given.items()}
    made = eval(apart.whole, given, {"_hg_item_at0": "ann", "_hg_item_at1": 5})
    assert made == (Event("ann", 5) if kind is Event else {"user": "ann", "cents": 5})
    assert type(made) is kind


def test_loops_are_made_once_for_each_form_and_not_for_too_many() -> None:
    asked: list[FieldForm] = []
    loops = ApartLoops(lambda form: asked.append(form) or len(asked))  # type: ignore[func-returns-value]
    shapes = [RecordFields([[1], *([Same(0)] * more)], 1) for more in range(MOST_FORMS + 1)]
    found = [loops.loop_for(fields) for fields in shapes for _ in range(2)]
    assert found[:4] == [1, 1, 2, 2]
    assert found[-2:] == [None, None]
    assert len(asked) == MOST_FORMS
