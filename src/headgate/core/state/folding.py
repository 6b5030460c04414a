"""Reducing and aggregating state: all values of a key folded into one, on a value state.

Law: each key and namespace has an accumulator of its own. One that is None, zero or empty is kept
like any other: what was folded into it counts.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from headgate.base.elements import Record
from headgate.base.values import own
from headgate.core.state.typed import Check
from headgate.functions.state import Aggregate, AggregatingState, ReducingState, ValueState


class Folded(Enum):
    """Stands for a result that is None, since a value state that holds None holds nothing."""

    NONE = 0


NONE: Final = Folded.NONE


class FoldedByReduce(ReducingState[Record]):
    """Folds by a callable of two values, or an object with ``reduce``; the type is the values'."""

    def __init__(
        self, value: ValueState[Record], function: object, check: Check | None = None
    ) -> None:
        self._value = value
        self._reduce: Callable[[Record, Record], Record] = getattr(function, "reduce", function)  # type: ignore[arg-type]
        self._check = check

    def get(self) -> Record:
        found = self._value.value()
        return None if found is NONE else found

    def add(self, value: Record) -> None:
        check = self._check
        if check is not None:
            value = check(value)
        old = self._value.value()
        if old is not None:
            value = self._reduce(None if old is NONE else old, value)
            if check is not None:
                value = check(value)
        self._value.update(NONE if value is None else value)

    def clear(self) -> None:
        self._value.clear()


class FoldedByAggregate(AggregatingState[Record, Record]):
    """Folds into an accumulator, whose type it is."""

    def __init__(
        self, value: ValueState[Record], function: Aggregate, check: Check | None = None
    ) -> None:
        self._value = value
        self._function = function
        self._check = check

    def get(self) -> Record:
        found = self._value.value()
        if found is None:
            return None
        return self._function.get_result(None if found is NONE else found)

    def add(self, value: Record) -> None:
        found = self._value.value()
        if found is None:
            found = own(self._function.create_accumulator())  # it may be the same for every key
        made = self._function.add(value, None if found is NONE else found)
        if self._check is not None:
            made = self._check(made)
        self._value.update(NONE if made is None else made)

    def clear(self) -> None:
        self._value.clear()
