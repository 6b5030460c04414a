"""From the draft to the stream graph, and to a program that can be started.

Everything is settled here: parallelism, key groups, slot sharing groups, batch or streaming, the
splits of sources. Law: the graph holds the wanted steps and all that they read, no more.
"""

from collections.abc import Iterable

from headgate.api.draft import Draft, Settled, Step
from headgate.api.outside import outside
from headgate.api.program import Program
from headgate.base.errors import PlanInvalid
from headgate.base.settings import ExchangeSettings, JobSettings, RuntimeMode
from headgate.plan.stream_graph import (
    DEFAULT_GROUP,
    StreamEdge,
    StreamGraph,
    StreamNode,
    default_max_parallelism,
)

DEFAULT_NAME = "headgate job"


def build_program(draft: Draft, job_name: str | None, steps: Iterable[Step]) -> Program:
    """The program that runs these steps; forgets nothing."""
    graph = build_graph(draft, job_name, steps)
    return Program(
        graph,
        graph.job_name,
        draft.configuration.to_dict(),
        (*draft.python_files, *_listed(draft.settings.python_files)),
        draft.config.get_global_job_parameters(),
    )


def build_graph(
    draft: Draft, job_name: str | None, steps: Iterable[Step], splits: bool = True
) -> StreamGraph:
    """The graph of these steps. Without ``splits`` sources are not asked for theirs."""
    wanted = _with_all_they_read(steps)
    if not wanted:
        raise PlanInvalid(
            "there are no operators, so there is nothing to execute; add a source and what reads "
            "it (executing a job forgets its operators)"
        )
    texts = draft.configuration.to_dict()
    settings, exchange = JobSettings.parse(texts), ExchangeSettings.parse(texts)
    graph = StreamGraph(
        job_name or settings.name or DEFAULT_NAME,
        batch=_is_batch(settings.runtime_mode, wanted),
        chaining=settings.chaining,
        object_reuse=settings.object_reuse,
        buffer_timeout_ms=exchange.buffer_timeout_ms,
    )
    default: int | None = None
    for step in wanted:
        parallelism = step.parallelism
        if parallelism is None:
            if default is None:
                default = outside().default_parallelism(texts)
            parallelism = default
        _add_node(graph, step, parallelism, settings, splits)
    return graph


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _with_all_they_read(steps: Iterable[Step]) -> list[Step]:
    found: dict[int, Step] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step.id not in found:
            found[step.id] = step
            waiting += [origin.step for origins in step.inputs for origin in origins]
    return [found[number] for number in sorted(found)]


def _is_batch(mode: RuntimeMode, steps: list[Step]) -> bool:
    endless = [step.name for step in steps if step.source is not None and not step.source.bounded]
    if mode is RuntimeMode.BATCH and endless:
        raise PlanInvalid(
            "is a source that never ends, so a batch job would have no result; "
            "use set_runtime_mode(RuntimeExecutionMode.STREAMING)",
            endless[0],
        )
    return mode is RuntimeMode.BATCH or (mode is RuntimeMode.AUTOMATIC and not endless)


def _add_node(
    graph: StreamGraph, step: Step, parallelism: int, settings: JobSettings, splits: bool
) -> None:
    max_parallelism = step.max_parallelism
    if max_parallelism is None:
        overall = settings.max_parallelism
        max_parallelism = overall if overall > 0 else default_max_parallelism(parallelism)
    graph.nodes[step.id] = StreamNode(
        step.id,
        step.name,
        step.kind,
        step.make(Settled(parallelism, graph.batch, splits)),
        parallelism,
        max_parallelism,
        step.uid,
        step.description,
        step.group or _inherited_group(graph, step),
        step.chaining,
        step.buffer_timeout_ms,
        selectors=step.selectors,
        functions=step.functions,
    )
    for number, origins in enumerate(step.inputs):
        graph.edges += [
            StreamEdge(origin.step.id, step.id, number, origin.ship, origin.tag, origin.selected)
            for origin in origins
        ]


def _inherited_group(graph: StreamGraph, step: Step) -> str:
    """That of all inputs, if they agree."""
    groups = [graph.nodes[origin.step.id].group for origins in step.inputs for origin in origins]
    return groups[0] if groups and groups.count(groups[0]) == len(groups) else DEFAULT_GROUP
