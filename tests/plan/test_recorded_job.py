"""A checkpoint as the plan reads it."""

from headgate.base.checkpoints import OperatorState
from headgate.plan.recorded_job import RecordedJob
from tests.plan.programs import Program
from tests.plan.recording import piece, planned, recording


def test_operators_are_found_by_uid_with_what_each_task_has_left() -> None:
    program = Program(parallelism=3)
    program.sink("sink", program.source(uid="read", max_parallelism=64), uid="write")
    graph = planned(program.graph)
    recorded = RecordedJob(recording(graph, finished=("0.1",)))
    source = recorded.operators["read"]
    assert (source.name, source.vertex.parallelism) == ("source", 3)
    assert [bool(state.keyed) for state in source.states] == [True, False, True]
    assert source.is_keyed and source.has_state
    assert not source.vertex.has_finished
    keyed = [operator for operator in recorded.operators.values() if operator.is_keyed]
    assert {operator.uid: operator.vertex.max_parallelism for operator in keyed} == {
        "read": 64,
        "write": 128,
    }


def test_state_is_whatever_was_left() -> None:
    program = Program(parallelism=1)
    program.source(uid="read")
    graph = planned(program.graph)

    def left(**parts: object) -> RecordedJob:
        state = OperatorState("read", "source", **parts)  # type: ignore[arg-type]
        return RecordedJob(recording(graph, states={"0.0": (state,)}))

    for parts, keyed in (
        ({"keyed": {1: piece("x")}}, True),
        ({"files": {"1.sst": piece("x")}}, True),
        ({"plain": piece("x")}, False),
        ({"source": piece("x")}, False),
        ({"sink": piece("x")}, False),
    ):
        operator = left(**parts).operators["read"]
        assert (operator.has_state, operator.is_keyed) == (True, keyed)
    assert not left().operators["read"].has_state
    assert RecordedJob(recording(graph, finished=("0.0",))).vertices[0].has_finished
