"""What the tests of states are made of: a backend whose clock the test sets, and simple types."""

from typing import Any

from hypothesis import strategies as st

from headgate.base.checkpoints import StateShape
from headgate.core.state.memory import MemoryBackend
from headgate.core.state.migration import StateShapes
from headgate.core.state.opening import StateOpener
from headgate.functions.state import StateDescriptor
from tests.core.state.conformance import GROUPS, Make, at

key_atoms = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
keys = st.recursive(
    key_atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
        st.sets(st.integers(0, 40), max_size=4),
        st.binary(max_size=2).map(bytearray),
    ),
    max_leaves=8,
)
"""Keys as users make them, also those that cannot be hashed."""


class Lab:
    """A backend, an opener and a clock."""

    def __init__(
        self,
        make: Make = MemoryBackend,
        namespaced: bool = False,
        shapes: tuple[StateShape, ...] = (),
    ) -> None:
        self.now_ms = 1000
        self.make = make
        self.namespaced = namespaced
        self.backend = make(range(GROUPS), GROUPS)
        self.shapes = StateShapes(shapes, "counter", 7)
        self._opener = StateOpener(self.backend, lambda: self.now_ms, namespaced, self.shapes)

    def open(self, descriptor: StateDescriptor) -> Any:
        return self._opener.open(descriptor)

    def at(self, key: Any, namespace: Any = None) -> None:
        at(self.backend, key, namespace)

    def restored(self, knows_shapes: bool = True) -> "Lab":
        """Another one with what a snapshot of this one holds; the clock stands at the same time.

        ``knows_shapes``: False: as an older version has written it, which noted no types.
        """
        other = Lab(self.make, self.namespaced, self.shapes.all() if knows_shapes else ())
        other.now_ms = self.now_ms
        snapshot = self.backend.snapshot()
        other.backend.restore(snapshot.groups())
        snapshot.close()
        return other


class Whole:
    """A type of whole numbers, as the API's types are seen from here."""

    def coerced(self, value: Any) -> int:
        if isinstance(value, str):
            raise TypeError(f"{value!r} is no whole number")
        return int(value)

    def __repr__(self) -> str:
        return "Whole"


class Named:
    """A type that has no check of its own."""

    def __repr__(self) -> str:
        return "Named"


class Sum:
    """An aggregate function over a list that it changes in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return sum(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b
