"""State as a user's function sees it: of the current key, and nobody else's.

Backends implement value, list and map; reducing and aggregating stand on value. Law: what a state
holds for one key is never seen, changed or cleared through another.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base of all states."""

    @abstractmethod
    def clear(self) -> None:
        """Forget what is held for the current key."""


class ValueState(State, Generic[V]):
    """One value for each key."""

    @abstractmethod
    def value(self) -> V | None:
        """None if nothing was set."""

    @abstractmethod
    def update(self, value: V) -> None:
        """Set the value; None clears it unless the state has a declared type."""


class AppendingState(State, Generic[IN, OUT]):
    """Takes values in and gives something made of them."""

    @abstractmethod
    def get(self) -> OUT | None:
        """What was made of the values so far."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Take one value in."""


class MergingState(AppendingState[IN, OUT]):
    """Of which two can be made one, as session windows need it."""


class ReducingState(MergingState[V, V]):
    """All values in one, by a reduce function."""


class AggregatingState(MergingState[IN, OUT]):
    """All values in one accumulator, by an aggregate function."""


class ListState(MergingState[V, Iterable[V]]):
    """Values in the order in which they were added."""

    @abstractmethod
    def get(self) -> Iterable[V]:
        """An iterable, empty if nothing was added."""

    @abstractmethod
    def update(self, values: list[V]) -> None:
        """Replace what is there."""

    @abstractmethod
    def add_all(self, values: list[V]) -> None:
        """Add several values."""

    def __iter__(self) -> Iterator[V]:
        return iter(self.get())


class ReadableMap(State, Generic[K, V]):
    """A dictionary to be read. A name that is missing gives None, never an error."""

    @abstractmethod
    def get(self, key: K) -> V | None: ...

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]: ...

    def keys(self) -> Iterable[K]:
        return [key for key, _ in self.items()]

    def values(self) -> Iterable[V]:
        return [value for _, value in self.items()]

    @abstractmethod
    def is_empty(self) -> bool: ...

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class WritableMap(ReadableMap[K, V]):
    """The same, to be changed."""

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    def put_all(self, dict_value: "Mapping[K, V] | Iterable[tuple[K, V]]") -> None:
        """A dictionary, or pairs of keys and values."""
        pairs = dict_value.items() if isinstance(dict_value, Mapping) else dict_value
        for key, value in pairs:
            self.put(key, value)

    @abstractmethod
    def remove(self, key: K) -> None:
        """Nothing happens if it is missing."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(WritableMap[K, V]):
    """A dictionary for each key."""


class ReadOnlyBroadcastState(ReadableMap[K, V]):
    """A dictionary that every task holds alike, to be read."""


class BroadcastState(WritableMap[K, V], ReadOnlyBroadcastState[K, V]):
    """The same, to be changed by records of the broadcast side."""
