"""The metrics of a job by name, as ``JobClient.get_metrics`` and the REST API give them.

Law: a name says whose figure it is: ``<vertex>.<subtask>.…`` of a task, ``job.…`` of the job.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import structs

from headgate.base.messages import TaskFigures
from headgate.control.checkpoint_history import CheckpointStatistics
from headgate.plan.job_graph import JobGraph


def task_metrics(graph: JobGraph, figures: Iterable[TaskFigures]) -> Mapping[str, object]:
    """``<vertex>.<subtask>.<figure>``, also ``….gates.0.credit``, ``….outputs.0.records``.

    Those of the user's functions: ``<vertex>.<subtask>.<operator>.<groups>.<name>.<part>``.
    """
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    found: dict[str, object] = {}
    for task_figures in figures:
        task = f"{names[task_figures.vertex]}.{task_figures.subtask}"
        for key in task_figures.__struct_fields__:
            if key not in ("task", "vertex", "subtask", "user", *_PARTS, "latency"):
                found[f"{task}.{key}"] = getattr(task_figures, key)
        for parts in _PARTS:
            for number, part in enumerate(getattr(task_figures, parts)):
                values = structs.asdict(part).items()
                found.update({f"{task}.{parts}.{number}.{key}": value for key, value in values})
        for figure in task_figures.user:
            name = ".".join((task, figure.operator, *figure.scope, figure.name))
            found.update({f"{name}.{part}": value for part, value in figure.values.items()})
    return found


_PARTS: Final = ("gates", "outputs", "operators", "async_calls")
"""Figures that a task has several of."""


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
