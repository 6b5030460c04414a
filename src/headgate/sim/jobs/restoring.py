"""What simulated tasks get back of a checkpoint, read from the simulated storage."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.base.checkpoints import (
    ChannelState,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.base.elements import Bundle
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.checkpoint.restored import (
    ChannelParts,
    TaskRestored,
    kept_by,
    reassigned_bundles,
)
from headgate.core.ingress.deserializer import Deserializer
from headgate.plan.execution_graph import TaskSpec
from headgate.plan.job_graph import JobGraph
from headgate.sim.jobs.storage import SimStorage
from headgate.sim.worker import SimWorker


class Restoring:
    """For the tasks of one job graph."""

    def __init__(self, graph: JobGraph, storage: SimStorage) -> None:
        self._graph = graph
        self._storage = storage

    def read(self, worker: SimWorker, spec: TaskSpec, restore: TaskRestore) -> TaskRestored:
        """Everything but keyed state, which operators read when they open."""
        return TaskRestored(
            {one.uid: self._operator(one, restore.checkpoint) for one in restore.operators},
            [self._channel(one) for one in restore.channels if one.is_input],
            [self._channel(one) for one in restore.channels if not one.is_input],
            [(one.gate, self._bundles(worker, spec, one)) for one in restore.reassigned],
            restore.finished,
        )

    def _operator(self, restore: OperatorRestore, checkpoint: int) -> OperatorRestored:
        read = self._storage.read
        return OperatorRestored(
            checkpoint,
            lambda: self._groups(restore.keyed),
            tuple(None if piece is None else read(piece) for piece in restore.plain),
            tuple(None if piece is None else read(piece) for piece in restore.source),
            tuple(map(read, restore.sinks)),
            shapes=restore.shapes,
        )

    def _groups(self, keyed: Mapping[int, Piece]) -> Iterator[tuple[int, bytes]]:
        for group, piece in keyed.items():
            yield group, self._storage.read(piece)

    def _channel(self, channel: ChannelState) -> ChannelParts:
        return channel.index, channel.channel, list(map(self._storage.read, channel.pieces))

    def _bundles(
        self, worker: SimWorker, spec: TaskSpec, stream: ReassignedStream
    ) -> Iterable[Bundle]:
        vertices = self._graph.vertices
        vertex = vertices[spec.vertex]
        serializers = vertex.gate_serializers or (None,) * len(spec.gates)
        settings = worker.environment.settings
        deserializer = Deserializer(
            serializers[stream.gate],
            worker.spills,
            settings.spill_bytes,
            settings.max_element_bytes,
        )
        pieces = list(map(self._storage.read, stream.pieces))
        if not stream.routed:
            return reassigned_bundles(pieces, deserializer)
        router = vertices[stream.source].chain.partitions[stream.output].make_router(0)
        router.set_up(vertex.parallelism)
        return reassigned_bundles(pieces, deserializer, kept_by(router, spec.subtask))
