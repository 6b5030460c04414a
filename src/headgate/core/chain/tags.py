"""Output tags: the name of a side output, and the sorting of what a process function yields."""

import math
from collections.abc import Iterable, Sequence
from itertools import repeat
from types import GeneratorType
from typing import Final

from headgate.base.elements import Bundle, Record
from headgate.base.values import are_immutable, own, own_all
from headgate.core.chain.operators import iterable
from headgate.core.chain.output import Output
from headgate.core.chain.owning import PROOFS


class OutputTag:
    """Names a side output. Tags with the same id are the same tag, wherever they were made."""

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: object = None) -> None:
        if not tag_id:
            raise ValueError("an output tag needs a text that is not empty as its id")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return self.tag_id.__hash__()

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


class Sorter:
    """Collects what process functions yield and sends it on: plain values, or (tag, value).

    Law: every value goes where its tag says, in order, with the time it was taken with, and belongs
    to its receiver. While a function's values are not yet known to be immutable, or once one was
    not, each is made own before the function runs on; otherwise a whole list is looked at at once.
    """

    __slots__ = (
        "_careful",
        "_copies",
        "_output",
        "_records",
        "_size",
        "_timed",
        "_times",
        "_unproven",
    )

    def __init__(self, output: Output, copies: bool = True, piece: int = 4096) -> None:
        self._output = output
        self._copies = copies
        self._size = piece
        self._records: list[Record] = []
        self._times: list[int | None] = []
        self._timed = False
        self._unproven: float = PROOFS if copies else 0
        self._careful = False
        """Whether what is collected now has been made own already."""

    def sweep(
        self, calls: Iterable[Record], timestamps: Sequence[int | None] | None, who: str
    ) -> None:
        """Take and send on what the calls for a bundle return, one after the other.

        ``calls`` makes each call when it is asked for the next result, so a generator that the
        function returned runs before the next call.
        """
        self.flush()
        self._careful = self._unproven > 0
        self._timed = timestamps is not None
        records, size, plain = self._records, self._size, _ITERABLE
        send, stamp = records.append, self._times.append
        for found, time_ms in zip(calls, timestamps or repeat(None)):  # noqa: B905 - as long
            if found is None:
                continue
            if type(found) not in plain:
                iterable(found, who)
            for value in map(own_tagged, found) if self._careful else found:
                send(value)
                stamp(time_ms)
                if len(records) >= size:
                    self._send_on()
        self.flush()

    def take(self, found: Iterable[Record] | None, timestamp: int | None) -> None:
        """What one call returned; None means nothing. It is sent on by ``flush``."""
        if found is None:
            return
        if not self._records:
            self._careful = self._unproven > 0
            self._timed = False
        if timestamp is not None:
            self._timed = True
        for value in found:
            self._records.append(own_tagged(value) if self._careful else value)
            self._times.append(timestamp)
            if len(self._records) >= self._size:
                self._send_on()

    def flush(self) -> None:
        """Send on what was collected."""
        if self._records:
            self._send_on()

    def _send_on(self) -> None:
        records, times = self._records[:], self._times[:] if self._timed else None
        self._records.clear()
        self._times.clear()
        if self._copies and are_immutable(records):  # so there is no tag among them
            self._unproven = max(0, self._unproven - len(records))
            self._output.collect(Bundle(records, times))
            return
        main, sides = sort(records, times)
        if main.records:
            self._output.collect(self._own_bundle(main))
        for tag, side in sides.items():
            self._output.collect_side(tag, self._own_bundle(side))

    def _own_bundle(self, bundle: Bundle) -> Bundle:
        if not self._copies:
            return bundle
        if are_immutable(bundle.records):
            self._unproven = max(0, self._unproven - len(bundle.records))
            return bundle
        self._unproven = math.inf
        return bundle if self._careful else Bundle(own_all(bundle.records), bundle.timestamps)


def sort(records: list[Record], times: list[int | None] | None) -> tuple[Bundle, dict[str, Bundle]]:
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
        elif type(value) is OutputTag:
            raise TypeError(f"{value!r} was sent without a value; write yield tag, value")
        bundle.records.append(value)
        if bundle.timestamps is not None:
            bundle.timestamps.append(time_ms)
    return main, sides


def own_tagged(value: Record) -> Record:
    """The receiver's own value; a tag in front of it stays as it is."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
        return value[0], own(value[1])
    return own(value)


_ITERABLE: Final = frozenset({GeneratorType, list, tuple})
"""Kinds of results that need no closer look."""
