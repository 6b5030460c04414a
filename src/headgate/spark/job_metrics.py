"""Figures of a job by name: of its tasks, of its users' functions, of its checkpoints."""

from collections.abc import Iterable, Mapping

from headgate.base.messages import TaskFigures
from headgate.control.checkpoint_figures import CheckpointStatistics
from headgate.plan.job_graph import JobGraph


def task_metrics(graph: JobGraph, figures: Iterable[TaskFigures]) -> Mapping[str, object]:
    """``<vertex>.<subtask>.<figure>``.

    Those of the user's functions: ``<vertex>.<subtask>.<operator>.<groups>.<name>.<part>``.
    """
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    found: dict[str, object] = {}
    for one in figures:
        task = f"{names[one.vertex]}.{one.subtask}"
        for key in one.__struct_fields__:
            if key not in ("task", "vertex", "subtask", "user"):
                found[f"{task}.{key}"] = getattr(one, key)
        for figure in one.user:
            name = ".".join((task, figure.operator, *figure.scope, figure.name))
            found.update({f"{name}.{part}": value for part, value in figure.values.items()})
    return found


def job_metrics(restarts: int, statistics: CheckpointStatistics) -> Mapping[str, object]:
    """``job.restarts``, ``job.checkpoints.<figure>``, ``job.checkpoints.last.<figure>``."""
    found: dict[str, object] = {"job.restarts": restarts}
    for key in ("triggered", "completed", "failed", "pending"):
        found[f"job.checkpoints.{key}"] = getattr(statistics, key)
    last = statistics.last
    if last is not None:
        for key in last.__slots__:
            value = last.kind.value if key == "kind" else getattr(last, key)
            found[f"job.checkpoints.last.{key}"] = value
    return found
