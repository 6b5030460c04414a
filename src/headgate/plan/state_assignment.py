"""State assignment: from a checkpoint and a planned job to what each task gets back.

Operators find their state by uid, whatever chain they are in now. Law: every key group goes to the
task that owns it, everything that a sink has prepared to one task, and no state is dropped in
silence. A vertex that had finished is not run again. A vertex that had finished in part is run
without its finished tasks if it is unchanged, and in full otherwise.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace

from headgate.base.checkpoints import DatabaseRestore, Metadata, OperatorRestore, Piece, TaskRestore
from headgate.base.errors import (
    CheckpointUnsound,
    FinishedAlready,
    KeyGroupsDiffer,
    PlacesMoved,
    ProgramDiffers,
    RestoreRefused,
    StateBroken,
    StateUnclaimed,
)
from headgate.core.operators.split_discovery import dealt_state
from headgate.core.state.keys import groups_of
from headgate.plan.execution_graph import Wiring, task_id
from headgate.plan.in_flight_assignment import InFlightAssignment, restore_in_flight
from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.plan.recorded_job import RecordedJob, RecordedOperator
from headgate.plan.stream_graph import StreamGraph
from headgate.plan.uids import is_place, stable_uids


def restore(
    metadata: Metadata,
    graph: JobGraph,
    *,
    ignores_unclaimed: bool = False,
    without_in_flight: bool = False,
) -> dict[str, TaskRestore]:
    """What each task of the job gets, by its id; raises RestoreRefused.

    ``without_in_flight`` leaves the records behind that were on their way.
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
            raise PlacesMoved(recorded.metadata.checkpoint, was, now, uid)


def _check_claims(recorded: RecordedJob, graph: JobGraph, ignores_unclaimed: bool) -> None:
    metadata = recorded.metadata
    there = {spec.uid for vertex in graph.vertices for spec in vertex.chain.operators}
    stateful = [operator for operator in recorded.operators.values() if operator.has_state]
    unclaimed = [operator for operator in stateful if operator.uid not in there]
    counting = [operator.uid for operator in stateful] or [*recorded.operators]
    if not any(uid in there for uid in counting):
        raise ProgramDiffers(metadata.checkpoint, metadata.name)
    if unclaimed and not ignores_unclaimed:
        names = tuple(
            f"operator {operator.name!r} (uid {operator.uid!r})" for operator in unclaimed
        )
        raise StateUnclaimed(metadata.checkpoint, names)


def _check_vertex(recorded: RecordedJob, vertex: JobVertex) -> None:
    checkpoint = recorded.metadata.checkpoint
    for place, spec in enumerate(vertex.chain.operators):
        operator = recorded.operators.get(spec.uid)
        if operator is None:
            continue
        had, has = operator.vertex.max_parallelism, vertex.max_parallelism
        if operator.is_keyed and had != has:
            raise KeyGroupsDiffer(checkpoint, spec.name, had, has)
        if any(state.source for state in operator.states) and (place or not vertex.is_source):
            raise RestoreRefused(
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
                    raise FinishedAlready(
                        recorded.metadata.checkpoint,
                        vertex.name,
                        f"{before!r}, which stands before it, had not",
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
        raise FinishedAlready(
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
        for producer in Wiring(
            graph.vertices[edge.source].parallelism, vertex.parallelism, edge.pointwise
        ).producers_of(subtask)
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
            except StateBroken as error:
                name = f"source {state.name!r}"
                raise RestoreRefused(metadata.checkpoint, f"{name}: {error}") from error
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
            raise CheckpointUnsound(
                recorded.metadata.checkpoint,
                f"task {operator.vertex.tasks[old].task} has key groups of another",
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
    """The program with the key groups of the checkpoint; raises CheckpointUnsound.

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
