"""Restoring: what each task of a program gets of a checkpoint, and what is refused."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from headgate.base.checkpoints import (
    Metadata,
    OperatorRestore,
    OperatorState,
    SourceState,
    TaskRestore,
)
from headgate.base.errors import (
    CheckpointUnsound,
    FinishedAlready,
    KeyGroupsDiffer,
    PlacesMoved,
    PlanInvalid,
    ProgramDiffers,
    RestoreRefused,
    StateUnclaimed,
)
from headgate.core.operators.source_splits import identify_splits, pickled_position
from headgate.core.operators.split_discovery import (
    SplitDiscovery,
    dealt_state,
    pickled_splits,
)
from headgate.core.state.keys import groups_of
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.plan import ship_strategies as ships
from headgate.plan.execution_graph import build_execution_graph, planned_sources, task_id
from headgate.plan.job_graph import JobGraph
from headgate.plan.state_assignment import restore
from headgate.plan.stream_graph import Chaining, StreamGraph
from tests.plan.programs import Program, key_of, programs, reads
from tests.plan.recording import piece, planned, recording, text_of


def words(
    readers: int = 2, counters: int = 2, groups: int = 8, **counting: Any
) -> tuple[StreamGraph, JobGraph]:
    """A source, and a keyed operator with a sink in its chain."""
    program = Program()
    source = program.source(uid="read", parallelism=readers)
    counting = {"uid": "count", "parallelism": counters, "max_parallelism": groups, **counting}
    count = program.operator("count", reads(source, ships.hash_by(key_of)), **counting)
    program.sink("sink", count, uid="write", parallelism=counters, max_parallelism=groups)
    return program.graph, planned(program.graph)


def of(restores: dict[str, TaskRestore], uid: str) -> list[OperatorRestore]:
    """What the tasks of an operator get, by subtask."""
    return [
        operator for task in restores.values() for operator in task.operators if operator.uid == uid
    ]


# Every program, with every parallelism.


@given(programs(), st.data())
def test_all_state_goes_where_it_belongs(graph: StreamGraph, data: st.DataObject) -> None:
    job = planned(graph)
    metadata = recording(job)
    again = rescaled(graph, data)
    try:
        new = planned(again)
    except PlanInvalid:
        assume(False)
    restores = restore(metadata, new)
    assert list(restores) == [
        task_id(vertex.id, subtask)
        for vertex in new.vertices
        for subtask in range(vertex.parallelism)
    ]
    for vertex in new.vertices:
        for place, spec in enumerate(vertex.chain.operators):
            got = of(restores, spec.uid)
            assert len(got) == vertex.parallelism
            sinks: Counter[str] = Counter()
            for subtask, operator in enumerate(got):
                assert restores[task_id(vertex.id, subtask)].operators[place] is operator
                own = groups_of(subtask, vertex.parallelism, vertex.max_parallelism)
                assert {group: text_of(p) for group, p in operator.keyed.items()} == {
                    group: f"{spec.uid} group {group}" for group in own
                }
                covered = {
                    group for held in operator.databases for group in range(held.first, held.end)
                }
                assert covered >= {*own}
                sinks.update(map(text_of, operator.sinks))
            old = old_parallelism(metadata, spec.uid)
            assert sinks == Counter(f"{spec.uid} sink {number}" for number in range(old))
            assert all(
                len(operator.plain) == old and None not in operator.plain for operator in got
            )


@given(programs())
def test_the_same_program_gets_back_what_it_left(graph: StreamGraph) -> None:
    job = planned(graph)
    metadata = recording(job)
    restores = restore(metadata, job)
    for task in metadata.tasks:
        got = restores[task.task]
        assert not got.finished
        for left, operator in zip(task.operators, got.operators, strict=True):
            assert operator.keyed == left.keyed
            assert operator.sinks == (left.sink,)
            assert operator.plain[task.subtask] == left.plain
            assert [held.files for held in operator.databases] == [left.files]


@given(programs(), st.data())
def test_who_had_finished_stands_behind_those_who_had(
    graph: StreamGraph, data: st.DataObject
) -> None:
    job = planned(graph)
    done: list[str] = []
    for task in recording(job).tasks:  # in topological order
        inputs = [edge.source for edge in job.inputs_of(task.vertex)]
        before = [task.task for task in recording(job).tasks if task.vertex in inputs]
        if all(task in done for task in before) and data.draw(st.booleans()):
            done.append(task.task)
    restores = restore(recording(job, finished=tuple(done)), job)
    assert [task for task, restored in restores.items() if restored.finished] == done


def rescaled(graph: StreamGraph, data: st.DataObject) -> StreamGraph:
    again = StreamGraph(graph.job_name, batch=graph.batch, chaining=graph.chaining)
    again.edges = graph.edges
    for number, node in graph.nodes.items():
        parallelism = data.draw(st.sampled_from([node.parallelism, 1, 2, 3, 4, 7]))
        again.nodes[number] = replace(node, parallelism=parallelism)
    return again


def old_parallelism(metadata: Metadata, uid: str) -> int:
    return sum(any(operator.uid == uid for operator in task.operators) for task in metadata.tasks)


# One program.


def test_the_groups_of_three_tasks_go_to_two() -> None:
    _, old = words(counters=3, groups=8)
    _, new = words(counters=2, groups=8)
    restores = restore(recording(old), new)
    assert [sorted(operator.keyed) for operator in of(restores, "count")] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    databases = [
        [(held.first, held.end) for held in operator.databases]
        for operator in of(restores, "count")
    ]
    assert databases == [[(0, 3), (3, 6)], [(3, 6), (6, 8)]]
    assert [list(map(text_of, operator.sinks)) for operator in of(restores, "write")] == [
        ["write sink 0", "write sink 2"],
        ["write sink 1"],
    ]


def test_lists_that_are_a_tasks_own_go_to_it_alone_while_the_parallelism_is_the_same() -> None:
    _, job = words()
    own = [
        OperatorState("read", "source", plain=piece(f"list {n}"), plain_is_own=True) for n in (0, 1)
    ]
    metadata = recording(job, states={"0.0": (own[0],), "0.1": (own[1],)})
    restores = restore(metadata, job)
    assert [operator.plain for operator in of(restores, "read")] == [
        (own[0].plain, None),
        (None, own[1].plain),
    ]
    _, wider = words(readers=3)
    for operator in of(restore(metadata, wider), "read"):
        assert operator.plain == (own[0].plain, own[1].plain)


def test_positions_of_a_source_go_to_all_its_tasks() -> None:
    _, job = words()
    left = OperatorState("read", "source", source=piece("splits 0"))
    metadata = recording(job, states={"0.0": (left,)}, finished=("0.1",))
    _, wider = words(readers=3)
    assert [operator.source for operator in of(restore(metadata, wider), "read")] == [
        (left.source, None)
    ] * 3


class Shelf(Source):
    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        raise AssertionError("nothing is read here")


def handing_out(readers: int) -> JobGraph:
    """The driver hands out the splits of the source."""
    graph, _ = words(readers=readers)
    listed = tuple(identify_splits(["a", "b", "c"]))
    graph.nodes[1].discovery = SplitDiscovery(Shelf(), "read", readers, listed)
    return planned(graph)


def held(*splits: str, position: object = ("listed", 2, b"")) -> SourceState:
    data = tuple(pickled_splits(splits))
    return SourceState("read", "source", pickled_position(position, "an enumerator"), data)


def test_splits_of_the_driver_go_to_the_driver_again() -> None:
    job = handing_out(2)
    metadata = structs.replace(recording(job), sources=(held("b", "c"),))
    wider = handing_out(3)
    restores = restore(metadata, wider)
    assert all(operator.source == () for operator in of(restores, "read"))
    execution = build_execution_graph(wider, "job", 0)
    (source,) = planned_sources(wider, execution, restores, metadata.sources)
    assert source.restored == held("b", "c") and source.by_demand
    assert source.slots == {"0.0": 0, "0.1": 1, "0.2": 2}


def test_tasks_that_had_finished_get_no_splits() -> None:
    job = handing_out(2)
    execution = build_execution_graph(job, "job", 0)
    restores = restore(recording(job, finished=("0.1",)), job)
    (source,) = planned_sources(job, execution, restores)
    assert list(source.slots) == ["0.0"] and source.restored is None
    over = {task: structs.replace(given, finished=True) for task, given in restores.items()}
    assert planned_sources(job, execution, over) == ()


def test_splits_of_the_driver_go_to_tasks_that_get_all_at_the_start() -> None:
    metadata = structs.replace(recording(handing_out(2)), sources=(held("b"),))
    _, dealing = words(readers=3)
    for operator in of(restore(metadata, dealing), "read"):
        assert len(operator.source) == 3
        extra = operator.source[2]
        assert extra is not None and extra.inline == dealt_state(held("b"))


def test_a_source_that_has_lost_its_enumerator_is_refused() -> None:
    metadata = structs.replace(recording(handing_out(2)), sources=(held(position=17),))
    _, dealing = words(readers=2)
    with pytest.raises(RestoreRefused, match="source 'source': it had an enumerator"):
        restore(metadata, dealing)


def test_an_operator_finds_its_state_in_another_chain() -> None:
    _, old = words()
    _, new = words(chaining=Chaining.NEVER)
    assert len(old.vertices) + 1 == len(new.vertices)
    restores = restore(recording(old), new)
    assert [operator.uid for operator in restores["1.0"].operators] == ["count"]
    assert [operator.uid for operator in restores["2.0"].operators] == ["write"]
    assert all(operator.keyed for operator in of(restores, "write"))


def test_a_new_operator_begins_with_nothing() -> None:
    graph, old = words()
    program = Program()
    program.graph = graph
    program.sink("another", 1, uid="new")
    new = planned(graph)
    assert of(restore(recording(old), new), "new") == [OperatorRestore("new")] * 2


def test_state_of_an_operator_that_is_gone_needs_a_permission() -> None:
    _, old = words()
    _, new = words(uid="renamed")
    with pytest.raises(StateUnclaimed, match=re.escape("operator 'count' (uid 'count')")) as error:
        restore(recording(old), new)
    assert "execution.state-recovery.ignore-unclaimed-state" in str(error.value)
    restores = restore(recording(old), new, ignores_unclaimed=True)
    assert of(restores, "renamed") == [OperatorRestore("renamed")] * 2
    assert all(operator.keyed for operator in of(restores, "read"))


def by_place(*names: str) -> JobGraph:
    """A straight line of operators without uids."""
    program = Program()
    before = program.source(uid="read")
    for name in names:
        before = program.operator(name, reads(before, ships.hash_by(key_of)))
    return planned(program.graph)


def test_an_operator_without_a_uid_does_not_get_the_state_of_its_neighbour() -> None:
    metadata = recording(by_place("count", "total"))
    with pytest.raises(PlacesMoved, match="where operator 'count' was there is 'clean' now") as no:
        restore(metadata, by_place("clean", "count", "total"))
    assert (no.value.operator, no.value.other) == ("count", "clean")


def test_an_operator_without_a_uid_may_get_another_name() -> None:
    metadata = recording(by_place("count", "total"))
    restores = restore(metadata, by_place("count", "sum"))
    assert all(operator.keyed for task in restores.values() for operator in task.operators[:1])


def test_an_operator_without_state_may_go() -> None:
    _, old = words()
    _, new = words(uid="renamed")
    kept = {
        task.task: task.operators for task in recording(old).tasks if task.task.startswith("0.")
    }
    restores = restore(recording(old, states=kept, blank=True), new)
    assert all(operator.keyed for operator in of(restores, "read"))


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("ignores_unclaimed", [False, True])
def test_a_checkpoint_of_another_program_is_refused(blank: bool, ignores_unclaimed: bool) -> None:
    _, old = words()
    program = Program("other")
    program.sink("sink", program.source(uid="here"), uid="there")
    with pytest.raises(ProgramDiffers, match="it is of job 'words' and has state of none"):
        restore(
            recording(old, blank=blank),
            planned(program.graph),
            ignores_unclaimed=ignores_unclaimed,
        )


def test_another_maximum_parallelism_is_refused_where_there_is_keyed_state() -> None:
    _, old = words(groups=8)
    _, new = words(groups=16)
    with pytest.raises(KeyGroupsDiffer, match=re.escape("call set_max_parallelism(8)")):
        restore(recording(old), new)
    restore(recording(old, blank=True), new)


def test_a_source_that_is_none_any_more_is_refused() -> None:
    _, old = words()
    left = {"0.0": (OperatorState("read", "source", source=piece("splits")),)}
    program = Program()
    program.operator("count", program.source(uid="new"), uid="read")
    with pytest.raises(RestoreRefused, match="operator 'count' was a source there"):
        restore(recording(old, states=left, blank=True), planned(program.graph))


# Tasks that had finished.


def test_a_vertex_that_had_finished_is_not_run_whatever_its_parallelism() -> None:
    _, old = words()
    _, new = words(readers=3)
    restores = restore(recording(old, finished=("0.0", "0.1")), new)
    assert [task for task, restored in restores.items() if restored.finished] == [
        "0.0",
        "0.1",
        "0.2",
    ]


def test_a_vertex_that_had_finished_in_part_runs_again_as_a_whole_with_another_parallelism() -> (
    None
):
    _, old = words()
    _, new = words(readers=3)
    restores = restore(recording(old, finished=("0.0",)), new)
    assert not any(restored.finished for restored in restores.values())


def test_what_had_finished_gets_no_new_input() -> None:
    graph, old = words()
    program = Program()
    program.graph = graph
    extra = program.source(uid="more")
    graph.edges.append(replace(reads(extra, ships.hash_by(key_of)), target=2))
    everything = tuple(task.task for task in recording(old).tasks)
    with pytest.raises(FinishedAlready, match="'Source: source', which it reads from, had not"):
        restore(recording(old, finished=everything), planned(graph))


def test_what_had_finished_shares_no_task_with_what_had_not() -> None:
    _, old = words(chaining=Chaining.NEVER)
    _, new = words()
    finished = ("0.0", "0.1", "1.0", "1.1")
    with pytest.raises(FinishedAlready, match="'sink', which shares its task now, had not"):
        restore(recording(old, finished=finished), new)


# What contradicts itself.


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda tasks: tasks[:-1], "the tasks of its vertex 1 contradict each other"),
        (lambda tasks: (*tasks, tasks[0]), "it has task 0.0 twice"),
        (
            lambda tasks: (
                *tasks[:-1],
                msgspec.structs.replace(tasks[-1], max_parallelism=9),
            ),
            "the tasks of its vertex 1 contradict each other",
        ),
        (
            lambda tasks: tuple(
                msgspec.structs.replace(
                    task, operators=tuple(OperatorState("read", "x") for _ in task.operators)
                )
                for task in tasks
            ),
            "it has the uid 'read' twice",
        ),
        (
            lambda tasks: (
                *tasks[:2],
                msgspec.structs.replace(tasks[2], operators=tasks[3].operators),
                msgspec.structs.replace(tasks[3], operators=tasks[2].operators),
            ),
            "task 1.0 has key groups of another task",
        ),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(spoil: Any, problem: str) -> None:
    _, job = words()
    whole = recording(job)
    with pytest.raises(CheckpointUnsound, match=problem):
        restore(msgspec.structs.replace(whole, tasks=spoil(whole.tasks)), job)
