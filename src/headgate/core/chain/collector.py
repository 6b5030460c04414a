"""The collector of what process functions yield, output tags, and the records that came too late.

Law: every value goes where its tag says. A late record goes to the side output or is counted and
dropped; the late records of a bundle leave together, with their times.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import length_hint
from types import GeneratorType
from typing import Final, Protocol

from headgate.base.elements import Bundle, Key, Record
from headgate.base.values import ATOMS, own, own_result
from headgate.core.chain.copies import NO_KINDS, Kinds, immutable_kinds
from headgate.core.chain.operator import Output
from headgate.core.chain.record_failures import FailureStreak
from headgate.core.chain.user_function import iterable
from headgate.core.state.cursor import Cursor
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
        *("_has_tags", "_output", "_pieces", "_records", "_size", "_timed", "_times", "copies"),
    )

    def __init__(self, output: Output, copies: bool = True, piece: int = 4096) -> None:
        self._output = output
        self.copies = copies
        self._size = piece
        self._pieces = 0
        self._records: list[Record] = []
        self._times: list[int | None] = []
        self._timed = False
        self._has_tags = not copies
        """Whether a tag may be among what is collected."""

    def sweep(
        self, calls: Iterable[Record], timestamps: Sequence[int | None] | None, who: str
    ) -> None:
        """Take and send on what the calls for a bundle return, one after the other.

        ``calls`` makes each call when it is asked for the next result, so a generator that the
        function returned runs before the next call.
        """
        self.flush()
        self._timed = timestamps is not None
        records, size, plain = self._records, self._size, _ITERABLE
        copies, atoms, references = self.copies, ATOMS, sys.getrefcount
        send, stamp = records.append, self._times.append
        for found, time_ms in zip(calls, timestamps or repeat(None)):  # noqa: B905 - as long
            if found is None:
                continue
            if type(found) not in plain:
                iterable(found, who)
            for value in found:
                if copies and not (
                    len(value) == 2 and type(value[0]) in atoms and type(value[1]) in atoms
                    if (kind := type(value)) is tuple
                    else kind in atoms
                ):
                    value = self._own(references(value), value)
                send(value)
                stamp(time_ms)
                if len(records) >= size:
                    self._send_on()
        self.flush()

    def sweep_calls(
        self,
        call: Callable[[Record, TimedContext], Record],
        context: TimedContext,
        cursor: Cursor,
        keys: Iterable[Key],
        bundle: Bundle,
        who: str,
    ) -> None:
        """The same for ``call(record, context)`` of each record, at its key and with its time.

        Most calls give one value: that takes no generator, call or look at the length here. So a
        piece may hold as many values more than its size as the bundle has records. A pair of the
        same kinds as an immutable one before it is immutable too.
        """
        self.flush()
        self._timed = timed = bundle.timestamps is not None
        copies, atoms, references = self.copies, ATOMS, sys.getrefcount
        send, stamp = self._records.append, self._times.append
        first_kind = second_kind = None
        entries = zip(bundle.records, keys, bundle.timestamps or repeat(None))  # noqa: B905 - as long
        for record, key, time_ms in entries:
            cursor.key = key
            context.time_ms = time_ms
            found = call(record, context)
            if type(found) is not GeneratorType:
                if found is None:
                    continue
                found = iter(iterable(found, who))
            for value in found:
                if type(value) is tuple and len(value) == 2:
                    first, second = value
                    if type(first) is not first_kind or type(second) is not second_kind:
                        if type(first) in atoms and type(second) in atoms:
                            first_kind, second_kind = type(first), type(second)
                        elif copies:
                            value = self._own(references(value), value)
                elif copies and type(value) not in atoms:
                    value = self._own(references(value), value)
                send(value)
                if timed:
                    stamp(time_ms)
                break
            else:
                continue
            for value in found:
                self._take_more(chain((value,), found), time_ms)
        self.flush()

    def sweep_loop(self, loop: Callable[[list[Record]], None], timed: bool) -> None:
        """The same for a loop with the function in it, which adds values to the list itself."""
        self.flush()
        self._timed = timed
        loop(self._records)
        if self._records and not self._has_tags and not timed:  # the list itself, uncopied
            self._pieces += 1
            records, self._records = self._records, []
            self._output.collect(Bundle(records))
            return
        self.flush()

    def loop_parts(self) -> dict[str, object]:
        """What such a loop uses: it sends values of kinds that it does not know by looks."""
        return {
            "look": self._look,
            "look_items": self._look_items,
            "piece": self._size,
            "send_on": self._send_on,
            "stamp": self._times.append,
        }

    def _look(self, send: Callable[[Record], None], references: int, value: Record) -> Kinds:
        kinds = immutable_kinds(value)
        send(self._own(references, value) if kinds is None else value)
        return kinds or NO_KINDS

    def _look_items(
        self, send: Callable[[Record], None], value: Record, items: tuple[Record, ...]
    ) -> list[type | None]:
        kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]
        send(self._own(NOT_COUNTED, value) if None in kinds else value)
        return kinds

    def sweep_on(
        self,
        calls: Callable[[], Iterable[Record]],
        bundle: Bundle,
        source: Iterator[Record],
        who: str,
        streak: FailureStreak,
    ) -> None:
        """The same, on behind records that fail; of these nothing is sent but whole pieces.

        ``calls`` makes the calls that are left of ``source``, the iterator of the bundle's list,
        which knows how many those are.
        """
        self.flush()
        timestamps = bundle.timestamps
        self._timed = timestamps is not None
        records, size, copies, atoms = self._records, self._size, self.copies, ATOMS
        references = sys.getrefcount
        send, stamp = records.append, self._times.append
        place = before = 0
        while True:
            times: Iterable[int | None] = repeat(None)
            if timestamps is not None:
                times = islice(timestamps, place, None)
            try:
                for found, time_ms in zip(calls(), times):  # noqa: B905 - as long
                    if found is not None:
                        if type(found) not in _ITERABLE:
                            iterable(found, who)
                        for value in found:
                            if not (
                                len(value) == 2
                                and type(value[0]) in atoms
                                and type(value[1]) in atoms
                                if (kind := type(value)) is tuple
                                else kind in atoms
                            ):
                                value = (
                                    self._own(references(value), value)
                                    if copies
                                    else _valued(value)
                                )
                            send(value)
                            stamp(time_ms)
                            if len(records) >= size:
                                self._send_on()
                                before = 0
                        before = len(records)
                break
            except Exception as error:
                self.take_back((self._pieces, before))
                place = len(bundle.records) - length_hint(source)
                streak.failed_at(error, bundle, place - 1)
        streak.ended(bundle)
        self.flush()

    @property
    def mark(self) -> tuple[int, int]:
        """Before a call that may fail: where ``take_back`` goes back to."""
        return self._pieces, len(self._records)

    def take_back(self, mark: tuple[int, int]) -> None:
        """Forget the values since then; pieces that were sent on stay sent."""
        pieces, collected = mark
        kept = collected if pieces == self._pieces else 0
        del self._records[kept:]
        del self._times[kept:]

    def take(self, found: Iterable[Record] | None, timestamp: int | None) -> None:
        """What one call returned; None means nothing. It is sent on by ``flush``."""
        if found is None:
            return
        if not self._records:
            self._timed = False
        if timestamp is not None:
            self._timed = True
        for value in found:
            self._records.append(self._own(NOT_COUNTED, value) if self.copies else value)
            self._times.append(timestamp)
            if len(self._records) >= self._size:
                self._send_on()

    def flush(self) -> None:
        """Send on what was collected."""
        if self._records:
            self._send_on()

    def _take_more(self, found: Iterable[Record], time_ms: int | None) -> None:
        """What a call gives behind its first value, in pieces: it may be more than memory holds."""
        records, size, copies, atoms = self._records, self._size, self.copies, ATOMS
        references = sys.getrefcount
        for value in found:
            if copies and not (
                len(value) == 2 and type(value[0]) in atoms and type(value[1]) in atoms
                if (kind := type(value)) is tuple
                else kind in atoms
            ):
                value = self._own(references(value), value)
            records.append(value)
            self._times.append(time_ms)
            if len(records) >= size:
                self._send_on()

    def _send_on(self) -> None:
        self._pieces += 1
        records, times = self._records[:], self._times[:] if self._timed else None
        self._records.clear()
        self._times.clear()
        if not self._has_tags:
            self._output.collect(Bundle(records, times))
            return
        self._has_tags = not self.copies
        main, sides = split_by_tag(records, times)
        if main.records:
            self._output.collect(main)
        for tag, side in sides.items():
            self._output.collect_side(tag, side)

    def _own(self, references: int, value: Record) -> Record:
        """The receiver's own value; a tag in front of it stays as it is.

        ``references``: to the value, as ``own_result`` wants them.
        """
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

_ITERABLE: Final = frozenset({GeneratorType, list, tuple})
"""Kinds of results that need no closer look."""
