"""The draft: what a program has written so far. Every stream of an environment writes to it.

A step is one operator, and knows by its origins which steps it reads. What depends on settings
that may still change (parallelism, batch or streaming) is settled when the graph is built. Law:
executing forgets the pending steps, also if the program is refused, but a stream keeps its own, so
it can be built upon again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headgate.api.settings.configuration import Configuration, ExecutionConfig
from headgate.api.types.types import TypeInformation
from headgate.api.unexecuted import unexecuted
from headgate.base.elements import Key, Record
from headgate.base.errors import PlanInvalid
from headgate.base.settings import JobSettings
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import Selector
from headgate.core.operators.sorted_input import SortedInput
from headgate.core.state.sorting import SORT_BYTES
from headgate.plan.ship_strategies import unchosen
from headgate.plan.stream_graph import (
    Chaining,
    NodeKind,
    Ship,
)

KeyOf: TypeAlias = Callable[[Record], Key]
Factory: TypeAlias = Callable[[], Operator]


class Settled(NamedTuple):
    """What is known about a step when the graph is built."""

    parallelism: int
    batch: bool
    with_splits: bool
    """False: only a picture of the graph is wanted; do not ask sources for their splits."""
    sort_bytes: int = SORT_BYTES
    """Memory for the records of a batch that are being sorted, in each operator of a task."""


@dataclass(eq=False, slots=True)
class Step:
    """One operator in writing. None: not said, so that the default holds."""

    id: int
    name: str
    kind: NodeKind
    make: Callable[[Settled], Factory]
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
        make: Callable[[Settled], Factory],
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
        make: Callable[[Settled], Factory],
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


def ready(factory: Factory) -> Callable[[Settled], Factory]:
    """For a step that depends on no setting."""
    return lambda settled: factory


def sorted_in_batch(factory: Factory, *keys_of: KeyOf | None) -> Callable[[Settled], Factory]:
    """For an operator on keyed streams; ``keys_of``: the selector of each input, None: no keys."""

    def make(settled: Settled) -> Factory:
        if not settled.batch:
            return factory
        return partial(SortedInput, factory, keys_of, settled.sort_bytes)

    return make


if TYPE_CHECKING:
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.source import Source
