"""Keeps what a function emits to side outputs, also to those that nobody reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.base.elements import Bundle, Record
from headgate.base.values import own
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.spec import OperatorSpec
from headgate.plan.job_graph import JobVertex


@dataclass(slots=True)
class SideOutputs:
    """Of one operator, in all its tasks."""

    operator: str
    """Its name."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """By the ids of the tags."""

    def wrap(self, vertices: Mapping[int, JobVertex]) -> Mapping[int, JobVertex]:
        """The same vertices; what the operator emits to side outputs is kept."""
        return {number: self._watched(vertex) for number, vertex in vertices.items()}

    def _watched(self, vertex: JobVertex) -> JobVertex:
        operators = tuple(
            replace(spec, make=_Tapped(self, spec)) if spec.name == self.operator else spec
            for spec in vertex.chain.operators
        )
        return replace(vertex, chain=replace(vertex.chain, operators=operators))


class _Tapped:
    def __init__(self, sides: SideOutputs, spec: OperatorSpec) -> None:
        self._sides = sides
        self._make = spec.make

    def __call__(self) -> Operator:
        operator = self._make()
        set_up, records = operator.set_up, self._sides.records
        operator.set_up = (  # type: ignore[method-assign]
            lambda output: set_up(SideTap(output, records))
        )
        return operator


class SideTap:
    """See ``Output``."""

    def __init__(self, inner: Output, records: dict[str, list[Any]]) -> None:
        self._inner = inner
        self._records = records
        self.collect = inner.collect
        self.emit_watermark = inner.emit_watermark
        self.emit_status = inner.emit_status
        self.emit_marker = inner.emit_marker

    @property
    def watermark_ms(self) -> int:
        return self._inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._inner.watermark_ms = watermark_ms

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self._records.setdefault(tag, []).extend(own(record) for record in bundle.records)
        self._inner.collect_side(tag, bundle)
