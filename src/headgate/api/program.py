"""Translates the draft into a stream graph and a program that can be launched.

Everything is decided here: parallelism, key groups, slot sharing groups, batch or streaming, the
splits of sources. Law: the graph holds the wanted transformations and all that they read, no more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headgate.api.draft import Draft, JobFile, Transformation, TranslationContext, upstream
from headgate.api.runtime import default_parallelism
from headgate.api.settings.checkpointing import check_recovery
from headgate.api.types.types import Types
from headgate.base.errors import HeadgateError, PlanInvalid
from headgate.base.redaction import without_secrets
from headgate.base.settings import DefaultPolicy, ExchangeSettings, JobSettings, RuntimeMode
from headgate.core.chain.spec import OutputTypes
from headgate.core.operators.split_discovery import SplitDiscovery, find_splits
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.watermarks import WatermarkStrategy
from headgate.plan.drawing import draw_svg
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import (
    DEFAULT_GROUP,
    StreamEdge,
    StreamGraph,
    StreamNode,
    default_max_parallelism,
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program as an environment passes it to the runtime."""

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
    resource_profile: object | None = None
    """The resource profile of the job's Spark tasks; None: that of the session."""


DEFAULT_NAME = "unnamed"


def build_program(
    draft: Draft,
    job_name: str | None,
    transformations: Iterable[Transformation],
    default_mode: RuntimeMode = RuntimeMode.STREAMING,
) -> Program:
    """The program that runs these transformations; forgets nothing.

    ``default_mode``: the mode if the program sets no ``execution.runtime-mode``.
    """
    check_recovery(draft.configuration)
    graph = build_graph(draft, job_name, transformations, default_mode=default_mode)
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
        draft.resource_profile,
    )


def build_graph(
    draft: Draft,
    job_name: str | None,
    transformations: Iterable[Transformation],
    splits: bool = True,
    default_mode: RuntimeMode = RuntimeMode.STREAMING,
) -> StreamGraph:
    """The graph of these transformations. Without ``splits`` sources are not asked for theirs."""
    wanted = upstream(transformations)
    if not wanted:
        raise PlanInvalid(
            "there are no operators, so there is nothing to execute; add a source and what reads "
            "it (executing a job forgets its operators)"
        )
    texts = draft.configuration.to_dict()
    texts.setdefault("execution.runtime-mode", default_mode.value)
    settings, exchange = JobSettings.parse(texts), ExchangeSettings.parse(texts)
    graph = StreamGraph(
        without_secrets(job_name or settings.name or DEFAULT_NAME),
        batch=_is_batch(settings.runtime_mode, wanted),
        chaining=settings.chaining,
        object_reuse=settings.object_reuse,
        buffer_timeout_ms=exchange.buffer_timeout_ms,
    )
    default: int | None = None
    timed = _timed_splits(wanted, settings)
    for transformation in wanted:
        parallelism = transformation.parallelism
        if parallelism is None:
            if default is None:
                default = default_parallelism(texts)
            parallelism = default
        strategy = timed.get(transformation.id)
        _add_node(graph, transformation, parallelism, settings, splits, strategy)
    return graph


def _timed_splits(
    wanted: list[Transformation], settings: JobSettings
) -> dict[int, WatermarkStrategy]:
    """Strategies that sources apply to each split, by the ids of both transformations.

    The source has none, and the operator with the strategy alone reads it. Records whose times
    cannot be taken are dealt with in the source then, so that both must do the same with them.
    """
    inputs = [
        (origin, transformation)
        for transformation in wanted
        for origins in transformation.inputs
        for origin in origins
    ]
    readers = Counter(origin.transformation.id for origin, _ in inputs)
    timed = {}
    for origin, reader in inputs:
        source, strategy = origin.transformation, reader.split_strategy
        is_alone = readers[source.id] == 1 and len(reader.inputs[0]) == 1 and origin.tag is None
        if strategy is None or not is_alone or not source.takes_strategy:
            continue
        if _policy_of(source, settings) == _policy_of(reader, settings):
            timed[source.id] = timed[reader.id] = strategy
    return timed


def plan_picture(
    draft: Draft, transformations: Iterable[Transformation], marked: Collection[int] = ()
) -> str | None:
    """These transformations and all that they read, as SVG; None: nothing can be drawn of them.

    ``marked``: ids of transformations that the picture points out. A notebook calls it for every
    stream that ends a cell, so that a program that is wrong so far is no error here.
    """
    try:
        graph = build_graph(draft, None, transformations, splits=False)
        return draw_svg(build_job_graph(graph), marked)
    except HeadgateError:
        return None


def refuse_endless(transformations: Iterable[Transformation], caller: str) -> None:
    """Refuse what has no result before all sources have ended, if one of them never does."""
    for transformation in upstream(transformations):
        if transformation.source is not None and not transformation.source.bounded:
            raise PlanInvalid(
                f"is a source that never ends, so that {caller}() would have no last row; let it "
                f"end (a SourceFunction whose run() returns says so with bounded = True), or write "
                f"the stream to files and read these",
                transformation.name,
            )


def mode_for_a_table(transformations: Iterable[Transformation]) -> RuntimeMode:
    """The mode whose results are final: batch if there are keys, event time or a broadcast side.

    A program without them gives the same records in both modes. It streams: it needs no disk, and
    ends as soon as enough rows are there.
    """
    wanted = upstream(transformations)
    origins = (origin for each in wanted for origins in each.inputs for origin in origins)
    meets = any(origin.ship.name in ("HASH", "BROADCAST") for origin in origins)
    is_timed = any(transformation.assigns_times for transformation in wanted)
    return RuntimeMode.BATCH if meets or is_timed else RuntimeMode.STREAMING


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parted(text: str) -> tuple[str, str | None]:
    """``path#rest``, as Flink writes pairs."""
    path, _, rest = text.partition("#")
    return path.strip(), rest.strip() or None


def _is_batch(mode: RuntimeMode, transformations: list[Transformation]) -> bool:
    endless = [
        transformation.name
        for transformation in transformations
        if transformation.source is not None and not transformation.source.bounded
    ]
    if mode is RuntimeMode.BATCH and endless:
        raise PlanInvalid(
            "is a source that never ends, so a batch job would have no result; "
            "use set_runtime_mode(RuntimeExecutionMode.STREAMING)",
            endless[0],
        )
    return mode is RuntimeMode.BATCH or (mode is RuntimeMode.AUTOMATIC and not endless)


def _add_node(
    graph: StreamGraph,
    transformation: Transformation,
    parallelism: int,
    settings: JobSettings,
    splits: bool,
    strategy: WatermarkStrategy | None,
) -> None:
    if not (settings.auto_uids or transformation.uid or transformation.is_internal):
        raise PlanInvalid(
            "has no uid, and pipeline.auto-generate-uids is false; give it one with uid()",
            transformation.name,
        )
    max_parallelism = transformation.max_parallelism
    is_default = max_parallelism is None and settings.max_parallelism <= 0
    if max_parallelism is None:
        overall = settings.max_parallelism
        max_parallelism = overall if overall > 0 else default_max_parallelism(parallelism)
    found, discovery = _splits_of(transformation, parallelism) if splits else ((), None)
    context = TranslationContext(
        parallelism,
        graph.batch,
        found,
        settings.sort_bytes,
        assigned=discovery is not None,
        listed=discovery is not None and discovery.listed is not None,
        strategy=strategy,
    )
    graph.nodes[transformation.id] = StreamNode(
        transformation.id,
        without_secrets(transformation.name),
        transformation.kind,
        transformation.translate(context),
        parallelism,
        max_parallelism,
        transformation.uid,
        without_secrets(transformation.description or "") or None,
        transformation.group or _inherited_group(graph, transformation),
        transformation.chaining,
        transformation.buffer_timeout_ms,
        selectors=transformation.selectors,
        functions=transformation.functions,
        types=_types_of(transformation),
        source=transformation.source,
        on_error=_policy_of(transformation, settings),
        discovery=discovery,
        default_groups=is_default,
        default_parallelism=transformation.parallelism is None,
    )
    _add_edges(graph, transformation)


def _add_edges(graph: StreamGraph, transformation: Transformation) -> None:
    for number, origins in enumerate(transformation.inputs):
        graph.edges += [
            StreamEdge(
                origin.transformation.id,
                transformation.id,
                number,
                origin.ship,
                origin.tag,
                origin.selected,
            )
            for origin in origins
        ]


def _policy_of(transformation: Transformation, settings: JobSettings) -> ErrorPolicy:
    """That of the operator, or that of the settings for all."""
    default = ErrorPolicy.SKIP if settings.on_error is DefaultPolicy.SKIP else ErrorPolicy.FAIL
    policy = transformation.on_error or default
    return replace(policy, most_in_a_row=settings.most_failures_in_a_row)


def _splits_of(
    transformation: Transformation, parallelism: int
) -> tuple[tuple[object, ...], SplitDiscovery | None]:
    """The splits of a source, or how the driver finds them while the job runs."""
    if transformation.source is None:
        return (), None
    return find_splits(transformation.source, transformation.name, parallelism)


def _types_of(transformation: Transformation) -> OutputTypes | None:
    main, any_object = transformation.output_type, Types.PICKLED_BYTE_ARRAY()
    sides = tuple(
        (tag, kind) for tag, kind in transformation.side_types.items() if kind != any_object
    )
    if main == any_object:
        main = None
    if main is None and not sides:
        return None
    # A function may change a list or row that it only had to look at.
    is_kept = transformation.passes_on and main is not None and main.is_immutable
    return OutputTypes(main, sides, is_kept, main is not None and main.passes_none)


def _inherited_group(graph: StreamGraph, transformation: Transformation) -> str:
    """That of all inputs, if they agree."""
    groups = [
        graph.nodes[origin.transformation.id].group
        for origins in transformation.inputs
        for origin in origins
    ]
    return groups[0] if groups and groups.count(groups[0]) == len(groups) else DEFAULT_GROUP
