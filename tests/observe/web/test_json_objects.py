"""Structs in JSON: objects whose keys have dashes, whatever they are on the wire to workers."""

import json

import msgspec
import pytest

from headgate.base.inspections import SampledActivity, SampledStack, StackSamples
from headgate.base.job_records import CheckpointsRecord
from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.observe.web.answers import FlameGraph, VertexDetails
from headgate.observe.web.json_objects import decode, encode, encode_list
from tests.observe.web.kit import ScriptedJob, a_failure, five_vertices, some_checkpoints

SAMPLES = StackSamples(3, 1.0, 2.0, (SampledStack(("a", "b"), 3, activity=SampledActivity.IDLE),))


@pytest.mark.parametrize(
    "answer",
    [
        SAMPLES,
        some_checkpoints(),
        CheckpointsRecord(),
        a_failure(),
        TaskFigures("0.0", 0, 0, TaskState.RUNNING, user=(UserFigure("a", (), "b", "c", {}),)),
        *ScriptedJob(five_vertices()).figures()[:5],
    ],
)
def test_what_is_encoded_is_decoded_to_the_same(answer: msgspec.Struct) -> None:
    assert decode(encode(answer), type(answer)) == answer


def test_arrays_and_tags_of_the_wire_become_objects_with_names() -> None:
    assert json.loads(encode(SAMPLES)) == {
        "samples": 3,
        "wall-ms": 1.0,
        "cpu-ms": 2.0,
        "stacks": [
            {"frames": ["a", "b"], "count": 3, "cpu-ms": 0.0, "user-at": -1, "activity": "idle"}
        ],
        "dropped": 0,
        "ended": False,
    }


def test_what_another_version_leaves_out_is_empty_but_not_what_an_answer_is_about() -> None:
    graph = decode(b'{"samples": 7}', FlameGraph, lenient=True)
    assert (graph.samples, graph.subtasks, graph.data.name) == (7, [], "")
    vertex = decode(b'{"id": "1", "name": "map", "is-new": true}', VertexDetails, lenient=True)
    assert (vertex.busy, vertex.watermark, vertex.rates.in_per_s, vertex.tasks) == (0, None, 0, {})
    for lacks in (b"{}", b'{"id": "1"}'):
        with pytest.raises(msgspec.ValidationError):
            decode(lacks, VertexDetails, lenient=True)
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"samples": 7}', FlameGraph)


def test_a_list_is_a_list_of_objects() -> None:
    assert encode_list([]) == b"[]"
    failures = json.loads(encode_list([a_failure(1), a_failure(2)]))
    assert [failure["at-ms"] for failure in failures] == [1, 2]


def test_numbers_that_json_does_not_have_become_null() -> None:
    figures = TaskFigures("0.0", 0, 0, TaskState.RUNNING, busy_ms=float("nan"))
    assert json.loads(encode(figures))["busy-ms"] is None
