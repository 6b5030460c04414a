"""Emission by value: what a function returns belongs to its receiver; nobody else can change it.

A function may keep what it returns and change it later, even within the same bundle. So its results
become the receiver's own before the function is called again: immutable values stay as they are,
flat collections get a shallow copy, the rest goes through pickle. Law: ``own(value)`` equals
``value`` and shares nothing mutable with it. Copies for several receivers of the same records are
made a bundle at a time, by the serializer. The collector gathers what functions yield: every value
goes where its tag says.
"""

import builtins
import dis
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from types import CodeType, FunctionType
from typing import Final, NamedTuple, Protocol

from headgate.base.elements import Bundle, PickleSerializer, Record, Times
from headgate.base.errors import RecordUncopyable
from headgate.base.fields import FieldShape, Place, RecordFields, Same
from headgate.base.values import ATOMS, SOLE_HOLDER, Look, are_immutable, look_of, own, own_result
from headgate.core.chain.operator import Output
from headgate.functions.function import OutputTag


def is_pure(function: object) -> bool:
    """Whether a function surely keeps nothing: no names but of harmless builtins, nothing enclosed.

    Such a function makes its result out of its argument and of constants. It keeps nothing itself;
    the operators of the argument's class might. It may be wrong only on the safe side: a function
    that is not recognised has its results looked at.
    """
    if not isinstance(function, FunctionType):
        return False
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return False
    return _is_pure_code(function.__code__, function.__globals__)


def only_carries(function: object) -> bool:
    """Whether a pure function puts its argument and constants somewhere and calls nothing at all.

    ``lambda word: (word, 1)``, for instance: whatever its argument is, no code of that runs.
    """
    return (
        is_pure(function)
        and isinstance(function, FunctionType)
        and all(step.opname in _CARRYING for step in dis.get_instructions(function.__code__))
    )


def carried_places(function: object) -> list[Same | None] | None:
    """The items of the tuple that such a function returns, None for its argument.

    None in all: it returns no tuple with its argument in it.
    """
    if not only_carries(function) or not isinstance(function, FunctionType):
        return None
    code = function.__code__
    if code.co_argcount != 1 or code.co_kwonlyargcount or len(code.co_varnames) != 1:
        return None  # what is loaded may be something else
    steps = [step for step in dis.get_instructions(function.__code__) if step.opname not in _IDLE]
    loads, rest = steps[:-2], steps[-2:]
    if [step.opname for step in rest] != ["BUILD_TUPLE", "RETURN_VALUE"]:
        return None
    if rest[0].arg != len(loads):
        return None
    if not {step.opname for step in loads} <= {"LOAD_FAST", "LOAD_CONST"}:
        return None
    items = [Same(step.argval) if step.opname == "LOAD_CONST" else None for step in loads]
    return items if None in items else None


def _is_pure_code(code: CodeType, names: dict[str, object]) -> bool:
    for name in code.co_names:
        if name in names or name not in _HARMLESS or not hasattr(builtins, name):
            return False
    return all(_is_pure_code(part, names) for part in code.co_consts if isinstance(part, CodeType))


_HARMLESS: Final = frozenset(
    {"abs", "bool", "bytes", "chr", "divmod", "float", "format", "int", "len", "max", "min"}
    | {"ord", "repr", "round", "str", "sum", "tuple"}
)

_CARRYING: Final = frozenset(
    {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "STORE_FAST", "LOAD_FAST"}
    | {"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
    | {"BUILD_TUPLE", "BUILD_LIST", "BUILD_CONST_KEY_MAP"}
)
"""Instructions that run no code of the values they move, in CPython 3.10 to 3.13."""

_IDLE: Final = ("RESUME", "NOP")


class Kinds(NamedTuple):
    """What is known of the values that a place of a program sends; None: look at the next one."""

    atom: type | None = None
    """The class of values that nobody can change."""
    first: type | None = None
    """The classes of the parts of pairs that nobody can change."""
    second: type | None = None
    mutable: type | None = None
    """The class of values that are copied, unless nobody else holds them and ``look`` says yes."""
    look: Look | None = None


NO_KINDS: Final = Kinds()


def look(send: Callable[[Record], None], references: int, value: Record) -> Kinds:
    """Send the receiver's own value; returns what needs no such look the next time.

    ``references``: to the value, as ``own_result`` wants them.
    """
    kind = type(value)
    kinds = immutable_kinds(kind, value)
    if kinds is not None:
        send(value)
        return kinds
    return look_at_mutable(send, references, kind, value)


def look_at_mutable(
    send: Callable[[Record], None], references: int, kind: type, value: Record
) -> Kinds:
    """Send the receiver's own copy of a value that can be changed; see ``look``."""
    is_own = look_of(kind)
    send(value if references == SOLE_HOLDER and is_own(value) else own(value))
    return Kinds(None, None, None, kind, is_own)


def immutable_kinds(kind: type, value: Record) -> Kinds | None:
    """The kinds of an immutable value, or of a pair of them; None: it may be changed.

    Of longer tuples there is no kind to remember: each is looked at.
    """
    if kind in ATOMS:
        return Kinds(kind)
    if kind is tuple and ATOMS.issuperset(map(type, value)):
        return Kinds(None, type(value[0]), type(value[1])) if len(value) == 2 else NO_KINDS
    return None


def look_items(
    send: Callable[[Record], None], value: Record, items: tuple[Record, ...]
) -> list[type | None]:
    """Send a new tuple, of which ``items`` may be mutable; see ``look``."""
    kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]
    send(own(value) if None in kinds else value)
    return kinds


def look_parts(lists: Sequence[list[Record]], items: Sequence[Record]) -> list[type | None]:
    """Add the receiver's own items to their lists; returns the kinds that are immutable."""
    kinds: list[type | None] = []
    for place, item in zip(lists, items, strict=True):
        is_atom = type(item) in ATOMS
        place.append(item if is_atom else own(item))
        kinds.append(type(item) if is_atom else None)
    return kinds


LOOKS: Final[dict[str, object]] = {
    "look": look,
    "look_items": look_items,
    "look_parts": look_parts,
    "own": own,
    "sole_holder": SOLE_HOLDER,
}
"""By what loops send values that they do not know."""


def is_immutable(bundle: Bundle) -> bool:
    """Whether nobody can change any of the records: several receivers ask, the first one looks."""
    if bundle.known_immutable is None:
        bundle.known_immutable = are_immutable(bundle.records)
    return bundle.known_immutable


class Copier:
    """Copies the records of one output; ``operator`` is the one that reads the copies."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._serializer = PickleSerializer()

    def copy(self, bundle: Bundle) -> Bundle:
        """A bundle whose records the receiver may change; the bundle itself if nothing can be."""
        if is_immutable(bundle):
            return bundle
        try:
            data = self._serializer.dumps(bundle.records)
            records = self._serializer.loads(memoryview(data))
        except Exception as error:
            raise RecordUncopyable(self._operator, error) from error
        return Bundle(records, bundle.timestamps)


class TimedContext(Protocol):
    """The context that a function is passed with its record; the record's time is set in it."""

    time_ms: int | None


class Collector:
    """Collects what process functions yield and sends it on: plain values, or (tag, value).

    Law: every value goes where its tag says, in order, with the time it was taken with, and belongs
    to its receiver: each is made own before the function runs on. Immutable values,
    and pairs of them, are recognised without a call.
    """

    __slots__ = (
        *("_fields", "_has_tags", "_pieces", "_records", "_size", "_timed", "_times"),
        *("copies", "has_sides", "output", "sent"),
    )

    def __init__(
        self, output: Output, copies: bool = True, piece: int = 4096, *, has_sides: bool = True
    ) -> None:
        """``has_sides``: (tag, value) is a value for a side output; otherwise it is a record."""
        self.output = output
        self.has_sides = has_sides
        self.copies = copies
        self.sent = 0
        """Main records, in all, of loops."""
        self._fields: RecordFields | None = None
        """What a loop adds to that gives fields."""
        self._size = piece
        self._pieces = 0
        self._records: list[Record] = []
        self._times: list[int | None] = []
        self._timed = False
        self._has_tags = has_sides and not copies
        """Whether a tag may be among what is collected."""

    def sweep_loop(
        self, loop: Callable[[list[Record]], None], timed: bool, times: Times = None
    ) -> None:
        """Send on what a loop over the records of a bundle adds to a list.

        ``timed``: the loop adds times, too. ``times``: those of what it adds, if it does not.
        """
        self.flush()
        self._timed = timed
        loop(self._records)
        if self._records and not self._has_tags and not timed:  # the list itself, uncopied
            self._pieces += 1
            records, self._records = self._records, []
            self.sent += len(records)
            self.output.collect(Bundle(records, times))
            return
        self.flush()

    def sweep_fields(
        self,
        loop: Callable[..., None],
        shape: FieldShape,
        same: Sequence[Same | None],
        timed: bool,
        times: Times = None,
    ) -> None:
        """Send on what a loop adds that has a list for each field of the records.

        ``same``: by place, what is the same in all records, or None for a list.
        """
        self.flush()
        self._timed = timed
        places: list[Place] = [[] if place is None else place for place in same]
        lists = [place for place in places if type(place) is list]
        self._fields = RecordFields(places, 0, None, shape)
        try:
            loop(self._records, *lists)
            if lists[0]:
                self._send_fields(self._fields, times)
        finally:
            self._fields = None
            self._times.clear()

    def _send_fields(self, fields: RecordFields, times: Times = None) -> None:
        """Copies: the loop may go on with its lists."""
        fields.count = next(len(place) for place in fields.places if type(place) is list)
        self.sent += fields.count
        sent = fields.copy()
        for place in fields.places:
            if type(place) is list:
                place.clear()
        own_times = self._times[:] if self._timed else times
        self._times.clear()
        self.output.collect(Bundle.of_fields(sent, own_times))

    def loop_parts(self) -> dict[str, object]:
        """What such a loop uses: it sends values of kinds that it does not know by looks."""
        looks = {"look": self._look, "look_items": self._look_items} if self.has_sides else {}
        return {
            **LOOKS,
            **looks,
            "piece": self._size,
            "send_on": self._send_on,
            "stamp": self._times.append,
        }

    def _look(self, send: Callable[[Record], None], references: int, value: Record) -> Kinds:
        kind = type(value)
        kinds = immutable_kinds(kind, value)
        if kinds is not None:
            send(value)
            return kinds
        if self.copies and kind is not tuple and kind is not OutputTag:
            return look_at_mutable(send, references, kind, value)
        send(self._own(references, value))
        return NO_KINDS

    def _look_items(
        self, send: Callable[[Record], None], value: Record, items: tuple[Record, ...]
    ) -> list[type | None]:
        kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]
        send(self._own(NOT_COUNTED, value) if None in kinds else value)
        return kinds

    @property
    def mark(self) -> tuple[int, int]:
        """Before a call that may fail: where ``take_back`` goes back to."""
        return self._pieces, len(self._records)

    def take_back(self, mark: tuple[int, int]) -> None:
        """Forget the values since then; pieces that were sent on stay sent."""
        pieces, collected = mark
        self.take_back_to(collected if pieces == self._pieces else 0)

    def take_back_to(self, length: int) -> None:
        """Forget all values after the first ``length``."""
        del self._records[length:]
        del self._times[length:]

    def take(self, found: Iterable[Record] | None, timestamp: int | None) -> None:
        """What one call returned; None means nothing. It is sent on by ``flush``."""
        if found is None:
            return
        if not self._records:
            self._timed = False
        if timestamp is not None:
            self._timed = True
        for value in found:
            self._records.append(self._own(NOT_COUNTED, value))
            self._times.append(timestamp)
            if len(self._records) >= self._size:
                self._send_on()

    def flush(self) -> None:
        """Send on what was collected."""
        if self._records:
            self._send_on()

    def _send_on(self) -> None:
        if self._fields is not None:
            self._send_fields(self._fields)
            return
        self._pieces += 1
        records, times = self._records[:], self._times[:] if self._timed else None
        self._records.clear()
        self._times.clear()
        self.sent += len(records)
        if not self._has_tags:
            self.output.collect(Bundle(records, times))
            return
        self._has_tags = not self.copies  # only if there are side outputs
        main, sides = split_by_tag(records, times)
        if main.records:
            self.output.collect(main)
        for tag, side in sides.items():
            self.output.collect_side(tag, side)

    def _own(self, references: int, value: Record) -> Record:
        """The receiver's own value; a tag in front of it stays as it is.

        ``references``: to the value, as ``own_result`` wants them.
        """
        if not self.copies:
            return _valued(value)
        if type(value) is tuple:
            if ATOMS.issuperset(map(type, value)):
                return value
            if len(value) == 2 and isinstance(value[0], OutputTag):
                self._has_tags = True
                return value[0], own(value[1])
        return own_result(references, _valued(value))


def split_by_tag(
    records: list[Record], times: list[int | None] | None
) -> tuple[Bundle, dict[str, Bundle]]:
    """The values without a tag, and those of each tag by its id."""
    main = Bundle([], None if times is None else [])
    sides: dict[str, Bundle] = {}
    for value, time_ms in zip(records, times or repeat(None)):  # noqa: B905 - repeat has no end
        bundle = main
        if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
            tag, value = value
            found = sides.get(tag.tag_id)
            if found is None:
                found = sides[tag.tag_id] = Bundle([], None if times is None else [])
            bundle = found
        else:
            value = _valued(value)
        bundle.records.append(value)
        if bundle.timestamps is not None:
            bundle.timestamps.append(time_ms)
    return main, sides


def _valued(value: Record) -> Record:
    """What was yielded, unless it is a tag alone."""
    if type(value) is OutputTag:
        raise TypeError(f"{value!r} was sent without a value; write yield tag, value")
    return value


NOT_COUNTED: Final = 0
"""In place of the references to a value that others may hold."""
