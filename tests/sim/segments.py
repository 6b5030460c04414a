"""The census of segments: every segment of a worker is in exactly one place, with the right count.

Places: the shelves of pools, the landing rows, the hands of channels, and leases. A lease may be
held by several readers at once; their number must be its count.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from headgate.core.buffers.buffer import BufferConsumer, Lease, Segment
from headgate.core.egress.partition import Partition, PipelinedSubpartition
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.channel import UnknownChannel
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.remote import RemoteChannel
from headgate.sim.worker import CheckFailed, SimWorker


class Holder(Protocol):
    """A task, as far as it may hold segments."""

    @property
    def name(self) -> str: ...

    @property
    def gates(self) -> Sequence[Gate]: ...

    @property
    def deserializers(self) -> Sequence[Deserializer]: ...

    @property
    def writers(self) -> Sequence[RecordWriter]: ...


def count_segments(worker: SimWorker, holders: Sequence[Holder]) -> None:
    """Raise if a segment is lost, doubled, or counted wrong."""
    places: dict[int, str] = {}
    for segment, place in _loose(worker, holders):
        _put(places, segment, place)
    held: dict[int, tuple[Lease, list[str]]] = {}
    for lease, place in _leased(worker, holders):
        held.setdefault(id(lease), (lease, []))[1].append(place)
    for lease, readers in held.values():
        _put(places, lease.segment, " and ".join(readers))
        if lease.readers != len(readers):
            raise CheckFailed(
                f"{worker.name}: {lease.segment} counts {lease.readers} readers "
                f"and has {len(readers)}: {', '.join(readers)}"
            )
    total = worker.environment.pool.total
    if len(places) != total:
        missing = [index for index in range(total) if index not in places]
        raise CheckFailed(
            f"{worker.name}: {len(missing)} of {total} segments are nowhere: {missing[:5]}"
        )


def _put(places: dict[int, str], segment: Segment, place: str) -> None:
    if segment.index in places:
        raise CheckFailed(f"{segment} is in two places: {places[segment.index]}, and {place}")
    places[segment.index] = place


def _loose(worker: SimWorker, holders: Sequence[Holder]) -> Iterator[tuple[Segment, str]]:
    pool = worker.environment.pool
    for segment in pool.free:
        yield segment, "the global pool"
    for local in pool.pools:
        for segment in local.free:
            yield segment, f"the pool of {local.who}"
    for connection in worker.connections:
        for segment in connection.link.decoder.landing.segments:
            yield segment, f"the landing row of {connection.name}"
    for channel in remote_channels(holders):
        for segment in channel._exclusive:
            yield segment, f"channel {channel.id}, exclusive"
    for holder in holders:
        for gate in holder.gates:
            for unknown in gate.channels:
                if isinstance(unknown, UnknownChannel):
                    for segment in unknown._kept:
                        yield segment, f"{holder.name}, kept for channel {unknown.index}"


def _leased(worker: SimWorker, holders: Sequence[Holder]) -> Iterator[tuple[Lease, str]]:
    for connection in worker.connections:
        link = connection.link
        if link.decoder._lease is not None:
            yield link.decoder._lease, f"the decoder of {connection.name}"
        for buffer in link.outbox.buffers():
            if buffer.lease is not None:
                yield buffer.lease, f"the outbox of {connection.name}"
    for channel in remote_channels(holders):
        for lease in channel._floating:
            yield lease, f"channel {channel.id}, floating"
        for buffer in channel._received:
            if buffer.lease is not None:
                yield buffer.lease, f"channel {channel.id}, received"
    for holder in holders:
        yield from _in_hands(holder)


def _in_hands(holder: Holder) -> Iterator[tuple[Lease, str]]:
    for index, deserializer in enumerate(holder.deserializers):
        buffer = deserializer._buffer
        if buffer is not None and buffer.lease is not None:
            yield buffer.lease, f"{holder.name}, reading channel {index}"
    for writer in holder.writers:
        for builder in writer._builders:
            if builder is not None and not builder.finished:
                yield builder.lease, f"{holder.name}, writing"
        yield from _queued(writer.partition)


def _queued(partition: Partition) -> Iterator[tuple[Lease, str]]:
    for number, subpartition in enumerate(partition.subpartitions):
        consumers: list[BufferConsumer] = []
        if isinstance(subpartition, PipelinedSubpartition):
            consumers += subpartition._queue
        elif subpartition._current is not None:
            consumers.append(subpartition._current)
        for consumer in consumers:
            if consumer.lease is not None:
                yield consumer.lease, f"{partition.id}[{number}]"
            if consumer.ready is not None and consumer.ready.lease is not None:
                yield consumer.ready.lease, f"{partition.id}[{number}]"


def remote_channels(holders: Sequence[Holder]) -> Iterator[RemoteChannel]:
    """All remote channels of these tasks, in order."""
    for holder in holders:
        for gate in holder.gates:
            for channel in gate.channels:
                if isinstance(channel, RemoteChannel):
                    yield channel
