"""What a chain is made from, as the plan describes it and as it travels to the task manager."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headgate.base.elements import (
    Record,
    Serializer,
)
from headgate.base.fields import FieldShape, RecordFields
from headgate.core.chain.operator import Operator
from headgate.core.egress.router import Router
from headgate.core.loops.definitions import Definition
from headgate.functions.error_policy import ErrorPolicy

Selector: TypeAlias = Callable[[Record], "list[str]"]
"""A user's function that names the outputs for a record (split and select)."""


class FieldsCoercer(Protocol):
    """Coerces records and takes them apart, or coerces those that came so.

    None: ``DeclaredType.coercer`` has to, as it can do more, and says what does not fit.
    """

    shape: FieldShape
    count: int
    """Shape and number of the fields that it makes."""

    def takes(self, shape: FieldShape, count: int) -> bool:
        """Whether records of this shape may fit."""

    def of_records(self, records: list[Record]) -> RecordFields | None:
        """The fields of the records, which stay as they are; None: they do not fit."""

    def of_fields(self, fields: RecordFields) -> RecordFields | None:
        """The coerced fields, which may reuse the lists; None: they do not fit."""


class DeclaredType(Protocol):
    """What a program has said about records."""

    def coercer(self) -> Callable[[list[Record]], list[Record]]:
        """From the records of a bundle to what the type makes of them; raises TypeError."""

    def fields_coercer(self) -> FieldsCoercer | None:
        """A coercer of records that go on as fields; None: the type has none."""

    def serializer(self) -> Serializer | None:
        """What writes such records to other tasks; None: pickle."""


@dataclass(frozen=True, slots=True)
class OutputTypes:
    """The types of one operator's outputs. It travels with the plan."""

    main: DeclaredType | None = None
    sides: tuple[tuple[str, DeclaredType], ...] = ()
    """By the ids of their tags."""
    is_kept: bool = False
    """The main records came in with this type and are unchanged: they need no coercion."""
    passes_none: bool = True
    """None may go from one chained function to the next, whatever the type is."""

    def serializer(self, tag: str | None) -> Serializer | None:
        """What writes the records of one output; ``tag`` None: of the main one."""
        declared = self.of(tag)
        return None if declared is None else declared.serializer()

    def of(self, tag: str | None) -> DeclaredType | None:
        """The type of one output; ``tag`` None: of the main one."""
        return self.main if tag is None else dict(self.sides).get(tag)


@dataclass(frozen=True, slots=True)
class ToOperator:
    """An output that leads to another operator of the same chain."""

    operator: int
    """Its index in ``ChainSpec.operators``; greater than the writer's own."""
    input: int = 0
    tag: str | None = None
    selected: frozenset[str] | None = None
    """Only records that the selector gives one of these names; None: all."""


@dataclass(frozen=True, slots=True)
class ToNetwork:
    """An output that leads to other tasks."""

    partition: int
    """Its index among the partitions of the task, and in ``ChainSpec.partitions``."""
    tag: str | None = None
    selected: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator: how to make it and where its output goes."""

    id: int
    """Id of the stream node; unique in the job."""
    name: str
    uid: str
    make: Callable[[], Operator]
    outputs: tuple[ToOperator | ToNetwork, ...] = ()
    selectors: tuple[Selector, ...] = ()
    types: OutputTypes | None = None
    """What its records are coerced to; None: nothing was declared."""
    key_type: object = None
    """What was declared of the keys of its input; None: nothing."""
    record_type: object = None
    """What was declared of its records, if it has one input; None: nothing."""
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    """What becomes of records that it fails for."""
    definitions: tuple[Definition, ...] = ()
    """The source of its functions, as far as it is known."""


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """How records are written to one partition of the task."""

    make_router: Callable[[int], Router]
    """Given the index of the producing subtask."""
    serializer: Serializer | None = None
    timeout_ms: int = 100


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """Operators in topological order; the first one is the head."""

    operators: tuple[OperatorSpec, ...]
    partitions: tuple[PartitionSpec, ...] = ()
    object_reuse: bool = False
