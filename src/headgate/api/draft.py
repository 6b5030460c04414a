"""The draft of a program: the transformations that an environment's streams have written so far.

A transformation is one operator; its origins say which transformations it reads. What depends on
settings that may still change (parallelism, batch or streaming) is decided when ``program``
translates the draft into a stream graph. Law: executing forgets the pending transformations, also
if the program is refused, but a stream keeps its own, so it can be built upon again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.api.settings.configuration import Configuration, ExecutionConfig
from headgate.api.types.types import TypeInformation
from headgate.base.elements import Key, Record
from headgate.base.errors import PlanInvalid
from headgate.base.settings import JobSettings
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import Selector
from headgate.core.operators.sorted_input import SortedInput
from headgate.core.state.sorting import SORT_BYTES
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.watermarks import WatermarkStrategy
from headgate.plan.ship_strategies import default_strategy
from headgate.plan.stream_graph import Chaining, NodeKind, ShipStrategy

if TYPE_CHECKING:
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.functions.source import Source

KeyOf: TypeAlias = Callable[[Record], Key]
Factory: TypeAlias = Callable[[], Operator]

_KEEP_TIMES: Final = frozenset(
    {"map function", "flat map function", "filter function", "fields", "position"}
    | {"reduce function", "process function", "watermark strategy"}
)
"""Roles of functions whose operators emit records with the timestamps they came with."""
_DROP_TIMES: Final = frozenset({"aggregates", "batch maker", "row maker"})
"""Roles of what stands between records and batches: times are in a column, or nowhere."""


class TranslationContext(NamedTuple):
    """Facts that are known when a transformation becomes a node of the graph."""

    parallelism: int
    batch: bool
    splits: tuple[object, ...] = ()
    """The splits of a source, if they are dealt out when the job starts."""
    sort_bytes: int = SORT_BYTES
    """Memory for the records of a batch that are being sorted, in each operator of a task."""
    assigned: bool = False
    """The driver hands out the splits of the source while the job runs …"""
    listed: bool = False
    """… and has them from ``splits``, not from an enumerator."""
    strategy: WatermarkStrategy | None = None
    """The strategy that the source applies to each split, in place of the operator after it."""


Translate: TypeAlias = Callable[[TranslationContext], Factory]
"""Makes the operator factory of a transformation when the graph is built."""


@dataclass(eq=False, slots=True)
class Transformation:
    """One operator as the program has written it. None: not set, the default holds."""

    id: int
    name: str
    kind: NodeKind
    translate: "Translate"
    inputs: "tuple[tuple[Origin, ...], ...]" = ()
    functions: tuple[tuple[str, object], ...] = ()
    source: "Source | None" = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    is_non_parallel: bool = False
    uid: str | None = None
    description: str | None = None
    group: str | None = None
    chaining: Chaining = Chaining.ALWAYS
    buffer_timeout_ms: int | None = None
    selectors: tuple[Selector, ...] = ()
    output_type: TypeInformation | None = None
    side_types: dict[str, TypeInformation] = field(default_factory=dict)
    """By the ids of the tags."""
    passes_on: bool = False
    """Its records are those that it was given, and these are of its type already."""
    on_error: ErrorPolicy | None = None
    assigns_times: bool = False
    """It gives its records timestamps of its own."""
    takes_strategy: bool = False
    """A source without a watermark strategy, which may apply that of the operator after it."""
    split_strategy: WatermarkStrategy | None = None
    """The strategy that a source right before it may apply to each split in its place."""
    is_internal: bool = False
    """A part of another operator: it has no state, and its user no handle on it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records of a stream come from, and how they are shipped to the next operator."""

    transformation: Transformation
    ship: ShipStrategy = field(default_factory=default_strategy)
    tag: str | None = None
    selected: frozenset[str] | None = None

    @property
    def is_plain(self) -> bool:
        """The main output of a transformation, with nothing said about the way from there."""
        return not self.ship.chosen and self.tag is None and self.selected is None

    def shipped(self, ship: ShipStrategy) -> "Origin":
        return replace(self, ship=ship)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file or folder that functions find in their working directory."""

    path: str
    """In the driver."""
    name: str
    """In the workers, within the working directory."""
    unpack: bool = False
    """It is an archive, and ``name`` becomes a folder of what is in it."""
    executable: bool = False

    def __post_init__(self) -> None:
        parts = self.name.split("/")
        if not all(parts) or ".." in parts:
            raise PlanInvalid(
                f"{self.path!r} shall be called {self.name!r} in the workers; give a name within "
                f"the working directory, without / in front and without .."
            )

    @classmethod
    def archive(cls, path: str, target: str | None = None) -> "JobFile":
        """An archive, unpacked into a folder with the target's or its own name."""
        return cls(path, target or path.rstrip("/").rpartition("/")[2], unpack=True)


@dataclass(slots=True)
class Unexecuted:
    """Finds programs of this process that were written and not executed: a forgotten ``execute()``.

    It knows drafts by number, so that a program that nobody needs can be garbage collected.
    """

    has_executed: bool = False
    """A job was launched, or a DataFrame was made."""
    _drafts: set[int] = field(default_factory=set)
    """Drafts with operators that wait to be executed."""
    _with_sinks: set[int] = field(default_factory=set)

    def written(self, draft: int, is_sink: bool) -> None:
        """An operator waits to be executed."""
        self._drafts.add(draft)
        if is_sink:
            self._with_sinks.add(draft)

    def forgotten(self, draft: int) -> None:
        """The operators of a draft were executed or dropped."""
        self._drafts.discard(draft)
        self._with_sinks.discard(draft)

    def clear(self) -> None:
        """Start over."""
        self.has_executed = False
        self._drafts.clear()
        self._with_sinks.clear()

    def problem(self) -> str:
        """What to report at the end of the process; empty: nothing was forgotten."""
        if self._drafts and not self.has_executed:
            return (
                "streams were written, but nothing was executed; call env.execute() at the end of "
                "the program"
            )
        if self._with_sinks:
            return (
                "a stream was given a sink after the last execution, and never ran; call "
                "env.execute() once more at the end of the program"
            )
        return ""


unexecuted = Unexecuted()
_numbers = count(1)


@dataclass(eq=False, slots=True)
class Draft:
    """Steps of one environment."""

    environment: "StreamExecutionEnvironment"
    configuration: Configuration
    config: ExecutionConfig
    python_files: list[str] = field(default_factory=list)
    job_files: list[JobFile] = field(default_factory=list)
    requirements: tuple[str, str | None] | None = None
    resource_profile: object | None = None
    """Spark's, of the tasks that the job runs in."""
    pending: list[Transformation] = field(default_factory=list)
    """Written since the last execution."""
    number: int = field(default_factory=lambda: next(_numbers))
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def settings(self) -> JobSettings:
        """What the configuration says now; raises SettingsInvalid."""
        return JobSettings.parse(self.configuration.to_dict())

    def new_transformation(
        self,
        name: str,
        kind: NodeKind,
        translate: Translate,
        inputs: tuple[tuple[Origin, ...], ...] = (),
        functions: tuple[tuple[str, object], ...] = (),
    ) -> Transformation:
        """A transformation that is not pending; it has the parallelism that is set for all now."""
        transformation = Transformation(next(self._ids), name, kind, translate, inputs, functions)
        parallelism = self.settings.parallelism
        transformation.parallelism = parallelism if parallelism > 0 else None
        return transformation

    def add(
        self,
        name: str,
        kind: NodeKind,
        translate: Translate,
        inputs: tuple[tuple[Origin, ...], ...] = (),
        functions: tuple[tuple[str, object], ...] = (),
    ) -> Transformation:
        """A new transformation that the next execution will run."""
        transformation = self.new_transformation(name, kind, translate, inputs, functions)
        self.pending.append(transformation)
        unexecuted.written(self.number, kind is NodeKind.SINK)
        return transformation

    def forget(self) -> None:
        """Nothing is pending any more; streams keep their transformations."""
        self.pending.clear()
        unexecuted.forgotten(self.number)


def fixed(factory: Factory) -> Translate:
    """For a transformation that depends on no setting."""
    return lambda context: factory


def sorted_in_batch(factory: Factory, *keys_of: KeyOf | None) -> Translate:
    """For an operator on keyed streams; ``keys_of``: the selector of each input, None: no keys."""

    def translate(context: TranslationContext) -> Factory:
        if not context.batch:
            return factory
        return partial(SortedInput, factory, keys_of, context.sort_bytes)

    return translate


def upstream(transformations: Iterable[Transformation]) -> list[Transformation]:
    """These transformations and all that they read, in the order in which they were written."""
    found: dict[int, Transformation] = {}
    waiting = list(transformations)
    while waiting:
        transformation = waiting.pop()
        if transformation.id not in found:
            found[transformation.id] = transformation
            waiting += [
                origin.transformation for origins in transformation.inputs for origin in origins
            ]
    return [found[number] for number in sorted(found)]


def surely_untimed(origins: Iterable[Origin]) -> bool:
    """Whether no record from there can have a timestamp: event-time windows would fail.

    Errs on the safe side: an unknown source or function may bring timestamps.
    """
    ends = [origin.transformation for origin in origins]
    untimed: dict[int, bool] = {}
    for transformation in upstream(ends):
        untimed[transformation.id] = not transformation.assigns_times and (
            bool(getattr(transformation.source, "untimed", False))
            if transformation.source is not None
            else _keeps_none(transformation, untimed)
        )
    return all(untimed[transformation.id] for transformation in ends)


def _keeps_none(transformation: Transformation, untimed: dict[int, bool]) -> bool:
    if any(role in _DROP_TIMES for role, _ in transformation.functions):
        return True
    if not transformation.inputs or not all(
        _keeps_times(*function) for function in transformation.functions
    ):
        return False
    return all(
        untimed[origin.transformation.id] for origins in transformation.inputs for origin in origins
    )


def _keeps_times(role: str, function: object) -> bool:
    # What a timer sends has the timer's time.
    return role in _KEEP_TIMES and not hasattr(function, "on_timer")
