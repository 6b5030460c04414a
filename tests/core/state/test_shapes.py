"""What an operator's checkpoints note of its states, and what is compared with it."""

import pytest

from headgate.base.checkpoints import WINDOWED, StateShape, TypeShape
from headgate.base.errors import RestoreRefused, StateChanged
from headgate.core.state.migration import Change, StateShapes

INT, LONG, DOUBLE, STRING = map(TypeShape, ("INT", "LONG", "DOUBLE", "STRING"))


def value(kind: TypeShape | None, name: str = "s") -> StateShape:
    return StateShape(name, "value", (kind,))


def test_a_state_that_nobody_opens_is_noted_again() -> None:
    shapes = StateShapes([value(INT), value(STRING, "other")], "op", 3)
    shapes.compare(value(LONG))
    shapes.enter(value(LONG))
    assert shapes.all() == (value(LONG), value(STRING, "other"))


def test_old_tasks_may_have_noted_different_types() -> None:
    shapes = StateShapes([value(LONG), value(INT)], "op", 3)
    assert shapes.compare(value(LONG)) is Change.NONE
    assert StateShapes([value(DOUBLE), value(INT)]).compare(value(DOUBLE)) is Change.REWRITTEN
    with pytest.raises(StateChanged):
        shapes.compare(value(INT))


def test_states_by_window_have_names_of_their_own() -> None:
    shapes = StateShapes([value(INT)], "op", 3)
    windowed = StateShape("s", "list", (STRING,), WINDOWED)
    assert shapes.compare(windowed) is Change.NONE


def test_a_refusal_names_everything() -> None:
    shapes = StateShapes([value(INT)], "count", 3)
    with pytest.raises(RestoreRefused) as refused:
        shapes.compare(StateShape("s", "list", (STRING,)))
    assert str(refused.value) == (
        "the job cannot go on from checkpoint 3: the state 's' of operator 'count' was value of "
        "Types.INT() there and is list of Types.STRING() now; give it the kind and type it had, "
        "or another name, under which it begins empty"
    )
