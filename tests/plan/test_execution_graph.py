"""The execution graph: tasks, partitions and channels fit together."""

import pickle
from collections import Counter

from hypothesis import given

from headgate.base.messages import ChannelOrder, OutputOrder
from headgate.core.egress.partition import PartitionKind
from headgate.plan import ship_strategies as ships
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import StreamGraph
from tests.plan.programs import Program, key_of, programs, reads


@given(programs())
def test_every_subpartition_is_read_by_exactly_one_channel(graph: StreamGraph) -> None:
    execution = build_execution_graph(build_job_graph(graph), "job", 0)
    written = {
        (task.id, output.partition, number)
        for task in execution.tasks
        for output in task.outputs
        for number in range(output.subpartitions)
    }
    read = Counter(
        (channel.producer, channel.partition, channel.subpartition)
        for task in execution.tasks
        for gate in task.gates
        for channel in gate
    )
    assert read == dict.fromkeys(written, 1)
    assert all(output.subpartitions for task in execution.tasks for output in task.outputs)
    assert all(gate for task in execution.tasks for gate in task.gates)


@given(programs())
def test_tasks_are_those_of_the_job_graph(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    execution = build_execution_graph(job, "job", 0)
    expected = [(v.id, subtask) for v in job.vertices for subtask in range(v.parallelism)]
    assert [(task.vertex, task.subtask) for task in execution.tasks] == expected
    assert [task.id for task in execution.tasks] == [f"{v}.{subtask}" for v, subtask in expected]
    started: set[str] = set()
    for task in execution.tasks:
        vertex = job.vertices[task.vertex]
        assert len(task.gates) == len(vertex.gate_inputs)
        assert len(task.outputs) == len(vertex.chain.partitions)
        assert all(channel.producer in started for gate in task.gates for channel in gate)
        started.add(task.id)


@given(programs())
def test_an_execution_graph_is_the_same_each_time_but_for_its_attempt(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    first, again = (build_execution_graph(job, "job", 3) for _ in range(2))
    assert first == again == pickle.loads(pickle.dumps(first))
    other = build_execution_graph(job, "job", 4)
    partitions = [o.partition for e in (first, other) for t in e.tasks for o in t.outputs]
    assert len(set(partitions)) == len(partitions)
    assert [task.slot for task in first.tasks] == [task.slot for task in other.tasks]


def test_partitions_are_named_after_job_vertex_task_and_attempt() -> None:
    program = Program(batch=True)
    source = program.source()
    program.sink("counts", reads(source, ships.hash_by(key_of)), parallelism=3)
    execution = build_execution_graph(build_job_graph(program.graph), "j7", 2)
    assert execution.tasks[1].outputs == (
        OutputOrder("j7/0.0/1#2", PartitionKind.BLOCKING.name, 3),
    )
    assert execution.tasks[4].gates == (
        (ChannelOrder("j7/0.0/0#2", 2, "0.0"), ChannelOrder("j7/0.0/1#2", 2, "0.1")),
    )


def test_a_description_has_a_line_for_each_task() -> None:
    program = Program(batch=True)
    source, other = program.source(parallelism=8), program.source(parallelism=1)
    program.sink("sink", reads(source, ships.shuffle()), reads(other, number=1))
    execution = build_execution_graph(build_job_graph(program.graph), "j7", 0)
    lines = execution.describe().splitlines()
    assert lines[0] == "job j7, attempt 0: 11 tasks in 8 slots"
    assert lines[1].split(maxsplit=3) == ["task", "slot", "writes", "reads (producer:subpartition)"]
    assert lines[2] == "0.0   0     j7/0.0/0#0 [2] blocking"
    assert lines[-1].split(maxsplit=2) == [
        "2.1",
        "1",
        "0.0:1 0.1:1 0.2:1 0.3:1 0.4:1 0.5:1 and 2 more | 1.0:1",
    ]
