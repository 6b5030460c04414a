"""Inspections of the tasks of a task manager: questions of the driver, each answered once.

A question is taken by the thread of the task manager and answered by another one, so that neither
the tasks nor the driver's orders wait for it. Law: whatever an inspection raises is its answer; it
never fails a task. Waiting records are decoded and shown outside of the baton, since that runs the
user's code, which may take for ever: the number of threads is bounded, the time is checked between
two records, and at the end of the process nobody waits for the threads.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
    MAX_CHANNELS,
    MAX_ENTRIES,
    ChannelFigures,
    ChannelTable,
    CountKeys,
    Found,
    KeyCount,
    KeyCounts,
    PeekRecords,
    ReadChannels,
    ReadState,
    SampleStacks,
    StackSamples,
    WaitingEntry,
    WaitingRecords,
)
from headgate.base.messages import Inspect, Inspected
from headgate.core.ingress.waiting import Place, Undecoded, WaitingThing
from headgate.core.state.keys import Frozen, freeze
from headgate.core.task.inspection import CopiedChannel, CopiedGate, CopyLimits
from headgate.host.shipping.failures import cut_text, shown
from headgate.host.worker.deployment import Deployment, InspectionRefused
from headgate.host.worker.stack_sampler import StackSampler
from headgate.host.worker.state_line import StateQuestions

log = logging.getLogger(__name__)

INSPECTION_THREADS: Final = "headgate-inspection"
MAX_THREADS: Final = 4
PEEKED: Final = CopyLimits(1024 * 1024)
COUNTED: Final = CopyLimits(4 * 1024 * 1024, shared=True)
SHOW_S: Final = 2.0
"""For the user's code, all records of an answer together; one record may take longer."""

COUNTED_RECORDS: Final = 20_000
"""So many records of a gate are looked at for their keys."""

KeyOf: TypeAlias = Callable[[Record], Key]


class Inspections:
    """Questions to one task manager; its thread calls, ``send`` is called from any."""

    def __init__(self, send: Callable[[Inspected], None], reads: StateQuestions) -> None:
        """``reads`` answers questions about state: the tasks themselves do, no other thread."""
        self._send = send
        self._reads = reads
        self._sampler = StackSampler()
        self._lock = threading.Lock()
        self._under_way = 0  # threads; guarded by the lock

    def asked(self, question: Inspect, run: str, tasks: Deployment | None) -> None:
        """Answer a question, now or later; ``run`` and ``tasks`` are the present ones."""
        try:
            if tasks is None or question.run != run:
                self._refuse(question, "the run has ended")
                return
            what, task = question.what, question.task
            match what:
                case SampleStacks():
                    self._sample(question, what, tasks)
                case PeekRecords():
                    self._begin(question, partial(_peek, tasks, task, what))
                case CountKeys():
                    self._begin(question, partial(_count_keys, tasks, task, what))
                case ReadChannels():
                    self._begin(question, partial(_read_channels, tasks, task, what))
                case ReadState():
                    self._reads.asked(question)
        except Exception as error:
            self._failed(question, error)

    def close(self) -> None:
        """The process is about to end: answer what is under way."""
        self._reads.close()
        self._sampler.close()

    def _sample(self, question: Inspect, how: SampleStacks, tasks: Deployment) -> None:
        task = tasks.sampled_task(question.task)

        def answer(samples: StackSamples) -> None:
            self._answer(question, samples)

        self._sampler.sample(task, how, answer, lambda problem: self._refuse(question, problem))

    def _begin(self, question: Inspect, look: Callable[[], Found]) -> None:
        with self._lock:
            is_full = self._under_way >= MAX_THREADS
            self._under_way += not is_full
        if is_full:
            self._refuse(
                question,
                f"its task manager is still busy with {MAX_THREADS} other inspections; try again "
                "later, and if that does not help, see whether repr() of a record returns",
            )
            return
        try:
            name = f"{INSPECTION_THREADS} of {question.task}"
            threading.Thread(
                target=self._inspect, args=(question, look), name=name, daemon=True
            ).start()
        except BaseException:
            self._ended()
            raise

    def _inspect(self, question: Inspect, look: Callable[[], Found]) -> None:
        try:
            self._answer(question, look())
        except BaseException as error:  # the user's code may raise anything
            self._failed(question, error)
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._under_way -= 1

    def _failed(self, question: Inspect, error: BaseException) -> None:
        if isinstance(error, InspectionRefused):
            self._refuse(question, str(error))
            return
        log.debug("inspection %d failed", question.id, exc_info=error)
        self._refuse(question, shown(error))

    def _answer(self, question: Inspect, found: Found) -> None:
        self._send(Inspected(question.run, question.id, question.task, found))

    def _refuse(self, question: Inspect, problem: str) -> None:
        text = problem.encode("utf-8", "backslashreplace").decode()
        self._send(Inspected(question.run, question.id, question.task, None, text))


def _peek(tasks: Deployment, task: str, how: PeekRecords) -> WaitingRecords:
    copied = tasks.copy_waiting(task, how.gate, how.channel, PEEKED)
    return waiting_records(copied, _within(how.limit, MAX_ENTRIES))


def _count_keys(tasks: Deployment, task: str, how: CountKeys) -> KeyCounts:
    gates = tasks.copy_keyed(task, COUNTED)
    if not gates:
        raise InspectionRefused("its records have no keys: its first operator does not work by key")
    return count_keys(gates, _within(how.limit, MAX_ENTRIES))


def _read_channels(tasks: Deployment, task: str, how: ReadChannels) -> ChannelTable:
    rows = tasks.channel_figures(task, how.gate)
    rows.sort(key=_waiting, reverse=True)
    return ChannelTable(len(rows), tuple(rows[: _within(how.limit, MAX_CHANNELS)]))


def _waiting(row: ChannelFigures) -> int:
    """Buffers at both ends; a producer in the same process has them all."""
    return (
        max(row.backlog, row.queued_buffers) if row.is_local else row.backlog + row.queued_buffers
    )


def _within(limit: int, most: int) -> int:
    return max(0, min(limit, most))


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
