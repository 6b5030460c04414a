"""What was copied in front of a task, decoded and made readable: records, keys, how many of each.

Called on a thread of its own, outside of the baton, since it runs the user's code: classes are
unpickled, keys selected, records shown by ``repr``. Law: whatever that code raises is shown in the
place of the record; between two records the time is looked at, and what is there by then is the
answer.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias

from headgate.base.elements import (
    Bundle,
    Key,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.base.inspections import (
    MAX_ENTRIES,
    KeyCount,
    KeyCounts,
    WaitingEntry,
    WaitingRecords,
)
from headgate.core.ingress.waiting import Place, Undecoded, WaitingThing
from headgate.core.state.keys import Frozen, freeze
from headgate.core.task.waiting import CopiedChannel, CopiedGate
from headgate.host.shipping.failures import cut_text, shown

SHOW_S: Final = 2.0
"""For the user's code, all records of an answer together; one record may take longer."""

COUNTED_RECORDS: Final = 20_000
"""So many records of a gate are looked at for their keys."""

KeyOf: TypeAlias = Callable[[Record], Key]


def waiting_records(copied: CopiedGate, limit: int) -> WaitingRecords:
    """The first ``limit`` records and what is between them, the longest queues first."""
    entries: list[WaitingEntry] = []
    records, complete = 0, copied.complete
    deadline = time.monotonic() + SHOW_S
    for entry in chain.from_iterable(_entries(copied, channel) for channel in copied.copied):
        is_record = entry.kind == "record"
        is_full = len(entries) >= MAX_ENTRIES or records + is_record > limit
        if is_full or time.monotonic() > deadline:
            complete = False
            break
        entries.append(entry)
        records += is_record
    return WaitingRecords(
        copied.gate, copied.channels, tuple(entries), records, copied.buffers, complete
    )


def count_keys(gates: Sequence[CopiedGate], limit: int) -> KeyCounts:
    """How often each key waits; a key that cannot be taken counts as what its selector raised."""
    counts: Counter[Key] = Counter()
    deadline = time.monotonic() + SHOW_S
    for copied in gates:
        assert copied.key_of is not None, "a gate with keys"
        for record in islice(_records(copied), COUNTED_RECORDS):
            if time.monotonic() > deadline:
                break
            counts[_counted(copied.key_of, record)] += 1
    most = counts.most_common(limit)
    return KeyCounts(
        counts.total(),
        len(counts),
        tuple(KeyCount(_key_text(key), count) for key, count in most),
    )


class _Unselected:
    """Stands for the keys of records whose selector raised."""

    def __init__(self, error: BaseException) -> None:
        self._name = type(error).__name__

    def __repr__(self) -> str:
        return f"<the key selector raises {self._name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unselected) and other._name == self._name

    def __hash__(self) -> int:
        return self._name.__hash__()


def _counted(key_of: KeyOf, record: Record) -> Key:
    try:
        key = freeze(key_of(record))
        hash(key)
    except BaseException as error:  # the user's code may raise anything
        return _Unselected(error)
    return key


def _records(copied: CopiedGate) -> Iterator[Record]:
    for channel in copied.copied:
        for _, thing in copied.things(channel):
            if isinstance(thing, Bundle):
                yield from thing.records


def _entries(copied: CopiedGate, channel: CopiedChannel) -> Iterator[WaitingEntry]:
    for place, thing in copied.things(channel):
        if isinstance(thing, Bundle):
            times = thing.timestamps or [None] * len(thing.records)
            for record, timestamp_ms in zip(thing.records, times, strict=True):
                key = None if copied.key_of is None else _key_shown(copied.key_of, record)
                yield WaitingEntry(
                    channel.index, "record", shown(record), key, timestamp_ms, place.value
                )
        else:
            yield _other_entry(channel.index, thing, place)


def _other_entry(channel: int, thing: WaitingThing, place: Place) -> WaitingEntry:
    timestamp_ms: int | None = None
    match thing:
        case Watermark():
            kind, text, timestamp_ms = "watermark", str(thing.timestamp_ms), thing.timestamp_ms
        case StreamStatus():
            kind, text = "status", "active" if thing.active else "idle"
        case LatencyMarker():
            kind, text = "marker", f"of subtask {thing.subtask} of operator {thing.operator}"
            timestamp_ms = thing.marked_ms
        case CheckpointBarrier():
            kind, text = "barrier", _barrier_text(thing)
            timestamp_ms = thing.timestamp_ms
        case CancelMarker():
            kind, text = "event", f"checkpoint {thing.checkpoint} is aborted"
        case Undecoded():
            kind, text = "unreadable", cut_text(thing.problem)
        case _:
            kind, text = "event", type(thing).__name__
    return WaitingEntry(channel, kind, text, None, timestamp_ms, place.value)


def _barrier_text(barrier: CheckpointBarrier) -> str:
    kind = "savepoint" if barrier.is_savepoint else "checkpoint"
    return f"{kind} {barrier.checkpoint}" + (", unaligned" if barrier.unaligned else "")


def _key_shown(key_of: KeyOf, record: Record) -> str:
    try:
        return shown(key_of(record))
    except BaseException as error:  # the user's code may raise anything
        return shown(_Unselected(error))


def _key_text(key: Key) -> str:
    return shown(key.key if isinstance(key, Frozen) else key)
