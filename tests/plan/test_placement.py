"""Placement: slots shared within a group and never between groups."""

from hypothesis import given

from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.placement import place
from headgate.plan.stream_graph import StreamGraph
from tests.plan.programs import Program, programs


@given(programs())
def test_a_slot_holds_one_task_of_each_vertex_of_one_group(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    execution = build_execution_graph(job, "job", 0)
    widest: dict[str, int] = {}
    for vertex in job.vertices:
        widest[vertex.group] = max(widest.get(vertex.group, 0), vertex.parallelism)
    assert execution.slots == place(job).slots == sum(widest.values())
    assert {task.slot for task in execution.tasks} == set(range(execution.slots))
    assert len({(task.slot, task.vertex) for task in execution.tasks}) == len(execution.tasks)
    groups: dict[int, str] = {}
    for task in execution.tasks:
        group = job.vertices[task.vertex].group
        assert groups.setdefault(task.slot, group) == group


def test_the_table_shows_each_slot_with_its_tasks() -> None:
    program = Program()
    source = program.source("words", parallelism=1)
    score = program.operator("score", source, group="gpu")
    program.sink("print", score)
    assert place(build_job_graph(program.graph)).describe() == (
        "4 slots\n"
        "slot  slot group  v0   v1   v2\n"
        "0     default     1/1  .    1/2\n"
        "1     default     .    .    2/2\n"
        "2     gpu         .    1/2  .\n"
        "3     gpu         .    2/2  .\n"
        "v0: Source: words\n"
        "v1: score\n"
        "v2: Sink: print\n"
    )


def test_a_single_slot_is_not_called_slots() -> None:
    program = Program(parallelism=1)
    program.source()
    assert place(build_job_graph(program.graph)).describe().startswith("1 slot\n")
