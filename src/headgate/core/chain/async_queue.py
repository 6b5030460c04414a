"""The queues of asynchronous calls: which results may leave, and in which order.

Records become *pending calls*, which leave with their results; watermarks and statuses between them
are *time updates*. Law: no record overtakes a time update, nor an update a record. Between two
updates the ordered queue keeps the order of the records, the unordered one that of the results. At
most ``capacity`` calls are held, and of consecutive updates only the last of each kind. What is
held at a checkpoint comes out in order, and a new queue that admits it continues as this one.
"""

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Protocol, TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark

TimeUpdate: TypeAlias = Watermark | StreamStatus

HeldCalls: TypeAlias = tuple[list[Record], list[int | None], list[TimeUpdate]]
"""Records that have not left, their timestamps, and the time updates after them."""


class PendingCall:
    """One record on its way through the function, and what came of it."""

    __slots__ = ("due", "error", "record", "results", "segment", "timestamp")

    def __init__(
        self, record: Record, timestamp: int | None, segment: "_Segment | None" = None
    ) -> None:
        self.record = record
        self.timestamp = timestamp
        self.results: list[Record] | None = None
        """None: not there yet."""
        self.error: BaseException | None = None
        self.segment = segment
        self.due = 0.0
        """For whoever makes the call: when it times out."""


class AsyncQueue(Protocol):
    """What the operator needs of a queue."""

    size: int
    """Calls that are held, including those whose results have not left."""
    capacity: int

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        """Calls for these records; there must be capacity left."""

    def time_updated(self, update: TimeUpdate) -> None:
        """A watermark or a status follows the records so far."""

    def completed(self, calls: Iterable[PendingCall]) -> None:
        """These have their results."""

    def release(self) -> list[Bundle | TimeUpdate]:
        """What may leave now, in this order."""

    def held(self) -> list[HeldCalls]:
        """Everything that has not left, in order."""


class OrderedQueue:
    """Results leave in the order of their records."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._entries: deque[PendingCall | list[TimeUpdate]] = deque()

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        calls = [
            PendingCall(record, time)
            for record, time in zip(records, timestamps or repeat(None))  # noqa: B905 - repeat has no end
        ]
        self.size += len(calls)
        assert self.size <= self.capacity, f"{self.size} calls, {self.capacity} allowed"
        self._entries.extend(calls)
        return calls

    def time_updated(self, update: TimeUpdate) -> None:
        last = self._entries[-1] if self._entries else None
        if isinstance(last, list):
            _replace(last, update)
        else:
            self._entries.append([update])

    def completed(self, calls: Iterable[PendingCall]) -> None:
        """They are in the queue already; their results are seen when their turn comes."""

    def release(self) -> list[Bundle | TimeUpdate]:
        """From the head up to the first call without results."""
        entries = self._entries
        found: list[Bundle | TimeUpdate] = []
        done: list[PendingCall] = []
        while entries:
            first = entries[0]
            if isinstance(first, list):
                _bundle(done, found)
                found += first
                done = []
            elif first.results is None:
                break
            else:
                done.append(first)
                self.size -= 1
            entries.popleft()
        _bundle(done, found)
        return found

    def held(self) -> list[HeldCalls]:
        found: list[HeldCalls] = []
        calls: list[PendingCall] = []
        for entry in self._entries:
            if isinstance(entry, list):
                found.append(_held(calls, entry))
                calls = []
            else:
                calls.append(entry)
        return [*found, _held(calls, [])] if calls else found


class _Segment:
    """Records between two updates, and the updates after them."""

    __slots__ = ("admitted", "done", "updates", "waiting")

    def __init__(self) -> None:
        self.admitted: list[PendingCall] = []
        """All whose results are not here, in order; some of those whose results are."""
        self.waiting = 0
        self.done: list[PendingCall] = []
        self.updates: list[TimeUpdate] = []


class UnorderedQueue:
    """Results leave as they come, but for those after a time update that still waits."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._segments = deque([_Segment()])

    def admit(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[PendingCall]:
        segment = self._segments[-1]
        if segment.updates:
            segment = _Segment()
            self._segments.append(segment)
        calls = [
            PendingCall(record, time, segment)
            for record, time in zip(records, timestamps or repeat(None))  # noqa: B905 - repeat has no end
        ]
        segment.waiting += len(calls)
        if len(segment.admitted) > 2 * self.capacity:  # now and then, not for each that has ended
            segment.admitted = [call for call in segment.admitted if call.segment is not None]
        segment.admitted += calls
        self.size += len(calls)
        assert self.size <= self.capacity, f"{self.size} calls, {self.capacity} allowed"
        return calls

    def time_updated(self, update: TimeUpdate) -> None:
        _replace(self._segments[-1].updates, update)

    def completed(self, calls: Iterable[PendingCall]) -> None:
        """They are done, each in its segment."""
        for call in calls:
            segment, call.segment = call.segment, None
            assert segment is not None, "a call was completed twice"
            segment.waiting -= 1
            segment.done.append(call)

    def release(self) -> list[Bundle | TimeUpdate]:
        """What is done in the first segment; once that is empty its updates, and so on."""
        segments = self._segments
        found: list[Bundle | TimeUpdate] = []
        while True:
            first = segments[0]
            done, first.done = first.done, []
            self.size -= len(done)
            _bundle(done, found)
            if first.waiting or not first.updates:
                return found
            found += first.updates
            segments.popleft()
            if not segments:
                segments.append(_Segment())

    def held(self) -> list[HeldCalls]:
        """Everything that has not left; calls that are done come first in their segment."""
        found: list[HeldCalls] = []
        for segment in self._segments:
            calls = [
                *segment.done,
                *[call for call in segment.admitted if call.segment is not None],
            ]
            if calls or segment.updates:
                found.append(_held(calls, segment.updates))
        return found


def _held(calls: list[PendingCall], updates: list[TimeUpdate]) -> HeldCalls:
    return [call.record for call in calls], [call.timestamp for call in calls], list(updates)


def _replace(updates: list[TimeUpdate], update: TimeUpdate) -> None:
    """The later of two watermarks with no record between them says all; so for statuses."""
    updates[:] = [known for known in updates if type(known) is not type(update)]
    updates.append(update)


def _bundle(done: list[PendingCall], found: "list[Bundle | TimeUpdate]") -> None:
    """The results of these calls, each with the timestamp of its record."""
    records = [record for call in done for record in call.results or ()]
    if not records:
        return
    if all(call.timestamp is None for call in done):
        found.append(Bundle(records))
        return
    times = [call.timestamp for call in done for _ in call.results or ()]
    found.append(Bundle(records, times))
