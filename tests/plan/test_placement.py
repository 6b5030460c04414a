"""Placement: slots shared within a group and never between groups."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.plan.execution_graph import build_execution_graph, place, usual_slots_per_worker
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import StreamGraph
from tests.plan.programs import Program, programs


@given(programs())
def test_a_slot_holds_one_task_of_each_vertex_of_one_group(graph: StreamGraph) -> None:
    job = build_job_graph(graph)
    execution = build_execution_graph(job, "job", 0)
    widest: dict[str, int] = {}
    for vertex in job.vertices:
        widest[vertex.group] = max(widest.get(vertex.group, 0), vertex.parallelism)
    assert execution.slots == place(job).workers == place(job).slots == sum(widest.values())
    assert {task.slot for task in execution.tasks} == set(range(execution.slots))
    assert len({(task.slot, task.vertex) for task in execution.tasks}) == len(execution.tasks)
    groups: dict[int, str] = {}
    for task in execution.tasks:
        group = job.vertices[task.vertex].group
        assert groups.setdefault(task.slot, group) == group


@given(programs(), st.integers(1, 5))
def test_workers_have_neighbouring_slots_of_one_group(graph: StreamGraph, per_worker: int) -> None:
    plain = build_job_graph(graph)
    job = replace(plain, slots_per_worker=per_worker)
    execution, slots = build_execution_graph(job, "job", 0), place(plain)
    workers: dict[int, list[int]] = {}
    for task, alone in zip(
        execution.tasks, build_execution_graph(plain, "job", 0).tasks, strict=True
    ):
        workers.setdefault(task.slot, []).append(alone.slot)
    assert set(workers) == set(range(execution.slots)) == set(range(place(job).workers))
    for held in workers.values():
        assert max(held) - min(held) < per_worker
        (group,) = {g.group for g in slots.groups for slot in held if 0 <= slot - g.first < g.count}
        needed = next(g.count for g in slots.groups if g.group == group)
        assert place(job).group(group).workers == -(-needed // per_worker)


@given(st.integers(1, 500), st.integers(1, 64))
def test_few_slots_have_a_worker_each_and_many_share_two_for_each_core(
    slots: int, cores: int
) -> None:
    per_worker = usual_slots_per_worker(slots, cores)
    assert (per_worker == 1) == (slots <= 4 * cores)
    if per_worker > 1:
        assert cores <= -(-slots // per_worker) <= 2 * cores


def test_the_table_shows_who_has_a_slot_if_workers_are_shared() -> None:
    program = Program(parallelism=3)
    program.sink("print", program.source("words"))
    job = replace(build_job_graph(program.graph), slots_per_worker=2)
    assert (
        place(job)
        .describe()
        .startswith(
            "3 slots in 2 workers\n"
            "worker  slot  slot group  v0\n"
            "0       0     default     1/3\n"
            "0       1     default     2/3\n"
            "1       2     default     3/3\n"
        )
    )


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
