"""The collector of what process functions yield, output tags, and the records that came too late.

Law: every value goes where its tag says. A late record goes to the side output or is counted and
dropped; the late records of a bundle leave together, with their times.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, Protocol

from headgate.base.elements import Bundle, Record, Times
from headgate.base.fields import FieldShape, Place, RecordFields, Same
from headgate.base.values import ATOMS, own, own_result
from headgate.core.chain.copies import LOOKS, NO_KINDS, Kinds, immutable_kinds, look_at_mutable
from headgate.core.chain.operator import Output
from headgate.functions.function import OutputTag


class TimedContext(Protocol):
    """What a function is passed beside its record, and what the record's time is set in."""

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
        """The same, of a loop that adds the fields of records to lists of their own.

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
        """Forget the values behind the first ones."""
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
