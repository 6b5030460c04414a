"""Kinds and types of the states of one operator: what a checkpoint has noted, and what is opened.

One object for each operator of a task. Law: a state that was restored is opened with the kind it
had, and with a type that loses nothing of its values; whatever else is refused when it is opened,
before the first value is read. What nobody has opened yet is noted again as it was.
"""

from collections.abc import Iterable
from typing import NoReturn

from headgate.base.errors import StateChanged
from headgate.base.state_shapes import KEYED, StateShape
from headgate.core.state.type_changes import Change, change_of


class StateShapes:
    """Without arguments: of an operator that begins from nothing."""

    def __init__(
        self, restored: Iterable[StateShape] = (), operator: str = "", checkpoint: int = 0
    ) -> None:
        self._operator = operator
        self._checkpoint = checkpoint
        self._before: dict[tuple[str, str], list[StateShape]] = {}
        for shape in restored:
            self._before.setdefault((shape.scope, shape.name), []).append(shape)
        self._opened: dict[tuple[str, str], StateShape] = {}

    def all(self) -> tuple[StateShape, ...]:
        """For a checkpoint: those that are open, and those that wait to be."""
        waiting = [
            shape
            for place, shapes in self._before.items()
            if place not in self._opened
            for shape in shapes
        ]
        return (*self._opened.values(), *waiting)

    def before(self, name: str, scope: str = KEYED) -> list[StateShape]:
        """How a restored state was noted; old tasks that differ have noted several."""
        return self._before.get((scope, name), [])

    def compare(self, shape: StateShape) -> Change:
        """Whether the restored values of a state must be rewritten; raises StateChanged."""
        change = Change.NONE
        for before in self.before(shape.name, shape.scope):
            if before.kind != shape.kind or len(before.types) != len(shape.types):
                self.refuse(shape, str(before))
            pairs = zip(before.types, shape.types, strict=True)
            change = max([change, *(change_of(*pair) for pair in pairs)])
            if change is Change.REFUSED:
                self.refuse(shape, str(before))
        return change

    def enter(self, shape: StateShape) -> None:
        """A state is open, and what was restored of it has this shape."""
        self._opened[shape.scope, shape.name] = shape

    def refuse(self, shape: StateShape, had: str, why: str = "") -> NoReturn:
        """What is restored does not fit the state that is opened."""
        name = f"the state {shape.name!r}"
        raise StateChanged(self._checkpoint, self._operator, name, had, str(shape), why)
