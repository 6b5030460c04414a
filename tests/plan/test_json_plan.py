"""The plan as JSON, as users and tools know it."""

import ast
import json

from hypothesis import given

from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import StreamGraph, execution_plan_json
from tests.plan.programs import Program, key_of, programs, reads


def test_a_plan_has_the_form_that_users_know() -> None:
    program = Program()
    left = program.source("words", parallelism=1)
    program.sink("print", left, parallelism=1)
    right = program.source("names")
    join = reads(left, ships.hash_by(key_of)), reads(right, number=1), reads(right, number=2)
    program.operator("join", *join, description="words with names", parallelism=4)
    assert json.loads(execution_plan_json(program.graph))["nodes"] == [
        {
            "id": 1,
            "type": "Source: words",
            "pact": "Data Source",
            "contents": "Source: words",
            "parallelism": 1,
            "predecessors": [],
        },
        {
            "id": 3,
            "type": "Source: names",
            "pact": "Data Source",
            "contents": "Source: names",
            "parallelism": 2,
            "predecessors": [],
        },
        {
            "id": 4,
            "type": "join",
            "pact": "Operator",
            "contents": "words with names",
            "parallelism": 4,
            "predecessors": [
                {"id": 1, "ship_strategy": "HASH", "side": "first"},
                {"id": 3, "ship_strategy": "REBALANCE", "side": "second"},
                {"id": 3, "ship_strategy": "REBALANCE", "side": "input 3"},
            ],
        },
        {
            "id": 2,
            "type": "Sink: print",
            "pact": "Data Sink",
            "contents": "Sink: print",
            "parallelism": 1,
            "predecessors": [{"id": 1, "ship_strategy": "FORWARD", "side": "first"}],
        },
    ]


def test_an_empty_program_has_an_empty_plan() -> None:
    assert json.loads(execution_plan_json(StreamGraph())) == {"nodes": []}


@given(programs())
def test_a_plan_reads_the_same_as_python(graph: StreamGraph) -> None:
    text = execution_plan_json(graph)
    assert ast.literal_eval(text) == json.loads(text)
    assert sorted(node["id"] for node in json.loads(text)["nodes"]) == sorted(graph.nodes)
