"""What a window operator is made from, as the API describes it, and the states it may keep."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from headgate.base.elements import Key, Record
from headgate.core.state.backend import StateSpec
from headgate.functions.assigners import WindowAssigner
from headgate.functions.evictors import Evictor
from headgate.functions.state import Aggregate
from headgate.functions.triggers import Trigger
from headgate.functions.window import Window

FOLDED: Final = StateSpec("window contents", "value", namespaced=True)
LISTED: Final = StateSpec("window records", "list", namespaced=True)
OPEN: Final = StateSpec("sliced windows", "value", namespaced=True)
FIRED: Final = StateSpec("sliced windows that have fired", "value", namespaced=True)
SESSIONS: Final = StateSpec("sessions", "value")


@dataclass(frozen=True, slots=True)
class Reduced:
    """A window holds one record; each further one is folded into it."""

    function: object
    """A callable of two records, or an object with ``reduce``."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """A window holds one accumulator."""

    function: Aggregate
    accumulator_type: object = None
    """What the program has declared of it; None: nothing."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A window holds all its records."""


Contents: TypeAlias = Reduced | Aggregated | Listed

Style: TypeAlias = Literal["process", "apply", "process_all", "apply_all"]


@dataclass(frozen=True, slots=True)
class WindowCall:
    """The user's window function, and by which of its methods it is called.

    ``process(key, context, elements)``, ``apply(key, window, elements)``; those for all records of
    a stream have no key: ``process(context, elements)``, ``apply(window, elements)``.
    """

    style: Style
    function: object


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window operator."""

    key_of: Callable[[Record], Key]
    assigner: WindowAssigner[Record, Window]
    trigger: Trigger[Record, Window]
    contents: Contents
    function: WindowCall | None = None
    """None: the folded value itself is sent; not with ``Listed``."""
    evictor: Evictor[Record, Window] | None = None
    lateness_ms: int = 0
    late_tag: str | None = None
    """The id of the side output for records that are too late; None: they are dropped."""
    batch: bool = False
