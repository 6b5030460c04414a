"""The census of segments: every segment of a worker is in exactly one place, with the right count.

Places: the shelves of pools, the landing rows, the hands of channels, and leases. A lease may be
held by several readers at once; their number must be its count.
"""

from collections.abc import Iterator

from headgate.core.buffers.buffer import BufferConsumer, Lease
from headgate.core.buffers.segment import Segment
from headgate.core.egress.blocking import BlockingSubpartition
from headgate.core.egress.partition import Partition
from headgate.core.egress.pipelined import PipelinedSubpartition
from headgate.core.ingress.remote import RemoteChannel
from headgate.sim.ledger import CheckFailed
from headgate.sim.programs import Job
from headgate.sim.worker import SimWorker


def count_segments(worker: SimWorker, jobs: list[Job]) -> None:
    """Raise if a segment is lost, doubled, or counted wrong."""
    places: dict[int, str] = {}
    for segment, place in _loose(worker, jobs):
        _put(places, segment, place)
    held: dict[int, tuple[Lease, list[str]]] = {}
    for lease, place in _leased(worker, jobs):
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


def _loose(worker: SimWorker, jobs: list[Job]) -> Iterator[tuple[Segment, str]]:
    pool = worker.environment.pool
    for segment in pool.free:
        yield segment, "the global pool"
    for local in pool.pools:
        for segment in local.free:
            yield segment, f"the pool of {local.who}"
    for connection in worker.connections:
        for segment in connection.link.decoder.landing.segments:
            yield segment, f"the landing row of {connection.name}"
    for channel in remote_channels(jobs):
        for segment in channel._exclusive:
            yield segment, f"channel {channel.id}, exclusive"


def _leased(worker: SimWorker, jobs: list[Job]) -> Iterator[tuple[Lease, str]]:
    for connection in worker.connections:
        link = connection.link
        if link.decoder._lease is not None:
            yield link.decoder._lease, f"the decoder of {connection.name}"
        for buffer in link.outbox.buffers():
            if buffer.lease is not None:
                yield buffer.lease, f"the outbox of {connection.name}"
    for channel in remote_channels(jobs):
        for lease in channel._floating:
            yield lease, f"channel {channel.id}, floating"
        for buffer in channel._received:
            if buffer.lease is not None:
                yield buffer.lease, f"channel {channel.id}, received"
    for job in jobs:
        yield from _in_hands(job)


def _in_hands(job: Job) -> Iterator[tuple[Lease, str]]:
    if job.inbox is not None:
        for index, deserializer in enumerate(job.inbox.deserializers):
            buffer = deserializer._buffer
            if buffer is not None and buffer.lease is not None:
                yield buffer.lease, f"{job.name}, reading channel {index}"
    if job.output is not None:
        for builder in job.output.writer._builders:
            if builder is not None and not builder.finished:
                yield builder.lease, f"{job.name}, writing"
        yield from _queued(job.output.partition)


def _queued(partition: Partition) -> Iterator[tuple[Lease, str]]:
    for number, subpartition in enumerate(partition.subpartitions):
        consumers: list[BufferConsumer] = []
        if isinstance(subpartition, PipelinedSubpartition):
            consumers += subpartition._queue
        elif isinstance(subpartition, BlockingSubpartition) and subpartition._current is not None:
            consumers.append(subpartition._current)
        for consumer in consumers:
            if consumer.lease is not None:
                yield consumer.lease, f"{partition.id}[{number}]"
            if consumer.ready is not None and consumer.ready.lease is not None:
                yield consumer.ready.lease, f"{partition.id}[{number}]"


def remote_channels(jobs: list[Job]) -> Iterator[RemoteChannel]:
    """All remote channels of these tasks, in order."""
    for job in jobs:
        if job.inbox is not None:
            for gate in job.inbox.gates:
                for channel in gate.channels:
                    if isinstance(channel, RemoteChannel):
                        yield channel
