"""Which items of its records a function reads, and how a loop goes over them."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.fields import RecordFields, Same
from headgate.core.inlining.apart import MOST_SHAPES, ApartLoop, ApartLoops, Shape, apart_loop
from headgate.core.inlining.loops import body_of
from headgate.core.state.key_taking import RecordPart
from tests.core.chain.kit import definitions_of

FIRST = RecordPart(0, False)


def rebound(a: Any, b: Any) -> Any:
    b = b[0]
    return b


def planned(
    function: Callable[..., Any],
    shape: Shape,
    part: RecordPart | None = FIRST,
    all_places: bool = False,
) -> ApartLoop | None:
    body = body_of(function, 2, definitions_of(function))
    assert body is not None
    return apart_loop(body, "b", shape, part, all_places=all_places)


def test_items_take_the_place_of_the_record() -> None:
    apart = planned(lambda a, b: (a, b[1], b[-1]), (True, False, True))
    assert apart is not None
    (returned,) = apart.body.statements
    assert ast.unparse(returned) == "return (a, _hg_item_at1, _hg_item_at2)"
    assert (apart.key, apart.lists, apart.same, apart.makes_tuples) == (0, (0, 2), (1,), False)
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
    assert apart.makes_tuples
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
        (lambda a, b: b[0], None),
        (lambda a, b: b[0], RecordPart(2, False)),
        (lambda a, b: b[0], RecordPart(True, False)),
        (lambda a, b: b[0], RecordPart("name", False)),
        (lambda a, b: b[0], RecordPart("name", True)),
    ],
)
def test_what_items_cannot_stand_for_is_left_to_records(
    function: Callable[..., Any], part: RecordPart | None
) -> None:
    assert planned(function, (True, True), part) is None


def test_loops_are_made_once_for_each_shape_and_not_for_too_many() -> None:
    asked: list[Shape] = []
    loops = ApartLoops(lambda shape: asked.append(shape) or len(asked))  # type: ignore[func-returns-value]
    shapes = [RecordFields([[1], *([Same(0)] * more)], 1) for more in range(MOST_SHAPES + 1)]
    found = [loops.loop_for(fields) for fields in shapes for _ in range(2)]
    assert found[:4] == [1, 1, 2, 2]
    assert found[-2:] == [None, None]
    assert len(asked) == MOST_SHAPES
