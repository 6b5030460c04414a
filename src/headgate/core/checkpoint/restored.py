"""What a task begins with after a restore: the state of its operators, and records in flight.

The worker brings a ``CheckpointReader``; keyed state is read by the operators that own it, when
they open. Law: in an input, reassigned records (those of channels that no longer exist) come
first, then what was in flight in each channel, in order, each buffer once; what was not read yet is
kept with its channel by the next checkpoint. If several tasks get the same reassigned stream, each
keeps what the router of the edge sends to it now: every record is read by exactly one of them. A
task that had finished opens only the operators that have something to commit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from headgate.base.checkpoints import (
    ChannelState,
    DatabaseRestore,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.base.elements import Bundle, Record, Serializer
from headgate.base.errors import ElementBroken
from headgate.core.buffers.buffer import Buffer, buffer_bytes
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.chain.spec import OperatorSpec
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.waiting import Place, WaitingCopier
from headgate.core.state.backend import StoredDatabase

ChannelParts: TypeAlias = tuple[int, int, Sequence[bytes]]
"""Gate and channel in it, or partition and subpartition, and the bytes it begins with."""


ReassignedBundles: TypeAlias = tuple[int, Iterable[Bundle]]
"""A gate, and records that were in flight to it in channels that no longer exist."""


@dataclass(frozen=True, slots=True)
class TaskRestored:
    """For one task."""

    operators: Mapping[str, OperatorRestored] = field(default_factory=dict)
    """By uid."""
    inputs: Sequence[ChannelParts] = ()
    """By the gates of the task, not of its inputs: a union has several."""
    outputs: Sequence[ChannelParts] = ()
    reassigned: Sequence[ReassignedBundles] = ()
    """Read before all other input."""
    finished: bool = False
    """It had finished: it reads its inputs to their ends, and ends its outputs."""

    def opens(self, spec: OperatorSpec) -> bool:
        """Whether an operator is to be opened."""
        if not self.finished:
            return True
        known = self.operators.get(spec.uid)
        return known is not None and bool(known.sinks)


FRESH = TaskRestored()
"""A task that goes on from nowhere; one that goes on may have kept nothing, but is not this."""


class CheckpointReader(Protocol):
    """Reads pieces of one checkpoint; raises if one is not as it was written."""

    def read(self, piece: Piece) -> bytes: ...

    def key_groups(self, keyed: Mapping[int, Piece]) -> Iterator[tuple[int, bytes]]:
        """In any order; called later, on the thread of the task that owns them."""

    def database(self, restore: DatabaseRestore) -> StoredDatabase:
        """Files that are fetched later, the same."""


DecodeReassigned: TypeAlias = Callable[[ReassignedStream, Sequence[bytes]], Iterable[Bundle]]
"""Decodes the records of a reassigned stream."""


def read_restore(
    restore: TaskRestore, reader: CheckpointReader, decode: DecodeReassigned
) -> TaskRestored:
    """What a task gets back: small pieces now, keyed state when its operators open."""
    return TaskRestored(
        operators={
            operator.uid: _read_operator(operator, restore.checkpoint, reader)
            for operator in restore.operators
        },
        inputs=[_read_channel(c, reader) for c in restore.channels if c.is_input],
        outputs=[_read_channel(c, reader) for c in restore.channels if not c.is_input],
        reassigned=[
            (stream.gate, decode(stream, [reader.read(piece) for piece in stream.pieces]))
            for stream in restore.reassigned
        ],
        finished=restore.finished,
    )


def _read_operator(
    restore: OperatorRestore, checkpoint: int, reader: CheckpointReader
) -> OperatorRestored:
    return OperatorRestored(
        checkpoint,
        partial(reader.key_groups, restore.keyed),
        tuple(None if piece is None else reader.read(piece) for piece in restore.plain),
        tuple(None if piece is None else reader.read(piece) for piece in restore.source),
        tuple(map(reader.read, restore.sinks)),
        tuple(map(reader.database, restore.databases)),
        restore.shapes,
    )


def _read_channel(channel: ChannelState, reader: CheckpointReader) -> ChannelParts:
    return channel.index, channel.channel, [reader.read(piece) for piece in channel.pieces]


class RestoredInput:
    """Restored buffers for one input."""

    def __init__(
        self,
        pause: Callable[[int], None] = lambda channel: None,
        resume: Callable[[int], None] = lambda channel: None,
    ) -> None:
        """``pause`` is called with a channel that begins with something.

        ``resume`` is called with it when all of that has been read.
        """
        self._pause = pause
        self._resume = resume
        self._left: dict[int, int] = {}
        self._reassigned: deque[tuple[int, Iterator[Buffer]]] = deque()
        self._channels: deque[tuple[int, Iterator[Buffer]]] = deque()
        self.waits = False
        """Whether there may be some; looked at for each element."""

    def add_bytes(self, channel: int, parts: Iterable[bytes]) -> None:
        """A part of the stream of a channel; it may begin and end in the middle of an element."""
        buffers = [Buffer(part) for part in parts if part]
        if buffers:
            self._add(self._channels, channel, iter(buffers))

    def add_reassigned(self, channel: int, bundles: Iterable[Bundle]) -> None:
        """Records that belong before all else; they are made when they are read."""
        buffers = (Buffer(b"", bundle=bundle) for bundle in bundles if bundle.records)
        self._add(self._reassigned, channel, buffers)

    def next(self) -> tuple[int, Buffer] | None:
        """The next buffer and its channel; None: that was all."""
        for waiting in (self._reassigned, self._channels):
            while waiting:
                channel, buffers = waiting[0]
                buffer = next(buffers, None)
                if buffer is not None:
                    return channel, buffer
                waiting.popleft()
                self._used_up(channel)
        self.waits = False
        return None

    def unread(self, channel: int, serializer: Serializer) -> bytes:
        """All that is still to come of a channel."""
        unread = b""
        for waiting in (self._reassigned, self._channels):
            for at, (whose, buffers) in enumerate(waiting):
                if whose == channel:
                    kept = list(buffers)
                    waiting[at] = whose, iter(kept)
                    unread += b"".join(buffer_bytes(buffer, serializer) for buffer in kept)
        return unread

    def copy_waiting(self, channel: int, copier: WaitingCopier) -> None:
        """Copy what is still to come of a channel; reassigned records are not made before they are
        read, so that they are left out."""
        copier.complete &= all(whose != channel for whose, _ in self._reassigned)
        for at, (whose, buffers) in enumerate(self._channels):
            if whose == channel:
                kept = list(buffers)
                self._channels[at] = whose, iter(kept)
                for buffer in kept:
                    if not copier.copy(buffer, Place.ARRIVED):
                        return

    def _add(
        self, waiting: deque[tuple[int, Iterator[Buffer]]], channel: int, buffers: Iterator[Buffer]
    ) -> None:
        waiting.append((channel, buffers))
        self.waits = True
        self._left[channel] = self._left.get(channel, 0) + 1
        self._pause(channel)

    def _used_up(self, channel: int) -> None:
        self._left[channel] -= 1
        if not self._left[channel]:
            self._resume(channel)


RecordFilter: TypeAlias = Callable[[Bundle], Bundle]
"""What of a bundle belongs to the task that reads it; perhaps no record."""


class SplittingRouter(Protocol):
    """What is needed of a router, which knows the number of consumers."""

    def split(
        self, records: list[Record], timestamps: list[int | None] | None
    ) -> list[tuple[int, list[Record], list[int | None] | None]]: ...


def kept_by(router: SplittingRouter, subtask: int) -> RecordFilter:
    """Keep what the router sends to the consumer with this index."""

    def keep(bundle: Bundle) -> Bundle:
        for channel, records, timestamps in router.split(bundle.records, bundle.timestamps):
            if channel == subtask:
                return Bundle(records, timestamps)
        return Bundle([])

    return keep


def reassigned_bundles(
    pieces: Iterable[bytes], deserializer: Deserializer, keep: RecordFilter | None = None
) -> Iterator[Bundle]:
    """The records of one stream. The deserializer is its own, and closed at the end."""
    try:
        for piece in pieces:
            for bundle in _bundles_of(piece, deserializer):
                kept = bundle if keep is None else keep(bundle)
                if kept.records:
                    yield kept
        if not deserializer.is_between_elements:
            raise ElementBroken("restored records in flight end in the middle of an element")
    finally:
        deserializer.close()


def _bundles_of(piece: bytes, deserializer: Deserializer) -> Iterator[Bundle]:
    if not piece:
        return
    deserializer.feed(Buffer(piece))
    result = DeserializationResult.MIDDLE
    while result is DeserializationResult.MIDDLE:
        result, element = deserializer.next()
        if isinstance(element, Bundle):
            yield element
