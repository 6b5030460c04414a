"""A planned job as checkpoints see it."""

from hypothesis import given

from headgate.plan.execution_graph import build_execution_graph, checkpointed_job
from headgate.plan.stream_graph import StreamGraph
from tests.plan.programs import programs
from tests.plan.recording import planned


@given(programs())
def test_every_task_is_there_with_its_operators_and_producers(graph: StreamGraph) -> None:
    job = planned(graph)
    execution = build_execution_graph(job, "job 1", 3)
    seen = checkpointed_job(job, execution)
    assert (seen.job, seen.name) == ("job 1", job.name)
    assert [(task.task, task.slot) for task in seen.members] == [
        (task.id, task.slot) for task in execution.tasks
    ]
    for member, task in zip(seen.members, execution.tasks, strict=True):
        vertex, blank = job.vertices[task.vertex], member.blank
        assert blank.finished
        assert [operator.uid for operator in blank.operators] == [
            spec.uid for spec in vertex.chain.operators
        ]
        assert (blank.vertex, blank.subtask) == (task.vertex, task.subtask)
        assert (blank.parallelism, blank.max_parallelism) == (
            vertex.parallelism,
            vertex.max_parallelism,
        )
        assert len(set(member.producers)) == len(member.producers)
        assert {*member.producers} == {c.producer for gate in task.gates for c in gate}
    assert [(e.source, e.output, e.target, e.gate, e.ship, e.tag) for e in seen.edges] == [
        (e.source, e.output, e.target, e.gate, e.ship, e.tag) for e in job.edges
    ]
