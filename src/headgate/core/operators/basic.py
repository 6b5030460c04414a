"""Operators with one input and a function for each record: map, flat map, filter.

They run loops over the records of bundles; timestamps stay with their records; None is a record
like any other. With an error policy a bundle goes on after a record that has failed; of that
nothing is sent, but for whole pieces that a flat map had sent before it failed.
"""

from collections.abc import Callable
from typing import NoReturn

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import TUPLES, RecordFields, Same
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector, carried_places, is_immutable, is_pure
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.outputs import takes_fields
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.loops.loops import Gives
from headgate.core.loops.steps import Step, step_of
from headgate.core.operators.record_loops import RecordLoops


class FunctionOperator(StatefulOperator):
    """Base of operators around one user function; ``method`` is what it is called by.

    With ``key_of`` the input has keys: the function may keep keyed state, and the cursor stands at
    a record's key while the function is called for it.
    """

    method = ""

    def __init__(self, function: object, key_of: Callable[[Record], Key] | None = None) -> None:
        self._function: UserFunction = UserFunction(function, self.method)
        self._key_of = key_of
        self._call: Callable[..., Record]
        self._loops: RecordLoops

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        opener = None
        if self._key_of is not None:
            self._keyed = self.keyed_context(context)
            self._selection = KeySelection(
                self._key_of, context.operator, self._keyed.backend.sweeps, context.key_type
            )
            opener = self._keyed.opener
        self._function.open(context, opener)
        self._call = self._function.call

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._key_of

    def keyed_context(self, context: OperatorContext) -> KeyedContext:
        """State for the function on a keyed stream; timers are for those that override this."""
        return KeyedContext(context)

    def _as_step(self, *, is_filter: bool, again: Callable[[Record], NoReturn]) -> Step | None:
        if self._keyed is not None or self.failures is not None:
            return None
        return step_of(self._call, self._loops.body, is_filter, again)

    def loops(
        self,
        gives: Gives,
        has_sides: bool = False,
        is_free: Callable[[Bundle], bool] | None = None,
    ) -> RecordLoops:
        """The loops of the function; see there."""
        collector = Collector(self.output, not self.reuses_objects, has_sides=has_sides)
        return RecordLoops(
            self._call,
            f"a {self.method} function",
            self.context,
            collector,
            cursor=None if self._keyed is None else self._keyed.cursor,
            selection=None if self._keyed is None else self._selection,
            failures=self.failures,
            gives=gives,
            takes_none=False,
            is_free=is_free,
        )


class MapOperator(FunctionOperator):
    """One record out for each record in."""

    method = "map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = self.loops(Gives.VALUE, is_free=self._is_free)
        self._keeps_nothing = is_pure(self._call)
        self._carried: list[Same | None] | None = None
        if self._keyed is None and self.failures is None:
            self._carried = carried_places(self._call)

    def process(self, bundle: Bundle, number: int) -> None:
        carried = self._carried
        if (
            carried is not None
            and takes_fields(self.output, TUPLES, len(carried))
            and (self.reuses_objects or is_immutable(bundle))  # a source may have kept them
        ):
            records = bundle.records
            places = [list(records) if place is None else place for place in carried]
            fields = RecordFields(places, len(records))
            self.output.collect(Bundle.of_fields(fields, bundle.timestamps))
            return
        self._loops.run(bundle)

    def as_step(self, again: Callable[[Record], NoReturn]) -> Step | None:
        return self._as_step(is_filter=False, again=again)

    def _is_free(self, bundle: Bundle) -> bool:
        """A function that keeps nothing makes something new of what cannot be changed."""
        return self._keeps_nothing and bundle.known_immutable is True


class FilterOperator(FunctionOperator):
    """Those records for which the function says yes."""

    method = "filter"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        keeps_nothing = is_pure(self._call)
        self._loops = self.loops(
            Gives.VERDICT, is_free=lambda bundle: keeps_nothing or is_immutable(bundle)
        )

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)

    def as_step(self, again: Callable[[Record], NoReturn]) -> Step | None:
        return self._as_step(is_filter=True, again=again)


class FlatMapOperator(FunctionOperator):
    """Any number of records out for each record in."""

    method = "flat_map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = self.loops(Gives.VALUES, has_sides=True)

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)
