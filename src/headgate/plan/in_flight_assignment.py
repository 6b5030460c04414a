"""Records that were in flight when an unaligned checkpoint was taken, and which task gets them now.

What stood in a channel of a consumer, and after it in the subpartition of its producer, is one
stream of elements. If both sides are unchanged, it is restored in place. Otherwise the streams
go to the consumers, which read them before all other input. Law: every record comes once to the
task that the edge would send it to now, or the checkpoint is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.base.checkpoints import ChannelState, EdgeShape, Piece, ReassignedStream
from headgate.base.errors import ChannelsDiffer, CheckpointUnsound
from headgate.core.state.keys import groups_of
from headgate.plan.execution_graph import Wiring, task_id
from headgate.plan.job_graph import JobEdge, JobGraph
from headgate.plan.recorded_job import RecordedJob, RecordedVertex

Streams: TypeAlias = dict[tuple[int, int], tuple[Piece, ...]]
"""By producer and consumer."""


@dataclass(slots=True)
class InFlightAssignment:
    """What each task gets, by its id."""

    channels: dict[str, list[ChannelState]] = field(default_factory=dict)
    reassigned: dict[str, list[ReassignedStream]] = field(default_factory=dict)


def restore_in_flight(recorded: RecordedJob, graph: JobGraph) -> InFlightAssignment:
    """Assign what was in flight to tasks; raises ChannelsDiffer if there is no right way."""
    result = InFlightAssignment()
    _check_edges(recorded)
    for shape in recorded.metadata.edges:
        channels = _channels(recorded, shape)
        if not channels:
            continue
        edge = _edge_now(recorded, graph, shape)
        if _is_same(recorded, graph, shape, edge):
            for vertex, subtask, channel in channels:
                new = edge.target if vertex == shape.target else edge.source
                result.channels.setdefault(task_id(new, subtask), []).append(channel)
        else:
            streams = _streams(recorded, shape, channels)
            for consumer, stream in _reassigned(recorded, graph, shape, edge, streams):
                result.reassigned.setdefault(task_id(edge.target, consumer), []).append(stream)
    return result


_Found: TypeAlias = list[tuple[int, int, ChannelState]]
"""Vertex, subtask, and one of its channels or subpartitions that holds something."""


def _check_edges(recorded: RecordedJob) -> None:
    edges = recorded.metadata.edges
    inputs = {(edge.target, edge.gate) for edge in edges}
    outputs = {(edge.source, edge.output) for edge in edges}
    for vertex in recorded.vertices.values():
        for task in vertex.tasks:
            for channel in task.channels:
                if (vertex.id, channel.index) not in (inputs if channel.is_input else outputs):
                    raise CheckpointUnsound(
                        recorded.metadata.checkpoint,
                        f"task {task.task} holds records in flight of an edge that it has not",
                    )


def _channels(recorded: RecordedJob, shape: EdgeShape) -> _Found:
    found: _Found = []
    for vertex, is_input, index in (
        (shape.target, True, shape.gate),
        (shape.source, False, shape.output),
    ):
        tasks = recorded.vertices[vertex].tasks if vertex in recorded.vertices else ()
        found += [
            (vertex, task.subtask, channel)
            for task in tasks
            for channel in task.channels
            if channel.pieces and (channel.is_input, channel.index) == (is_input, index)
        ]
    return found


def _edge_now(recorded: RecordedJob, graph: JobGraph, shape: EdgeShape) -> JobEdge:
    """The edge that leads from the same chain to the same chain."""
    source, target = (recorded.vertices.get(vertex) for vertex in (shape.source, shape.target))
    if source is None or target is None:
        raise CheckpointUnsound(
            recorded.metadata.checkpoint, "an edge of it joins vertices that it has not"
        )
    chains = {
        tuple(spec.uid for spec in vertex.chain.operators): vertex.id for vertex in graph.vertices
    }
    ends = chains.get(source.uids), chains.get(target.uids)
    for edge in graph.edges:
        here = edge.output, edge.gate, edge.tag
        if (edge.source, edge.target) == ends and here == (shape.output, shape.gate, shape.tag):
            return edge
    gone = [vertex.names for vertex, end in zip((source, target), ends, strict=True) if end is None]
    if gone:
        problem = f"the chain {gone[0]!r} is not there any more"
    else:
        problem = "they are not connected as they were"
    raise _refused(recorded, shape, problem)


def _is_same(recorded: RecordedJob, graph: JobGraph, shape: EdgeShape, edge: JobEdge) -> bool:
    """Whether every channel stands for the same as before."""
    if (shape.ship, shape.pointwise) != (edge.ship, edge.pointwise):
        return False
    source, target = recorded.vertices[shape.source], recorded.vertices[shape.target]
    reader = graph.vertices[edge.target]
    is_as_wide = (source.parallelism, target.parallelism) == (
        graph.vertices[edge.source].parallelism,
        reader.parallelism,
    )
    return is_as_wide and (edge.ship != "HASH" or target.max_parallelism == reader.max_parallelism)


def _streams(recorded: RecordedJob, shape: EdgeShape, channels: _Found) -> Streams:
    """What the consumer had got already comes before what the producer still had."""
    source, target = recorded.vertices[shape.source], recorded.vertices[shape.target]
    wiring = Wiring(source.parallelism, target.parallelism, shape.pointwise)
    streams: Streams = {}
    for vertex, subtask, channel in sorted(channels, key=lambda found: not found[2].is_input):
        is_input = channel.is_input
        partners = wiring.producers_of(subtask) if is_input else wiring.consumers_of(subtask)
        if channel.channel >= len(partners):
            raise CheckpointUnsound(
                recorded.metadata.checkpoint,
                f"subtask {subtask} of {recorded.vertices[vertex].names!r} holds records in "
                f"flight of a channel that it has not",
            )
        partner = partners[channel.channel]
        ends = (partner, subtask) if is_input else (subtask, partner)
        streams[ends] = streams.get(ends, ()) + channel.pieces
    return dict(sorted(streams.items()))


def _reassigned(
    recorded: RecordedJob, graph: JobGraph, shape: EdgeShape, edge: JobEdge, streams: Streams
) -> Iterable[tuple[int, ReassignedStream]]:
    """New consumers and what they get."""
    if edge.ship == "FORWARD":
        problem = "each task forwards to the one with its own index, of which there is another now"
        raise _refused(recorded, shape, problem)
    if (shape.ship == "BROADCAST") != (edge.ship == "BROADCAST"):
        raise _refused(recorded, shape, f"they go by {edge.ship} now, and went by {shape.ship}")
    target = recorded.vertices[shape.target]
    consumers = graph.vertices[edge.target].parallelism
    for (_, old), pieces in streams.items():
        routed = edge.ship in ("HASH", "CUSTOM")
        stream = ReassignedStream(edge.gate, edge.source, edge.output, routed, pieces)
        if edge.ship == "BROADCAST":  # a new task begins with the state of the same old one
            chosen = [new for new in range(consumers) if new % target.parallelism == old]
        elif edge.ship == "GLOBAL":
            chosen = [0]
        elif routed:
            chosen = _readers(graph, shape, edge, target, old)
        else:
            chosen = [old % consumers]
        yield from ((new, stream) for new in chosen)


def _readers(
    graph: JobGraph, shape: EdgeShape, edge: JobEdge, target: RecordedVertex, old: int
) -> list[int]:
    """New consumers that may own a key that was in flight to an old one."""
    now = graph.vertices[edge.target]
    everybody = [*range(now.parallelism)]
    if (shape.ship, edge.ship) != ("HASH", "HASH") or target.max_parallelism != now.max_parallelism:
        return everybody
    held = groups_of(old, target.parallelism, target.max_parallelism)
    return [
        new
        for new in everybody
        for own in [groups_of(new, now.parallelism, now.max_parallelism)]
        if own.start < held.stop and held.start < own.stop
    ]


def _refused(recorded: RecordedJob, shape: EdgeShape, problem: str) -> ChannelsDiffer:
    source, target = recorded.vertices[shape.source], recorded.vertices[shape.target]
    edge = f"from {source.names!r} to {target.names!r}"
    return ChannelsDiffer(recorded.metadata.checkpoint, edge, problem)
