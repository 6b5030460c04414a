"""State assignment: from a checkpoint and a planned job to what each task gets back.

Operators find their state by uid, whatever chain they are in now. Law: every key group goes to the
task that owns it, everything that a sink has prepared to one task, and no state is dropped in
silence. A vertex that had finished is not run again. A vertex that had finished in part is run
without its finished tasks if it is unchanged, and in full otherwise.

An unaligned checkpoint also has records that were in flight. What stood in a channel of a consumer,
and after it in the subpartition of its producer, is one stream of elements. If both sides are
unchanged, it is restored in place. Otherwise the streams go to the consumers, which read them
before all other input. Law: every record comes once to the task that the edge would send it to now,
or the checkpoint is refused.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from headgate.base import errors
from headgate.base.checkpoints import (
    ChannelState,
    DatabaseRestore,
    EdgeShape,
    Metadata,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.core.operators.split_discovery import dealt_state
from headgate.core.state.keys import groups_of
from headgate.plan.execution_graph import Wiring, task_id, wiring_of
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.plan.recorded_job import RecordedJob, RecordedOperator, RecordedVertex
from headgate.plan.stream_graph import StreamGraph, is_place, stable_uids


def restore(
    metadata: Metadata,
    graph: JobGraph,
    *,
    ignores_unclaimed: bool = False,
    without_in_flight: bool = False,
) -> dict[str, TaskRestore]:
    """What each task of the job gets, by its id; raises errors.RestoreRefused.

    ``without_in_flight``: leave out the records that were in flight.
    """
    recorded = RecordedJob(metadata)
    _check_places(recorded, graph)
    _check_claims(recorded, graph, ignores_unclaimed)
    finished = _finished(recorded, graph)
    dealt = _dealt(metadata, graph)
    in_flight = InFlightAssignment() if without_in_flight else restore_in_flight(recorded, graph)
    restores: dict[str, TaskRestore] = {}
    for vertex in graph.vertices:
        _check_vertex(recorded, vertex)
        for subtask in range(vertex.parallelism):
            task = task_id(vertex.id, subtask)
            restores[task] = TaskRestore(
                task=task,
                checkpoint=metadata.checkpoint,
                operators=_operators(recorded, vertex, subtask, dealt),
                channels=tuple(in_flight.channels.get(task, ())),
                reassigned=tuple(in_flight.reassigned.get(task, ())),
                finished=finished[task],
            )
    return restores


# Whether the checkpoint fits.


def _check_places(recorded: RecordedJob, graph: JobGraph) -> None:
    """An operator that is still there by its name must not lose its place to another."""
    names = {spec.uid: spec.name for vertex in graph.vertices for spec in vertex.chain.operators}
    for uid, operator in recorded.operators.items():
        was, now = operator.name, names.get(uid, operator.name)
        is_another = now != was and was in names.values()
        if is_another and operator.has_state and is_place(uid):
            raise errors.PlacesMoved(recorded.metadata.checkpoint, was, now, uid)


def _check_claims(recorded: RecordedJob, graph: JobGraph, ignores_unclaimed: bool) -> None:
    metadata = recorded.metadata
    there = {spec.uid for vertex in graph.vertices for spec in vertex.chain.operators}
    stateful = [operator for operator in recorded.operators.values() if operator.has_state]
    unclaimed = [operator for operator in stateful if operator.uid not in there]
    counting = [operator.uid for operator in stateful] or [*recorded.operators]
    if not any(uid in there for uid in counting):
        raise errors.ProgramDiffers(metadata.checkpoint, metadata.name)
    if unclaimed and not ignores_unclaimed:
        names = tuple(
            f"operator {operator.name!r} (uid {operator.uid!r})" for operator in unclaimed
        )
        raise errors.StateUnclaimed(metadata.checkpoint, names)


def _check_vertex(recorded: RecordedJob, vertex: JobVertex) -> None:
    checkpoint = recorded.metadata.checkpoint
    for place, spec in enumerate(vertex.chain.operators):
        operator = recorded.operators.get(spec.uid)
        if operator is None:
            continue
        had, has = operator.vertex.max_parallelism, vertex.max_parallelism
        if operator.is_keyed and had != has:
            raise errors.KeyGroupsDiffer(checkpoint, spec.name, had, has)
        if any(state.source for state in operator.states) and (place or not vertex.is_source):
            raise errors.RestoreRefused(
                checkpoint,
                f"operator {spec.name!r} was a source there, with the uid {spec.uid!r}, and is "
                f"none now; give it another uid",
            )


# Who had finished.


def _finished(recorded: RecordedJob, graph: JobGraph) -> dict[str, bool]:
    """For each task whether nothing of it is to be run."""
    finished: dict[str, bool] = {}
    whole: dict[int, bool] = {}
    for vertex in graph.vertices:  # in topological order
        whole[vertex.id] = _has_finished(recorded, vertex)
        if whole[vertex.id]:
            for edge in graph.inputs_of(vertex.id):
                if not whole[edge.source]:
                    before = graph.vertices[edge.source].name
                    raise errors.FinishedAlready(
                        recorded.metadata.checkpoint,
                        vertex.name,
                        f"{before!r}, which it reads from, had not",
                    )
        for subtask in range(vertex.parallelism):
            finished[task_id(vertex.id, subtask)] = whole[vertex.id] or (
                _had_finished(recorded, vertex, subtask)
                and all(finished[task] for task in _producers(graph, vertex, subtask))
            )
    return finished


def _has_finished(recorded: RecordedJob, vertex: JobVertex) -> bool:
    """Whether all of a vertex had; its operators must agree."""
    specs = vertex.chain.operators
    known = [recorded.operators.get(spec.uid) for spec in specs]
    flags = [operator is not None and operator.vertex.has_finished for operator in known]
    if any(flags) and not all(flags):
        ended, other = specs[flags.index(True)].name, specs[flags.index(False)].name
        raise errors.FinishedAlready(
            recorded.metadata.checkpoint,
            ended,
            f"{other!r}, which shares its task now, had not",
        )
    return all(flags)


def _had_finished(recorded: RecordedJob, vertex: JobVertex, subtask: int) -> bool:
    """Whether the very same task had."""
    first = recorded.operators.get(vertex.chain.operators[0].uid)
    if first is None or first.vertex.parallelism != vertex.parallelism:
        return False
    is_same = first.vertex.uids == tuple(spec.uid for spec in vertex.chain.operators)
    return is_same and first.vertex.tasks[subtask].finished


def _producers(graph: JobGraph, vertex: JobVertex, subtask: int) -> list[str]:
    return [
        task_id(edge.source, producer)
        for edge in graph.inputs_of(vertex.id)
        for producer in wiring_of(graph.vertices, edge).producers_of(subtask)
    ]


# What each operator gets.


def _dealt(metadata: Metadata, graph: JobGraph) -> dict[str, Piece]:
    """Splits that the driver held of sources whose tasks now get all at the start, by uid."""
    assigned = [graph.vertices[vertex].chain.operators[0].uid for vertex in graph.discoveries]
    there = [spec.uid for vertex in graph.vertices for spec in vertex.chain.operators]
    dealt = {}
    for state in metadata.sources:
        if state.uid in there and state.uid not in assigned:
            try:
                data = dealt_state(state)
            except errors.StateBroken as error:
                name = f"source {state.name!r}"
                raise errors.RestoreRefused(metadata.checkpoint, f"{name}: {error}") from error
            dealt[state.uid] = Piece("", 0, len(data), zlib.crc32(data), data)
    return dealt


def _operators(
    recorded: RecordedJob, vertex: JobVertex, subtask: int, dealt: Mapping[str, Piece]
) -> tuple[OperatorRestore, ...]:
    """``dealt``: splits that the driver held of sources whose tasks now get all at the start."""
    found: list[OperatorRestore] = []
    for spec in vertex.chain.operators:
        operator = recorded.operators.get(spec.uid)
        if operator is None:
            found.append(OperatorRestore(spec.uid))
            continue
        own = groups_of(subtask, vertex.parallelism, vertex.max_parallelism)
        found.append(
            OperatorRestore(
                uid=spec.uid,
                keyed=_keyed(recorded, operator, own),
                databases=_databases(operator, own),
                plain=_plain(operator, subtask, vertex.parallelism),
                source=_all(
                    (
                        *(state.source for state in operator.states),
                        *((dealt[spec.uid],) if spec.uid in dealt else ()),
                    )
                ),
                sinks=tuple(
                    state.sink
                    for old, state in enumerate(operator.states)
                    if state.sink is not None and old % vertex.parallelism == subtask
                ),
                shapes=operator.shapes,
            )
        )
    return tuple(found)


def _keyed(recorded: RecordedJob, operator: RecordedOperator, own: range) -> dict[int, Piece]:
    pieces: dict[int, Piece] = {}
    for old, held in _ranges(operator).items():
        there: Mapping[int, Piece] = operator.states[old].keyed
        if any(group not in held for group in there):
            raise errors.CheckpointUnsound(
                recorded.metadata.checkpoint,
                f"task {operator.vertex.tasks[old].task} has key groups of another task",
            )
        if _overlap(held, own):
            pieces.update((group, there[group]) for group in own if group in there)
    return pieces


def _databases(operator: RecordedOperator, own: range) -> tuple[DatabaseRestore, ...]:
    return tuple(
        DatabaseRestore(held.start, held.stop, operator.states[old].files)
        for old, held in _ranges(operator).items()
        if operator.states[old].files and _overlap(held, own)
    )


def _plain(operator: RecordedOperator, subtask: int, parallelism: int) -> tuple[Piece | None, ...]:
    pieces = tuple(state.plain for state in operator.states)
    is_own = all(state.plain is None or state.plain_is_own for state in operator.states)
    if is_own and len(pieces) == parallelism:
        pieces = tuple(piece if old == subtask else None for old, piece in enumerate(pieces))
    return _all(pieces)


def _all(pieces: tuple[Piece | None, ...]) -> tuple[Piece | None, ...]:
    return pieces if any(piece is not None for piece in pieces) else ()


def _ranges(operator: RecordedOperator) -> dict[int, range]:
    """The key groups of each old task."""
    vertex = operator.vertex
    return {
        old: groups_of(old, vertex.parallelism, vertex.max_parallelism)
        for old in range(vertex.parallelism)
    }


def _overlap(groups: range, others: range) -> bool:
    return groups.start < others.stop and others.start < groups.stop


def inherit_groups(graph: StreamGraph, metadata: Metadata) -> StreamGraph:
    """The program with the key groups of the checkpoint; raises errors.CheckpointUnsound.

    Law: what a user has set stays; any other operator that the checkpoint knows keeps its number if
    that is enough for its tasks, so that neither state nor chains depend on a default.
    """
    operators, uids = RecordedJob(metadata).operators, stable_uids(graph)
    nodes = dict(graph.nodes)
    for number, node in graph.nodes.items():
        operator = operators.get(uids[number])
        if node.default_groups and operator is not None:
            had = operator.vertex.max_parallelism
            if had >= node.parallelism:
                nodes[number] = replace(node, max_parallelism=had)
    return replace(graph, nodes=nodes)


# Records that were in flight.


Streams: TypeAlias = dict[tuple[int, int], tuple[Piece, ...]]
"""Pieces by producer and consumer."""


@dataclass(slots=True)
class InFlightAssignment:
    """What each task gets, by its id."""

    channels: dict[str, list[ChannelState]] = field(default_factory=dict)
    reassigned: dict[str, list[ReassignedStream]] = field(default_factory=dict)


def restore_in_flight(recorded: RecordedJob, graph: JobGraph) -> InFlightAssignment:
    """Assign what was in flight to tasks; raises errors.ChannelsDiffer if there is no right way."""
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
                    raise errors.CheckpointUnsound(
                        recorded.metadata.checkpoint,
                        f"task {task.task} has records in flight of an edge that is missing in it",
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
        raise errors.CheckpointUnsound(
            recorded.metadata.checkpoint, "one of its edges joins vertices that are missing in it"
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
            raise errors.CheckpointUnsound(
                recorded.metadata.checkpoint,
                f"subtask {subtask} of {recorded.vertices[vertex].names!r} holds records in "
                f"flight of a channel that does not exist",
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
        if _overlap(own, held)
    ]


def _refused(recorded: RecordedJob, shape: EdgeShape, problem: str) -> errors.ChannelsDiffer:
    source, target = recorded.vertices[shape.source], recorded.vertices[shape.target]
    edge = f"from {source.names!r} to {target.names!r}"
    return errors.ChannelsDiffer(recorded.metadata.checkpoint, edge, problem)
