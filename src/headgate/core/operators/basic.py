"""Operators with one input and a function for each record: map, flat map, filter.

They take a list and give a list; timestamps stay with their records; None is a record like any
other. Functions are called in comprehensions, never by ``map``: there a StopIteration of the user's
would end the list silently. Functions that keep state have variants for keyed streams, where the
cursor stands at a record's key while the function is called for it.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from headgate.base.elements import Bundle, Key, Record
from headgate.base.values import are_immutable
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.copies import Emission, own
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.outputs import select
from headgate.core.chain.stateful import StatefulOperator
from headgate.core.chain.user_function import PIECE, UserFunction, iterable
from headgate.core.state.opening import StateOpener


class FunctionOperator(StatefulOperator):
    """Base of operators around one user's function; ``method`` is what it is called by."""

    method = ""

    def __init__(self, function: object) -> None:
        self._function = UserFunction(function, self.method)
        self._call: Callable[..., Record]

    def open(self, context: OperatorContext) -> None:
        self.open_function(context)

    def open_function(self, context: OperatorContext, opener: StateOpener | None = None) -> None:
        """Open the user's function; with ``opener`` it may have keyed state."""
        super().open(context)
        self._function.open(context, opener)
        self._call = self._function.call
        self._emission = Emission(self._call, self.reuses_objects)

    def user_functions(self) -> Iterable[UserFunction]:
        return (self._function,)

    def visited(self, records: list[Record]) -> Iterable[Record]:
        """The records one after the other; on a keyed stream the cursor goes with them."""
        return records

    def close(self) -> None:
        self._function.close()


class MapOperator(FunctionOperator):
    """One record out for each record in."""

    method = "map"

    def process(self, bundle: Bundle, number: int) -> None:
        results = self._emission.results(self.visited(bundle.records))
        self.output.collect(Bundle(results, bundle.timestamps))


class FilterOperator(FunctionOperator):
    """Those records for which the function says yes."""

    method = "filter"

    def process(self, bundle: Bundle, number: int) -> None:
        call, visited = self._call, self.visited(bundle.records)
        if not self._emission.keeps_nothing and not are_immutable(bundle.records):
            selected = self._selected_by_value(bundle)
        elif bundle.timestamps is None:
            selected = Bundle([record for record in visited if call(record)])
        else:
            selected = select(bundle, [call(record) for record in visited])
        if selected.records:
            self.output.collect(selected)

    def _selected_by_value(self, bundle: Bundle) -> Bundle:
        """The same; the function may keep a record and change it when it is called for a later."""
        call, times = self._call, bundle.timestamps
        records: list[Record] = []
        chosen: list[int | None] | None = None if times is None else []
        for index, record in enumerate(self.visited(bundle.records)):
            if call(record):
                records.append(own(record))
                if times is not None and chosen is not None:
                    chosen.append(times[index])
        return Bundle(records, chosen)


class FlatMapOperator(FunctionOperator):
    """Any number of records out for each record in."""

    method = "flat_map"

    def process(self, bundle: Bundle, number: int) -> None:
        copies = not self.reuses_objects
        results: list[Record] = []
        times: list[int | None] | None = None if bundle.timestamps is None else []
        for index, record in enumerate(self.visited(bundle.records)):
            found = iterable(self._call(record), "a flat_map function")
            many = map(own, found) if copies else iter(found)
            while True:
                before = len(results)
                # A list is in memory anyway; a generator may yield more than memory holds.
                results.extend(many if type(found) is list else islice(many, PIECE - before))
                if bundle.timestamps is not None and times is not None:
                    times.extend([bundle.timestamps[index]] * (len(results) - before))
                if len(results) < PIECE:
                    break
                self.output.collect(Bundle(results, times))
                results, times = [], None if times is None else []
        if results:
            self.output.collect(Bundle(results, times))


class KeyedFunctionOperator(FunctionOperator):
    """Gives the function of an operator keyed state."""

    def __init__(self, function: object, key_of: Callable[[Record], Key]) -> None:
        super().__init__(function)
        self._key_of = key_of
        self._keyed: KeyedContext | None = None

    def open(self, context: OperatorContext) -> None:
        self._keyed = KeyedContext(context)
        self._cursor = self._keyed.cursor
        self._selection = KeySelection(self._key_of, context.operator)
        self.open_function(context, self._keyed.opener)

    def visited(self, records: list[Record]) -> Iterable[Record]:
        cursor = self._cursor
        for key, record in zip(self._selection.keys(records), records, strict=True):
            cursor.key = key
            yield record

    def key_ended(self) -> None:
        assert self._keyed is not None
        self._keyed.key_ended()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._keyed is not None:
                self._keyed.close()


class KeyedMapOperator(KeyedFunctionOperator, MapOperator):
    """One record out for each record in, with state."""


class KeyedFlatMapOperator(KeyedFunctionOperator, FlatMapOperator):
    """Any number of records out for each record in, with state."""


class KeyedFilterOperator(KeyedFunctionOperator, FilterOperator):
    """Those records for which the function says yes, with state."""
