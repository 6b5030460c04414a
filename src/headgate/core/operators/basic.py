"""Operators with one input and a function for each record: map, flat map, filter.

They run loops over the records of bundles; timestamps stay with their records; None is a record
like any other. With an error policy a bundle goes on after a record that has failed; of that
nothing is sent, but for whole pieces that a flat map had sent before it failed.
"""

from collections.abc import Callable

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import TUPLES, FieldShape, RecordFields
from headgate.base.values import ATOMS
from headgate.core.chain.collector import Collector
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.copies import LOOKS, carried_places, is_immutable, is_pure
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.outputs import takes_fields
from headgate.core.chain.user_function import StatefulOperator, UserFunction
from headgate.core.inlining.bodies import InlineBody
from headgate.core.inlining.loops import Gives, PartingLoop, parting_loop
from headgate.core.inlining.made_records import RecordMakers
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
        self._loops = self.loops(Gives.VALUE)
        self._fields: MadeFields | None = None
        if self._keyed is None and self.failures is None:
            self._fields = MadeFields(self._call, self._loops.body, not self.reuses_objects)

    def process(self, bundle: Bundle, number: int) -> None:
        made = self._fields
        if made is not None and made.shape is not None and takes_fields(self.output, *made.shape):
            fields = made.of(bundle.records)
            if fields is not None:
                self.output.collect(Bundle.of_fields(fields, bundle.timestamps))
                return
        self._loops.run(bundle)


class MadeFields:
    """What a ``map`` makes, taken apart as it is made, for outputs that keep fields apart.

    Law: the fields are those of the records that the function would return, each item the
    receiver's own. Two kinds of functions are known: those that put their argument and constants
    into a tuple, which is never looked at, and those that make records of one shape where they
    return. Of others there is no ``shape``.
    """

    shape: tuple[FieldShape, int] | None = None
    """And the number of fields."""

    def __init__(
        self, call: Callable[[Record], Record], body: InlineBody | None, copies: bool
    ) -> None:
        """``body``: what stands in loops in place of a call, if something does."""
        self._carried = carried_places(call)
        self._free: PartingLoop | None = None
        if self._carried is not None:
            self.shape = TUPLES, len(self._carried)
        elif body is not None:
            self._makers = makers = RecordMakers(body.function)
            parting = parting_loop(call, body, makers, LOOKS, by_value=copies)
            if parting is not None:
                self._parting = parting
                self.shape = parting.shape, len(parting.same)
                if copies and is_pure(call):
                    self._free = parting_loop(call, body, makers, LOOKS, by_value=False)

    def of(self, records: list[Record]) -> RecordFields | None:
        """None: a class that the function makes records of has changed, and it has to be called."""
        if self._carried is not None:
            carried = [list(records) if place is None else place for place in self._carried]
            return RecordFields(carried, len(records))
        if not self._makers.hold():
            self.shape = None
            return None
        if self._free is not None and ATOMS.issuperset(map(type, records)):
            return self._free.fields(records)
        return self._parting.fields(records)


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


class FlatMapOperator(FunctionOperator):
    """Any number of records out for each record in."""

    method = "flat_map"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._loops = self.loops(Gives.VALUES, has_sides=True)

    def process(self, bundle: Bundle, number: int) -> None:
        self._loops.run(bundle)
