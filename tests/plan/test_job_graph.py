"""The job graph: what is chained, what crosses, what everything is called, what is refused."""

import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from headgate.base.elements import PickleSerializer
from headgate.base.errors import PlanInvalid
from headgate.core.chain.spec import ToNetwork, ToOperator
from headgate.core.egress.partition import PartitionKind
from headgate.plan import ship_strategies as ships
from headgate.plan.drawing import draw_svg
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import Chaining, StreamGraph
from tests.plan.programs import Program, key_of, programs, reads

EdgeFacts = tuple[int, int, int, str | None, frozenset[str] | None]


def names(graph: StreamGraph) -> list[str]:
    return [vertex.name for vertex in build_job_graph(graph).vertices]


def pair(source: dict[str, Any], target: dict[str, Any], **settings: Any) -> StreamGraph:
    program = Program(**settings)
    program.sink("sink", program.source(**source), **target)
    return program.graph


# Every program.


@given(programs())
def test_an_outline_looks_the_same_and_holds_no_function(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    outline = job.outline()
    assert draw_svg(outline) == draw_svg(job)
    assert outline.describe() == job.describe()
    assert outline.edges == job.edges
    for vertex in outline.vertices:
        assert not vertex.chain.partitions and not any(vertex.gate_serializers)
        for operator in vertex.chain.operators:
            assert not operator.selectors and operator.types is None
            with pytest.raises(AssertionError, match="cannot be run"):
                operator.make()


@given(programs())
def test_every_edge_is_in_one_chain_or_is_one_job_edge(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    chained, crossing = edges_of(job)
    facts = Counter((e.source, e.target, e.input, e.tag, e.selected) for e in graph.edges)
    assert Counter(chained) + Counter(crossing) == facts
    assert len(crossing) == len(job.edges)


@given(programs())
def test_chains_keep_to_the_rules(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    chained, _ = edges_of(job)
    inputs = Counter(edge.target for edge in graph.edges)
    expected = Counter(
        (edge.source, edge.target, edge.input, edge.tag, edge.selected)
        for edge in graph.edges
        for source, target in [(graph.nodes[edge.source], graph.nodes[edge.target])]
        if inputs[edge.target] == 1
        and graph.chaining
        and edge.ship.name == "FORWARD"
        and source.chaining is not Chaining.NEVER
        and target.chaining is Chaining.ALWAYS
        and (source.parallelism, source.max_parallelism, source.group)
        == (target.parallelism, target.max_parallelism, target.group)
    )
    assert Counter(chained) == expected


@given(programs())
def test_vertices_hold_together(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    assert [vertex.id for vertex in job.vertices] == list(range(len(job.vertices)))
    assert all(edge.source < edge.target for edge in job.edges)
    held = [spec.id for vertex in job.vertices for spec in vertex.chain.operators]
    assert sorted(held) == sorted(graph.nodes)
    for vertex in job.vertices:
        for place, spec in enumerate(vertex.chain.operators):
            node = graph.nodes[spec.id]
            assert (vertex.parallelism, vertex.group) == (node.parallelism, node.group)
            assert vertex.max_parallelism == node.max_parallelism
            assert all(to.operator > place for to in spec.outputs if isinstance(to, ToOperator))
        inputs, outputs = job.inputs_of(vertex.id), job.outputs_of(vertex.id)
        assert [edge.gate for edge in inputs] == list(range(len(inputs)))
        assert [edge.output for edge in outputs] == list(range(len(vertex.chain.partitions)))
        assert tuple(edge.input for edge in inputs) == vertex.gate_inputs
        assert vertex.gate_inputs == tuple(sorted(vertex.gate_inputs))
        assert len(vertex.gate_serializers) == len(vertex.gate_inputs)
        assert vertex.is_source == (not inputs)


@given(programs())
def test_a_job_graph_is_the_same_each_time(graph: StreamGraph) -> None:
    first, again = build_job_graph(graph), build_job_graph(graph)
    assert first.describe() == again.describe()
    assert first.edges == again.edges
    assert pickle.dumps(first) == pickle.dumps(again)


# What is chained.


@pytest.mark.parametrize(
    ("source", "target", "settings"),
    [
        ({}, {"parallelism": 3}, {}),
        ({}, {"max_parallelism": 64}, {}),
        ({}, {"group": "gpu"}, {}),
        ({}, {"chaining": Chaining.HEAD}, {}),
        ({}, {"chaining": Chaining.NEVER}, {}),
        ({"chaining": Chaining.NEVER}, {}, {}),
        ({}, {}, {"chaining": False}),
    ],
)
def test_anything_that_sets_two_operators_apart_ends_a_chain(
    source: dict[str, Any], target: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert names(pair(source, target, **settings)) == ["Source: source", "Sink: sink"]


@pytest.mark.parametrize(
    ("source", "settings"),
    [({}, {}), ({"chaining": Chaining.HEAD}, {}), ({}, {"batch": True})],
)
def test_operators_with_the_same_tasks_share_them(
    source: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert names(pair(source, {}, **settings)) == ["Source: source -> Sink: sink"]


def test_a_chosen_forward_is_chained_and_other_ships_are_not() -> None:
    program = Program()
    source = program.source()
    program.sink("near", reads(source, ships.forward()))
    program.sink("far", reads(source, ships.rebalance()))
    assert names(program.graph) == ["Source: source -> Sink: near", "Sink: far"]


def test_a_union_begins_a_chain_even_of_a_stream_with_itself() -> None:
    program = Program()
    source = program.source()
    program.sink("sink", source, source)
    job = build_job_graph(program.graph)
    assert [vertex.name for vertex in job.vertices] == ["Source: source", "Sink: sink"]
    assert [(edge.output, edge.gate, edge.input) for edge in job.edges] == [(0, 0, 0), (1, 1, 0)]
    assert job.vertices[1].gate_inputs == (0, 0)


def test_a_chain_may_fork() -> None:
    program = Program()
    source = program.source("words")
    split = program.operator("map", source)
    program.sink("print", program.operator("filter", split))
    program.sink("late", reads(split, tag="late"))
    program.sink("far", reads(split, ships.hash_by(key_of), selected=frozenset({"odd"})))
    job = build_job_graph(program.graph)
    assert [vertex.name for vertex in job.vertices] == [
        "Source: words -> map -> (filter -> Sink: print, Sink: late)",
        "Sink: far",
    ]
    operators = job.vertices[0].chain.operators
    assert [spec.name for spec in operators] == ["words", "map", "filter", "print", "late"]
    assert operators[1].outputs == (
        ToOperator(2),
        ToOperator(4, tag="late"),
        ToNetwork(0, selected=frozenset({"odd"})),
    )


def test_a_very_long_chain_is_no_trouble() -> None:
    program = Program()
    last = program.source()
    for number in range(3000):
        last = program.operator(str(number), last)
    (vertex,) = build_job_graph(program.graph).vertices
    assert len(vertex.chain.operators) == 3001
    assert vertex.name.endswith(" -> 2998 -> 2999")


# What crosses.


def test_gates_stand_by_input_whatever_the_order_of_writing() -> None:
    program = Program()
    left, right = program.source("left"), program.source("right")
    program.sink("join", reads(left, number=1), reads(right, number=0), reads(left, number=1))
    job = build_job_graph(program.graph)
    assert job.vertices[2].gate_inputs == (0, 1, 1)
    assert [(edge.source, edge.gate) for edge in job.edges] == [(0, 1), (0, 2), (1, 0)]


def test_a_partition_has_the_settings_of_its_operator() -> None:
    serializer = PickleSerializer()
    program = Program(buffer_timeout_ms=70, object_reuse=True)
    source = program.source(buffer_timeout_ms=0, serializer=serializer)
    apart = program.operator("apart", reads(source, ships.shuffle()))
    program.sink("late", reads(source, ships.rebalance(), tag="late"))
    program.sink("sink", reads(apart, ships.global_()))
    first, second, *_ = vertices = build_job_graph(program.graph).vertices
    assert first.chain.object_reuse
    assert [partition.timeout_ms for partition in first.chain.partitions] == [0, 0]
    assert [partition.timeout_ms for partition in second.chain.partitions] == [70]
    # A serializer is for the records of the main output; both ends must know of it.
    assert [partition.serializer for partition in first.chain.partitions] == [serializer, None]
    assert [vertex.gate_serializers for vertex in vertices] == [(), (serializer,), (None,), (None,)]


def test_batch_writes_everything_before_it_is_read() -> None:
    for batch, kind, timeout_ms in [
        (False, PartitionKind.PIPELINED_BOUNDED, 100),
        (True, PartitionKind.BLOCKING, -1),
    ]:
        job = build_job_graph(pair({}, {"parallelism": 1}, batch=batch))
        assert job.batch == batch
        assert [edge.kind for edge in job.edges] == [kind]
        assert job.vertices[0].chain.partitions[0].timeout_ms == timeout_ms


def test_edges_tell_how_they_ship() -> None:
    program = Program()
    source = program.source()
    program.sink("a", source, parallelism=3)
    program.sink("b", reads(source, ships.rescale()), parallelism=3)
    program.sink("c", source, group="other")
    assert [(edge.ship, edge.pointwise) for edge in build_job_graph(program.graph).edges] == [
        ("REBALANCE", False),
        ("RESCALE", True),
        ("FORWARD", True),
    ]


def test_keys_go_by_the_key_groups_of_the_vertex_that_reads_them() -> None:
    program = Program()
    source = program.source()
    program.sink("sink", reads(source, ships.hash_by(key_of)), max_parallelism=2)
    router = build_job_graph(program.graph).vertices[0].chain.partitions[0].make_router(0)
    with pytest.raises(AssertionError, match="more channels than key groups"):
        router.set_up(3)


def test_a_description_has_a_line_for_each_vertex() -> None:
    program = Program("word count", parallelism=1)
    source = program.source("words")
    count = program.operator("count", reads(source, ships.hash_by(key_of)), parallelism=4)
    program.sink("print", reads(count, number=1, tag="late"))
    assert build_job_graph(program.graph).describe() == (
        "job graph of 'word count', streaming\n"
        "vertex  operators      tasks  slot group  reads\n"
        "0       Source: words  x1     default\n"
        "1       count          x4     default     0 HASH\n"
        "2       Sink: print    x1     default     1 REBALANCE to input 1 of side output 'late'\n"
    )


# What is refused.


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            StreamGraph("empty"),
            "job 'empty' has no operators, so there is nothing to execute; "
            "add a source and what reads it before you execute the job",
        ),
        (
            pair({"parallelism": 0}, {}),
            "operator 'source' has parallelism 0; set_parallelism() takes 1 or more",
        ),
        (
            pair({}, {"max_parallelism": 40_000}),
            "operator 'sink' has max parallelism 40000; set_max_parallelism() takes 1 to 32768",
        ),
        (
            pair({}, {"parallelism": 5, "max_parallelism": 4}),
            "operator 'sink' has parallelism 5, above its max parallelism 4; lower the one with "
            "set_parallelism() or raise the other with set_max_parallelism()",
        ),
        (
            pair({"uid": "x"}, {"uid": "x"}),
            "operator 'sink' has the uid 'x', which 'source' has already; "
            "give each operator a uid of its own",
        ),
    ],
)
def test_a_program_that_cannot_run_is_refused_by_name(graph: StreamGraph, message: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        build_job_graph(graph)
    assert str(caught.value) == message


def test_forward_to_another_parallelism_is_refused() -> None:
    program = Program()
    program.sink("sink", reads(program.source(), ships.forward()), parallelism=1)
    with pytest.raises(PlanInvalid, match="'sink' has parallelism 1, but 'source', .* has 2"):
        build_job_graph(program.graph)


def edges_of(job: JobGraph) -> tuple[list[EdgeFacts], list[EdgeFacts]]:
    """What the chains and the job edges say about the edges of the program."""
    chained: list[EdgeFacts] = []
    crossing: list[EdgeFacts] = []
    for vertex in job.vertices:
        outputs = job.outputs_of(vertex.id)
        for spec in vertex.chain.operators:
            for to in spec.outputs:
                if isinstance(to, ToOperator):
                    target = vertex.chain.operators[to.operator].id
                    chained.append((spec.id, target, to.input, to.tag, to.selected))
                else:
                    edge = outputs[to.partition]
                    assert (edge.tag, edge.selected) == (to.tag, to.selected)
                    target = job.vertices[edge.target].chain.operators[0].id
                    crossing.append((spec.id, target, edge.input, to.tag, to.selected))
    return chained, crossing
