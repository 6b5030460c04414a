"""Life cycles as tables of transitions: those of a task and of a job run.

Law: a pair of state and transition that the table does not have is a bug of the caller.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)
Transition = TypeVar("Transition", bound=Enum)


def next_state(
    table: Mapping[tuple[State, Transition], State], state: State, what: Transition, owner: str
) -> State:
    """Where ``what`` moves ``owner`` from its present state."""
    following = table.get((state, what))
    assert following is not None, f"{owner}: {what.name} while {state.value}"
    return following
