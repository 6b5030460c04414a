"""Operators with one input and a function for each record: map, flat map, filter.

They take a list and give a list; timestamps stay with their records; None is a record like any
other. Functions are called in comprehensions, never by ``map``: there a StopIteration of the user's
would end the list silently. With an error policy a bundle goes on behind a record that has failed;
of that nothing is sent, but for whole pieces that a flat map had sent before it failed.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import FieldShape
from headgate.base.values import own, own_result
from headgate.core.chain.collector import Collector
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.copies import Emission
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.outputs import select, takes_fields
from headgate.core.chain.record_failures import (
    FailureStreak,
    attempt,
    bundle_without,
    without,
)
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.inlining.loops import body_of, filter_loop
from headgate.core.operators.record_loops import RecordLoops
from headgate.core.state.cursor import Cursor


class FunctionOperator(StatefulOperator):
    """Base of operators around one user function; ``method`` is what it is called by.

    With ``key_of`` the input has keys: the function may keep keyed state, and the cursor stands at
    a record's key while the function is called for it.
    """

    method = ""
    _streak: FailureStreak
    _key_streak: FailureStreak

    def __init__(self, function: object, key_of: Callable[[Record], Key] | None = None) -> None:
        self._function: UserFunction = UserFunction(function, self.method)
        self._key_of = key_of
        self._call: Callable[..., Record]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        opener = None
        if self._key_of is not None:
            self._keyed = self.keyed_context(context)
            self._selection = KeySelection(
                self._key_of, context.operator, self._keyed.backend.sweeps, context.key_type
            )
            opener = self._keyed.opener
        if self.failures is not None:
            self._streak = self.failures.streak()
            self._key_streak = self.failures.streak()
        self._function.open(context, opener)
        self._call = self._function.call
        self._emission = Emission(self._call, self.reuses_objects, takes_over=True)

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._key_of

    def keyed_context(self, context: OperatorContext) -> KeyedContext:
        """State for the function on a keyed stream; timers are for those that override this."""
        return KeyedContext(context)

    def visited(self, records: list[Record]) -> Iterable[Record]:
        """The records one after the other; on a keyed stream the cursor goes with them."""
        if self._keyed is None:
            return records
        return self._at_keys(records, self._selection.keys(records), self._keyed.cursor)

    def visited_on(self, bundle: Bundle) -> tuple[Bundle, Iterator[Record]]:
        """The same for an operator that goes on behind a record that failed.

        With the bundle of those whose keys can be taken. An error of the function leaves the
        iterator as it is: it gives the next record.
        """
        if self._keyed is None:
            return bundle, iter(bundle.records)
        bundle, keys = self._selection.keyed(bundle, self._key_streak)
        return bundle, self._at_keys(bundle.records, keys, self._keyed.cursor)

    def _at_keys(self, records: list[Record], keys: list[Key], cursor: Cursor) -> Iterator[Record]:
        for key, record in zip(keys, records, strict=True):
            cursor.key = key
            yield record


class MapOperator(FunctionOperator):
    """One record out for each record in."""

    method = "map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._made: tuple[FieldShape, int] | None = None
        if self._key_of is None and self.failures is None:
            self._emission.inline(context.definitions)
            self._made = self._emission.made_shape()

    def process(self, bundle: Bundle, number: int) -> None:
        if self._made is not None and takes_fields(self.output, *self._made):
            fields = self._emission.fields(bundle.records)
            if fields is not None:
                self.output.collect(Bundle.of_fields(fields, bundle.timestamps))
                return
        if self.failures is None:
            results = self._emission.results(self.visited(bundle.records))
            self.output.collect(Bundle(results, bundle.timestamps))
            return
        bundle, visited = self.visited_on(bundle)
        results, failed = attempt(
            visited, self._emission.each(bundle.records), bundle, self._streak
        )
        times = bundle.timestamps
        if results:
            self.output.collect(Bundle(results, None if times is None else without(times, failed)))


class FilterOperator(FunctionOperator):
    """Those records for which the function says yes."""

    method = "filter"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        body = body_of(self._call, 1, context.definitions) if self._key_of is None else None
        self._loop = None if body is None else filter_loop(self._call, body)

    def process(self, bundle: Bundle, number: int) -> None:
        if self.failures is not None:
            self._process_on(bundle)
            return
        call, visited = self._call, self.visited(bundle.records)
        if not self._emission.passes_as_is(bundle.records):
            selected = self._selected_by_value(bundle)
        elif bundle.timestamps is None and self._loop is not None:
            selected = Bundle(self._loop(bundle.records))
        elif bundle.timestamps is None:
            selected = Bundle([record for record in visited if call(record)])
        else:
            selected = select(bundle, [call(record) for record in visited])
        if selected.records:
            self.output.collect(selected)

    def _process_on(self, bundle: Bundle) -> None:
        """The same; a record that fails is left out."""
        bundle, visited = self.visited_on(bundle)
        call = self._call
        if self._emission.passes_as_is(bundle.records):
            verdicts, failed = attempt(
                visited,
                lambda records: (call(record) for record in records),
                bundle,
                self._streak,
            )
            selected = select(bundle_without(bundle, failed) if failed else bundle, verdicts)
        else:
            found, failed = attempt(
                visited,
                lambda records: (own(record) if call(record) else _DROPPED for record in records),
                bundle,
                self._streak,
            )
            times = None if bundle.timestamps is None else without(bundle.timestamps, failed)
            selected = select(Bundle(found, times), [record is not _DROPPED for record in found])
        if selected.records:
            self.output.collect(selected)

    def _selected_by_value(self, bundle: Bundle) -> Bundle:
        """The same; the function may keep a record and change it when it is called for a later."""
        call, times = self._call, bundle.timestamps
        records: list[Record] = []
        chosen: list[int | None] | None = None if times is None else []
        # The bundle's list holds a record, too; so do generators that visit it at its key.
        others = 1 if self._keyed is None else sys.maxsize
        index = -1
        for record in self.visited(bundle.records):
            index += 1
            if call(record):
                records.append(own_result(sys.getrefcount(record) - others, record))
                if times is not None and chosen is not None:
                    chosen.append(times[index])
        return Bundle(records, chosen)


class FlatMapOperator(FunctionOperator):
    """Any number of records out for each record in."""

    method = "flat_map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = RecordLoops(
            self._call,
            "a flat_map function",
            context,
            Collector(self.output, not self.reuses_objects),
            cursor=None if self._keyed is None else self._keyed.cursor,
            selection=None if self._keyed is None else self._selection,
            failures=self.failures,
            takes_none=False,
        )

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)


_DROPPED: Final = object()
"""Stands for a record that a filter does not let through."""
