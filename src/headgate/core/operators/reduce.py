"""Rolling results by key: reduce, sum, min, max, min_by, max_by.

Streaming sends the running result for each record, batch one final result for each key. Law: what
was sent never changes afterwards, also if the user's function changes its first argument in place;
a result that is None is kept like any other.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from typing import Final, Literal, cast

from headgate.base.elements import Bundle, Key, Record
from headgate.base.fields import RecordFields, Same
from headgate.base.values import own, own_all
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import LOOKS
from headgate.core.chain.keyed_context import KeyedContext, key_check
from headgate.core.chain.left_out import FailureStreak, without
from headgate.core.chain.user_function import PIECE, StatefulOperator, UserFunction
from headgate.core.loops.apart import ApartLoop, ApartLoops, FieldForm, apart_loop
from headgate.core.loops.bodies import InlineBody
from headgate.core.loops.loops import (
    Gives,
    Loop,
    body_of,
    called_body,
    reduce_loop,
    reduce_scalars_loop,
)
from headgate.core.loops.made_records import RecordMakers
from headgate.core.loops.scalars import are_scalar_tuples
from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import Cursor, seen
from headgate.core.state.key_taking import key_form, key_taker
from headgate.core.state.memory import PlainValue
from headgate.core.state.migration import settle
from headgate.core.state.snapshot import NONE
from headgate.core.state.tables import Entries
from headgate.functions.state import ReducingStateDescriptor, TypeOf, ValueState

Aggregation = Literal["sum", "min", "max", "min_by", "max_by"]
_ABSENT: Final = object()
_RESULTS: Final = StateSpec("reduced so far", "value")
_GIVEN: Final = {**LOOKS, "absent": _ABSENT, "none": NONE}

LOOKED_AT: Final = 1_000_000
LOOKS_AT_RESULTS: Final = 3
"""So often, and at so many of them, an operator looks whether its results are scalars."""


@dataclass(frozen=True, slots=True)
class FoldsApart:
    """Loops over tuples of one shape that are taken apart."""

    apart: ApartLoop
    loop: Loop
    scalar_loop: Loop | None
    """For tuples of scalars alone."""


class ReduceOperator(StatefulOperator):
    """Folds the records of a key into one, from left to right.

    The results live in the state backend: in its own dictionary if it lends one and the function
    has no state itself, else in a value state. A batch job has no snapshots and keeps them here.
    """

    def __init__(self, function: object, key_of: Callable[[Record], Key], batch: bool) -> None:
        self._function: UserFunction = UserFunction(function, "reduce")
        self._key_of = key_of
        self._take_keys = key_taker(key_of)
        self._batch = batch
        self._finals: dict[Key, Record] = {}
        self._values: Entries | ValuesAtCursor

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._keyed = KeyedContext(context)
        self._sweeps = self._keyed.backend.sweeps
        self._open_values(self._keyed)
        self._streak = None if self.failures is None else self.failures.streak()
        self._function.open(context, self._keyed.opener)
        self._call = self._function.call
        self._form = key_form(self._key_of)
        self._part = None if self._form is None else self._form.part
        self._check = key_check(context.key_type)
        self._given = _GIVEN | {
            "call": self._call,
            "failed": self._failed,
            "key_of": self._key_of,
        }
        self._scalars: bool | None = None
        self._looks_left = LOOKS_AT_RESULTS
        self._called = called_body(Gives.VALUE, ("_hg_first", "_hg_second"))
        body = body_of(self._call, 2, context.definitions)
        self._body = None if body is None or body.yields else body
        self._makers = RecordMakers((self._body or self._called).function)
        self._loops: dict[bool, Loop] = {}
        self._apart = ApartLoops(self._made_apart)

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._key_of

    def process(self, bundle: Bundle, number: int) -> None:
        for sweep in self._sweeps:
            sweep(len(bundle))
        results: list[Record] = []
        times = bundle.timestamps
        if self._streak is None:
            self._fold(bundle, results)
        else:
            failed = self._fold_on(bundle, results, self._streak)
            times = None if times is None else without(times, failed)
        if results and not self._batch:
            self.output.collect(Bundle(results, times))

    def key_ended(self) -> None:
        """The result is final; it waits for others, so that they travel together."""
        if self._function.opens:
            super().key_ended()
        if len(self._finals) >= PIECE:
            self._send_finals()

    def finish(self) -> None:
        self._send_finals()

    def bind(self, entries: Entries) -> None:
        """The results so far; those of the backend are another view while a snapshot is open."""
        self._values = entries

    def _open_values(self, keyed: KeyedContext) -> None:
        cursor, backend, context = keyed.cursor, keyed.backend, self.context
        if self._batch:
            self._values = self._finals
            if self._function.opens:
                self._values = ValuesAtCursor(cursor, PlainValue(self._finals, cursor))
            return
        declared = cast("TypeOf[Record] | None", context.record_type)
        noted = ReducingStateDescriptor(_RESULTS.name, self._function.call, declared)
        settle(backend, keyed.shapes, noted, _RESULTS, context.now_ms)
        spaces = None if self._function.opens else backend.direct(_RESULTS)
        if spaces is None:
            self._values = ValuesAtCursor(cursor, backend.value_state(_RESULTS))
        else:
            spaces.plain.bound(self)

    def _send_finals(self) -> None:
        results = [None if value is NONE else value for value in self._finals.values()]
        self._finals.clear()
        if results:
            self.output.collect(Bundle(results if self.reuses_objects else own_all(results)))

    @property
    def is_inlined(self) -> bool:
        """Whether the body of the function stands in the loops; otherwise they call it."""
        return self._body is not None and self._makers.hold()

    def _fold(self, bundle: Bundle, results: list[Record]) -> None:
        """Add the result after each record to ``results``."""
        fields = bundle.fields
        found = None if fields is None or not self.is_inlined else self._apart.loop_for(fields)
        keys = None
        if fields is not None and found is not None and found.apart.key is None:
            keys = self._keys_of(fields)
            found = None if keys is None else found
        rest = self._values, partial(self._begin, results.append), self._find
        if fields is None or found is None:
            self._scalars = None
            records = bundle.records
            lists = [records] if self._part is not None else [records, self._take_keys(records)]
            self._loop()(*lists, *rest, results)
            return
        lists = found.apart.arguments(fields, *([] if keys is None else [keys]))
        if found.scalar_loop is not None and fields.are_plain() and self._holds_scalars():
            found.scalar_loop(*lists, *rest, results)
        else:
            self._scalars = None
            found.loop(*lists, *rest, results)

    def _fold_on(self, bundle: Bundle, results: list[Record], streak: FailureStreak) -> list[int]:
        """Fold on after records that fail: of these the running result stays as it was.

        Unless the function has changed its first argument in place. Answers with their places.
        """
        self._scalars = None
        self._at_hand = bundle
        self._failed_places: list[int] = []
        begin = partial(self._begin, results.append)
        self._loop()(bundle.records, self._values, begin, self._find, results)
        streak.ended(bundle)
        return self._failed_places

    def _failed(self, error: Exception, source: Iterator[Record], length: int) -> None:
        """The record at which the source stands has failed; nothing was sent for it."""
        assert self._streak is not None, "without an error policy the loop ends"
        place = len(self._at_hand) - length_hint(source) - 1
        self._streak.failed_at(error, self._at_hand, place)
        self._failed_places.append(place)

    def _loop(self) -> Loop:
        """Over records."""
        is_inlined = self.is_inlined
        if is_inlined not in self._loops:
            loop = self._made_loop(self._body if is_inlined else None)
            assert loop is not None, "a body that was found is there"
            self._loops[is_inlined] = loop
        return self._loops[is_inlined]

    def _made_loop(self, body: InlineBody | None, apart: ApartLoop | None = None) -> Loop | None:
        """``body``: what stands in it; None: a call."""
        return reduce_loop(
            None if body is None else self._call,
            body or self._called,
            self._makers,
            self._given,
            by_value=not (self._batch or self.reuses_objects),
            skips_failures=self._streak is not None,
            part=self._part,
            apart=apart,
        )

    def _made_apart(self, form: FieldForm) -> FoldsApart | None:
        body = self._body
        if self._form is None or body is None:
            return None
        apart = apart_loop(body, body.parameters[-1], form, self._form, all_places=True)
        loop = None if apart is None else self._made_loop(body, apart)
        if apart is None or loop is None:
            return None
        return FoldsApart(
            apart, loop, reduce_scalars_loop(self._call, apart, self._makers, self._given)
        )

    def _keys_of(self, fields: RecordFields) -> list[Key] | None:
        """The keys of records that are taken apart; None: the selector has to look at records."""
        assert self._form is not None, "fields are read only if keys are taken from them"
        keys = self._form.of_fields(fields)
        return [keys[0]] * fields.count if isinstance(keys, Same) else keys

    def _holds_scalars(self) -> bool:
        """Whether the results so far are tuples of scalars, as all later ones will be then.

        Unknown after other records. Then it looks at them, if they are not too many.
        """
        values = self._values
        if self._scalars is None and type(values) is dict and self._looks_left:
            self._looks_left -= 1
            self._scalars = len(values) <= LOOKED_AT and are_scalar_tuples(values.values())
        return self._scalars is True

    def _begin(self, send: Callable[[Record], None], key: Key, record: Record) -> None:
        """The first record of a key is its result."""
        self._values[key] = NONE if record is None else record
        send(record if self._batch or self.reuses_objects else own(record))

    def _find(self, key: Key) -> tuple[Key, Record]:
        """A key that was not found as it is, or cannot be hashed, and what is held for it."""
        plain, key = key, seen(key)
        found = self._values.get(key, _ABSENT)
        if found is _ABSENT and self._check is not None:
            self._check([plain])
        return key, found


class ValuesAtCursor:
    """A value state in the shape of a dictionary; the cursor goes to every key that is asked for.

    So the user's function, which is called after ``get``, has its own state at the same key.
    """

    __slots__ = ("_cursor", "_state")

    def __init__(self, cursor: Cursor, state: ValueState[Record]) -> None:
        self._cursor = cursor
        self._state = state

    def get(self, key: Key, absent: Record) -> Record:
        """What is held for the key."""
        self._cursor.key = seen(key)
        value = self._state.value()
        return absent if value is None else value

    def __getitem__(self, key: Key) -> Record:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Record) -> None:
        self._cursor.key = seen(key)
        self._state.update(value)


class AggregateOperator(ReduceOperator):
    """Reduce with a built-in function of one field."""

    def __init__(
        self,
        kind: Aggregation,
        position: int | str,
        key_of: Callable[[Record], Key],
        batch: bool,
    ) -> None:
        super().__init__(Aggregator(kind, position), key_of, batch)


class Aggregator:
    """Never changes its arguments: a new record comes out, or one of the two."""

    def __init__(self, kind: Aggregation, position: int | str) -> None:
        self._kind = kind
        self._position = position

    def reduce(self, first: Record, second: Record) -> Record:
        position, kind = self._position, self._kind
        a, b = field_of(first, position), field_of(second, position)
        if kind == "sum":
            return with_field(first, position, a + b)
        better = b < a if kind in ("min", "min_by") else b > a
        if not better:
            return first
        return second if kind in ("min_by", "max_by") else with_field(first, position, b)


def field_of(record: Record, position: int | str) -> Record:
    """A field by index or name; a plain value has only field 0, itself."""
    if isinstance(record, str | bytes) or not hasattr(record, "__getitem__"):
        if isinstance(position, str) and hasattr(record, position):
            return getattr(record, position)
        if position != 0:
            raise TypeError(
                f"{type(record).__name__} records have no field {position!r}; "
                f"give 0, which is the record itself"
            )
        return record
    try:
        if isinstance(position, str) and isinstance(record, tuple):
            return getattr(record, position)
        return record[position]
    except (LookupError, AttributeError, TypeError) as error:
        raise TypeError(
            f"a {type(record).__name__} record has no field {position!r} ({error}); "
            f"give the position or the name of a field that all records have"
        ) from error


def with_field(record: Record, position: int | str, value: Record) -> Record:
    """A copy of the record with another value in one field."""
    if isinstance(record, tuple):
        fields = getattr(record, "_fields", None)
        if fields is not None:
            name = position if isinstance(position, str) else fields[position]
            return record._replace(**{name: value})  # type: ignore[attr-defined]
        assert isinstance(position, int)
        where = position % len(record)
        return (*record[:where], value, *record[where + 1 :])
    if isinstance(record, str | bytes) or not hasattr(record, "__setitem__"):
        if not isinstance(position, str):
            return value
        changed = copy.copy(record)
        setattr(changed, position, value)
        return changed
    changed = copy.copy(record)
    changed[position] = value
    return changed
