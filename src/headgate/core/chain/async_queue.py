"""The queues of asynchronous calls: which results may go on, and in which order.

A record takes a *slot*, which leaves with its results. Watermarks and statuses are *notes* between
the records. Law: no record overtakes a note, no note a record; between two notes the ordered queue
keeps the order of the records, the unordered one that of the results. At most ``capacity`` slots
are held; notes with no record between them become one of each kind, so they are bounded too. What
is held at a checkpoint is given out in order, and a new queue that admits it goes on as this one.
"""

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Protocol, TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark

TimeUpdate: TypeAlias = Watermark | StreamStatus

HeldCalls: TypeAlias = tuple[list[Record], list[int | None], list[TimeUpdate]]
"""Records that have not left, their timestamps, and the notes behind them."""


class PendingCall:
    """One record on its way through the function, and what came of it."""

    __slots__ = ("due", "error", "part", "record", "results", "timestamp")

    def __init__(self, record: Record, timestamp: int | None, part: "_Part | None" = None) -> None:
        self.record = record
        self.timestamp = timestamp
        self.results: list[Record] | None = None
        """None: not there yet."""
        self.error: BaseException | None = None
        self.part = part
        self.due = 0.0
        """For whoever makes the call: when it times out."""


class AsyncQueue(Protocol):
    """What the operator needs of a queue."""

    size: int
    """Slots that are held; those with results count until they leave."""
    capacity: int

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        """Slots for these records; there must be room."""

    def noted(self, note: TimeUpdate) -> None:
        """A watermark or a status has come behind the records so far."""

    def completed(self, slots: Iterable[PendingCall]) -> None:
        """These have their results."""

    def release(self) -> list[Bundle | TimeUpdate]:
        """What may go on now, in this order; it is held no longer."""

    def held(self) -> list[HeldCalls]:
        """Everything that has not left, in order."""


class OrderedQueue:
    """Results leave in the order of their records."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._line: deque[PendingCall | list[TimeUpdate]] = deque()

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        """Slots at the end of the line."""
        slots = [
            PendingCall(record, time)
            for record, time in zip(records, timestamps or repeat(None))  # noqa: B905 - repeat has no end
        ]
        self.size += len(slots)
        assert self.size <= self.capacity, f"{self.size} slots, {self.capacity} allowed"
        self._line.extend(slots)
        return slots

    def noted(self, note: TimeUpdate) -> None:
        """It waits for all slots before it."""
        last = self._line[-1] if self._line else None
        if isinstance(last, list):
            _replace(last, note)
        else:
            self._line.append([note])

    def completed(self, slots: Iterable[PendingCall]) -> None:
        """The slots stand in line already; their results are seen when their turn comes."""

    def release(self) -> list[Bundle | TimeUpdate]:
        """From the head of the line up to the first slot without results."""
        line = self._line
        found: list[Bundle | TimeUpdate] = []
        done: list[PendingCall] = []
        while line:
            first = line[0]
            if isinstance(first, list):
                _bundle(done, found)
                found += first
                done = []
            elif first.results is None:
                break
            else:
                done.append(first)
                self.size -= 1
            line.popleft()
        _bundle(done, found)
        return found

    def held(self) -> list[HeldCalls]:
        """See ``AsyncQueue``."""
        found: list[HeldCalls] = []
        slots: list[PendingCall] = []
        for one in self._line:
            if isinstance(one, list):
                found.append(_held(slots, one))
                slots = []
            else:
                slots.append(one)
        return [*found, _held(slots, [])] if slots else found


class _Part:
    """Records between two notes, and the notes behind them."""

    __slots__ = ("admitted", "done", "notes", "waiting")

    def __init__(self) -> None:
        self.admitted: list[PendingCall] = []
        """All whose results are not here, in order; some of those whose results are."""
        self.waiting = 0
        self.done: list[PendingCall] = []
        self.notes: list[TimeUpdate] = []


class UnorderedQueue:
    """Results leave as they come, but for those behind a note that still waits."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._parts = deque([_Part()])

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        """Slots in the last part."""
        part = self._parts[-1]
        if part.notes:
            part = _Part()
            self._parts.append(part)
        slots = [
            PendingCall(record, time, part)
            for record, time in zip(records, timestamps or repeat(None))  # noqa: B905 - repeat has no end
        ]
        part.waiting += len(slots)
        if len(part.admitted) > 2 * self.capacity:  # now and then, not for each that has ended
            part.admitted = [slot for slot in part.admitted if slot.part is not None]
        part.admitted += slots
        self.size += len(slots)
        assert self.size <= self.capacity, f"{self.size} slots, {self.capacity} allowed"
        return slots

    def noted(self, note: TimeUpdate) -> None:
        """It closes the last part."""
        _replace(self._parts[-1].notes, note)

    def completed(self, slots: Iterable[PendingCall]) -> None:
        """They are done, each in its part."""
        for slot in slots:
            part, slot.part = slot.part, None
            assert part is not None, "a slot was completed twice"
            part.waiting -= 1
            part.done.append(slot)

    def release(self) -> list[Bundle | TimeUpdate]:
        """All that is done in the first part; when it is through, its notes and the next part."""
        parts = self._parts
        found: list[Bundle | TimeUpdate] = []
        while True:
            first = parts[0]
            done, first.done = first.done, []
            self.size -= len(done)
            _bundle(done, found)
            if first.waiting or not first.notes:
                return found
            found += first.notes
            parts.popleft()
            if not parts:
                parts.append(_Part())

    def held(self) -> list[HeldCalls]:
        """See ``AsyncQueue``; those that are done and have not left come first in their part."""
        found: list[HeldCalls] = []
        for part in self._parts:
            slots = [*part.done, *[slot for slot in part.admitted if slot.part is not None]]
            if slots or part.notes:
                found.append(_held(slots, part.notes))
        return found


def _held(slots: list[PendingCall], notes: list[TimeUpdate]) -> HeldCalls:
    return [slot.record for slot in slots], [slot.timestamp for slot in slots], list(notes)


def _replace(notes: list[TimeUpdate], note: TimeUpdate) -> None:
    """The later of two watermarks with no record between them says all; so for statuses."""
    notes[:] = [known for known in notes if type(known) is not type(note)]
    notes.append(note)


def _bundle(done: list[PendingCall], found: "list[Bundle | TimeUpdate]") -> None:
    """The results of these slots, each with the timestamp of its record."""
    records = [record for slot in done for record in slot.results or ()]
    if not records:
        return
    if all(slot.timestamp is None for slot in done):
        found.append(Bundle(records))
        return
    times = [slot.timestamp for slot in done for _ in slot.results or ()]
    found.append(Bundle(records, times))
