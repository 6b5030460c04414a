"""Classes whose instances are what they hold are told from those that are more. Row 7."""

import datetime
import enum
from typing import Any

import pytest

from headgate.base.layouts import layout_of
from tests.base import shape_kit as kit


@pytest.mark.parametrize(
    ("kind", "slots", "has_dict"),
    [
        (kit.Plain, set(), True),
        (kit.Data, set(), True),
        (kit.Slots, {"name", "amount"}, False),
        (kit.MoreSlots, {"rest", "name", "amount"}, False),
        (kit.FrozenSlots, {"name", "amount"}, False),
        (kit.DictOverSlots, {"name", "amount"}, True),
    ],
)
def test_a_layout_tells_slots_and_dict(kind: Any, slots: set[str], has_dict: bool) -> None:
    layout = layout_of(kind)
    assert layout is not None
    assert ({*layout.slots}, layout.has_dict) == (slots, has_dict)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "kind",
    [
        *(kit.OwnState, kit.Reduced, kit.Registered, kit.Hidden, kit.Keyword, kit.Asked),
        *(kit.Named, kit.Struct, Colour, datetime.datetime, type(lambda: 1)),
        *(dict, list, type("Words", (list,), {}), type("Loud", (Exception,), {})),
    ],
)
def test_a_class_that_is_more_than_what_it_holds_has_none(kind: Any) -> None:
    assert layout_of(kind) is None


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [(kit.Frozen, True), (kit.FrozenSlots, True), (kit.Data, False), (kit.Guarded, False)],
)
def test_only_dataclasses_that_refuse_assignments_are_frozen(kind: Any, frozen: bool) -> None:
    layout = layout_of(kind)
    assert layout is not None
    assert bool(layout.frozen_fields) == frozen
    assert layout.takes_assignments == (kind is kit.Data)
