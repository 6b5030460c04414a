"""Map, flat map and filter on a keyed stream, for functions that keep state.

They are those of ``operators.py``; only, the cursor stands at a record's key while the function is
called for it. Functions that are never opened have no state and need none of this.
"""

from collections.abc import Callable, Iterable

from headgate.base.elements import Key, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.operators.basic import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)


class AtKeys(FunctionOperator):
    """Gives the function of an operator keyed state."""

    def __init__(self, function: object, key_of: Callable[[Record], Key]) -> None:
        super().__init__(function)
        self._key_of = key_of
        self._room: KeyedContext | None = None

    def open(self, context: OperatorContext) -> None:
        self._room = KeyedContext(context)
        self._cursor = self._room.cursor
        self._selection = KeySelection(self._key_of, context.operator)
        self.open_guest(context, self._room.opener)

    def visited(self, records: list[Record]) -> Iterable[Record]:
        cursor = self._cursor
        for key, record in zip(self._selection.keys(records), records, strict=True):
            cursor.key = key
            yield record

    def key_ended(self) -> None:
        assert self._room is not None
        self._room.key_ended()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._room is not None:
                self._room.close()


class KeyedMapOperator(AtKeys, MapOperator):
    """One record out for each record in, with state."""


class KeyedFlatMapOperator(AtKeys, FlatMapOperator):
    """Any number of records out for each record in, with state."""


class KeyedFilterOperator(AtKeys, FilterOperator):
    """Those records for which the function says yes, with state."""
