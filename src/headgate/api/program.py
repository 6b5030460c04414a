"""From the draft to the stream graph, and to a program that can be started.

Everything is settled here: parallelism, key groups, slot sharing groups, batch or streaming, the
splits of sources. Law: the graph holds the wanted steps and all that they read, no more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.api.draft import Draft, JobFile, Settled, Step, upstream
from headgate.api.runtime import default_parallelism
from headgate.api.settings.checkpointing import check_recovery
from headgate.api.types.types import Types
from headgate.base.errors import PlanInvalid
from headgate.base.settings import ExchangeSettings, JobSettings, RuntimeMode
from headgate.core.chain.spec import OutputTypes
from headgate.plan.stream_graph import (
    DEFAULT_GROUP,
    StreamEdge,
    StreamGraph,
    StreamNode,
    default_max_parallelism,
)


@dataclass(frozen=True, slots=True)
class Program:
    """What an environment hands to the runtime."""

    graph: StreamGraph
    name: str
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every key that was set, also those that nobody knows."""
    python_files: tuple[str, ...] = ()
    """Files and folders that the workers must be able to import."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """For ``RuntimeContext.get_job_parameter``."""
    job_files: tuple[JobFile, ...] = ()
    requirements: tuple[str, str | None] | None = None
    """A file that pip reads, and a folder with all packages or None."""


DEFAULT_NAME = "headgate job"


def build_program(draft: Draft, job_name: str | None, steps: Iterable[Step]) -> Program:
    """The program that runs these steps; forgets nothing."""
    check_recovery(draft.configuration)
    graph = build_graph(draft, job_name, steps)
    settings = draft.settings
    archives = [_parted(archive) for archive in _listed(settings.python_archives)]
    requirements = draft.requirements
    if requirements is None and settings.python_requirements:
        requirements = _parted(settings.python_requirements)
    return Program(
        graph,
        graph.job_name,
        draft.configuration.to_dict(),
        (*draft.python_files, *_listed(settings.python_files)),
        draft.config.get_global_job_parameters(),
        (*draft.job_files, *(JobFile.archive(path, target) for path, target in archives)),
        requirements,
    )


def build_graph(
    draft: Draft, job_name: str | None, steps: Iterable[Step], splits: bool = True
) -> StreamGraph:
    """The graph of these steps. Without ``splits`` sources are not asked for theirs."""
    wanted = upstream(steps)
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
                default = default_parallelism(texts)
            parallelism = default
        _add_node(graph, step, parallelism, settings, splits)
    return graph


def refuse_endless(steps: Iterable[Step], caller: str) -> None:
    """Refuse what has no result before all sources have ended, if one of them never does."""
    for step in upstream(steps):
        if step.source is not None and not step.source.bounded:
            raise PlanInvalid(
                f"is a source that never ends, so that {caller}() would have no last row; let it "
                f"end (a SourceFunction whose run() returns says so with bounded = True), or write "
                f"the stream to files and read these",
                step.name,
            )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parted(text: str) -> tuple[str, str | None]:
    """``path#rest``, as Flink writes pairs."""
    path, _, rest = text.partition("#")
    return path.strip(), rest.strip() or None


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
    if not settings.auto_uids and step.uid is None:
        raise PlanInvalid(
            "has no uid, and pipeline.auto-generate-uids is false; give it one with uid()",
            step.name,
        )
    max_parallelism = step.max_parallelism
    is_default = max_parallelism is None and settings.max_parallelism <= 0
    if max_parallelism is None:
        overall = settings.max_parallelism
        max_parallelism = overall if overall > 0 else default_max_parallelism(parallelism)
    graph.nodes[step.id] = StreamNode(
        step.id,
        step.name,
        step.kind,
        step.make(Settled(parallelism, graph.batch, splits, settings.sort_bytes)),
        parallelism,
        max_parallelism,
        step.uid,
        step.description,
        step.group or _inherited_group(graph, step),
        step.chaining,
        step.buffer_timeout_ms,
        selectors=step.selectors,
        functions=step.functions,
        types=_types_of(step),
        source=step.source,
        default_groups=is_default,
    )
    for number, origins in enumerate(step.inputs):
        graph.edges += [
            StreamEdge(origin.step.id, step.id, number, origin.ship, origin.tag, origin.selected)
            for origin in origins
        ]


def _types_of(step: Step) -> OutputTypes | None:
    main, any_object = step.output_type, Types.PICKLED_BYTE_ARRAY()
    sides = tuple((tag, kind) for tag, kind in step.side_types.items() if kind != any_object)
    if main == any_object:
        main = None
    if main is None and not sides:
        return None
    # A function may change a list or row that it only had to look at.
    return OutputTypes(main, sides, step.passes_on and main is not None and main.is_immutable)


def _inherited_group(graph: StreamGraph, step: Step) -> str:
    """That of all inputs, if they agree."""
    groups = [graph.nodes[origin.step.id].group for origins in step.inputs for origin in origins]
    return groups[0] if groups and groups.count(groups[0]) == len(groups) else DEFAULT_GROUP
