"""The plan of a run, with its tasks as they travel in messages."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headgate.base.checkpoints import SourceState, TaskRestore
from headgate.base.messages import CheckpointOrder
from headgate.control.deployment import RunPlan
from headgate.plan.execution_graph import (
    build_execution_graph,
    checkpointed_job,
    planned_sources,
)
from headgate.plan.job_graph import JobGraph


def plan_run(
    run: str,
    graph: JobGraph,
    code: bytes,
    attempt: int = 0,
    parameters: Mapping[str, str] | None = None,
    checkpoints: CheckpointOrder | None = None,
    restores: Mapping[str, TaskRestore] | None = None,
    sources: Iterable[SourceState] = (),
    rows_wanted: int | None = None,
) -> RunPlan:
    """The plan of one run; ``run`` is in the name of every partition, so that runs do not mix.

    ``restores``: what each task gets back of a checkpoint, if there is one; ``sources``: what the
    driver does. ``rows_wanted``: see ``RunPlan``.
    """
    execution = build_execution_graph(graph, run, attempt, restores)
    given = restores or {}
    return RunPlan(
        run,
        graph.name,
        execution.tasks,
        execution.slots,
        code,
        attempt,
        parameters or {},
        graph.batch,
        checkpoints,
        replace(checkpointed_job(graph, execution), job=checkpoints.job) if checkpoints else None,
        next((restore.checkpoint for restore in given.values()), None),
        planned_sources(graph, execution, given, sources),
        rows_wanted,
    )
