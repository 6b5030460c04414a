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
from headgate.plan.ship_strategies import unchosen
from headgate.plan.stream_graph import Chaining, NodeKind, Ship

if TYPE_CHECKING:
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.source import Source

KeyOf: TypeAlias = Callable[[Record], Key]
Factory: TypeAlias = Callable[[], Operator]

_KEEP_TIMES: Final = frozenset(
    {"map function", "flat map function", "filter function", "fields", "position"}
    | {"reduce function", "process function", "watermark strategy"}
)
"""Roles of functions whose operators emit records with the timestamps they came with."""


class Settled(NamedTuple):
    """What is known about a step when the graph is built."""

    parallelism: int
    batch: bool
    with_splits: bool
    """False: only a picture of the graph is wanted; do not ask sources for their splits."""
    sort_bytes: int = SORT_BYTES
    """Memory for the records of a batch that are being sorted, in each operator of a task."""


Translate: TypeAlias = Callable[[Settled], Factory]
"""Makes the operator factory of a transformation when the graph is built."""


@dataclass(eq=False, slots=True)
class Step:
    """One operator in writing. None: not said, so that the default holds."""

    id: int
    name: str
    kind: NodeKind
    make: "Translate"
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
    assigns_times: bool = False
    """It gives its records timestamps of its own."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records of a stream come from, and how they are to travel to the next step."""

    step: Step
    ship: Ship = field(default_factory=unchosen)
    tag: str | None = None
    selected: frozenset[str] | None = None

    @property
    def is_plain(self) -> bool:
        """The main output of a step, with nothing said about the way from there."""
        return not self.ship.chosen and self.tag is None and self.selected is None

    def shipped(self, ship: Ship) -> "Origin":
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
    """Of the whole process."""

    has_executed: bool = False
    """A job was launched, or a DataFrame was made."""
    _drafts: set[int] = field(default_factory=set)
    """Those with operators that wait for their execution."""
    _with_sinks: set[int] = field(default_factory=set)

    def written(self, draft: int, is_sink: bool) -> None:
        """An operator waits for its execution."""
        self._drafts.add(draft)
        if is_sink:
            self._with_sinks.add(draft)

    def forgotten(self, draft: int) -> None:
        """Whatever a draft had waiting was executed or dropped."""
        self._drafts.discard(draft)
        self._with_sinks.discard(draft)

    def clear(self) -> None:
        """As if the process had just begun."""
        self.has_executed = False
        self._drafts.clear()
        self._with_sinks.clear()

    def problem(self) -> str:
        """What to say at the end of the process; empty: nothing is left over."""
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
    pending: list[Step] = field(default_factory=list)
    """Written since the last execution."""
    number: int = field(default_factory=lambda: next(_numbers))
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def settings(self) -> JobSettings:
        """What the configuration says now; raises SettingsInvalid."""
        return JobSettings.parse(self.configuration.to_dict())

    def new_step(
        self,
        name: str,
        kind: NodeKind,
        make: Translate,
        inputs: tuple[tuple[Origin, ...], ...] = (),
        functions: tuple[tuple[str, object], ...] = (),
    ) -> Step:
        """A step that is not pending; it has the parallelism that is set for all now."""
        step = Step(next(self._ids), name, kind, make, inputs, functions)
        parallelism = self.settings.parallelism
        step.parallelism = parallelism if parallelism > 0 else None
        return step

    def add(
        self,
        name: str,
        kind: NodeKind,
        make: Translate,
        inputs: tuple[tuple[Origin, ...], ...] = (),
        functions: tuple[tuple[str, object], ...] = (),
    ) -> Step:
        """A new step that the next execution will run."""
        step = self.new_step(name, kind, make, inputs, functions)
        self.pending.append(step)
        unexecuted.written(self.number, kind is NodeKind.SINK)
        return step

    def forget(self) -> None:
        """Nothing is pending any more; streams keep their steps."""
        self.pending.clear()
        unexecuted.forgotten(self.number)


def ready(factory: Factory) -> Translate:
    """For a step that depends on no setting."""
    return lambda settled: factory


def sorted_in_batch(factory: Factory, *keys_of: KeyOf | None) -> Translate:
    """For an operator on keyed streams; ``keys_of``: the selector of each input, None: no keys."""

    def make(settled: Settled) -> Factory:
        if not settled.batch:
            return factory
        return partial(SortedInput, factory, keys_of, settled.sort_bytes)

    return make


def upstream(steps: Iterable[Step]) -> list[Step]:
    """These transformations and all that they read, in the order in which they were written."""
    found: dict[int, Step] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step.id not in found:
            found[step.id] = step
            waiting += [origin.step for origins in step.inputs for origin in origins]
    return [found[number] for number in sorted(found)]


def surely_untimed(origins: Iterable[Origin]) -> bool:
    """Whether no record from there can have a timestamp: event-time windows would fail.

    Errs on the safe side: an unknown source or function may bring timestamps.
    """
    ends = [origin.step for origin in origins]
    untimed: dict[int, bool] = {}
    for step in upstream(ends):
        untimed[step.id] = not step.assigns_times and (
            bool(getattr(step.source, "untimed", False))
            if step.source is not None
            else _keeps_none(step, untimed)
        )
    return all(untimed[step.id] for step in ends)


def _keeps_none(step: Step, untimed: dict[int, bool]) -> bool:
    if not step.inputs or not all(_keeps_times(*function) for function in step.functions):
        return False
    return all(untimed[origin.step.id] for origins in step.inputs for origin in origins)


def _keeps_times(role: str, function: object) -> bool:
    # What a timer sends has the timer's time.
    return role in _KEEP_TIMES and not hasattr(function, "on_timer")
