"""Declared types of an operator's outputs: what it emits is coerced before anybody sees it.

The wrapper stands between the operator and its other outputs, so that chained operators and the
network get the same values. Law: a record that does not fit raises TypeError inside the operator
that emits it; an output without a type is not looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headgate.base.elements import (
    Bundle,
    LatencyMarker,
    Record,
    Serializer,
    StreamStatus,
    Watermark,
)
from headgate.core.chain.output import Output


class DeclaredType(Protocol):
    """What a program has said about records."""

    def coercer(self) -> Callable[[list[Record]], list[Record]]:
        """From the records of a bundle to what the type makes of them; raises TypeError."""

    def serializer(self) -> Serializer | None:
        """What writes such records to other tasks; None: pickle."""


@dataclass(frozen=True, slots=True)
class OutputTypes:
    """The types of one operator's outputs. It travels with the plan."""

    main: DeclaredType | None = None
    sides: tuple[tuple[str, DeclaredType], ...] = ()
    """By the ids of their tags."""
    is_kept: bool = False
    """The main records came in with this type and nobody could change them: no need to look."""

    def serializer(self, tag: str | None) -> Serializer | None:
        """What writes the records of one output; ``tag`` None: of the main one."""
        declared = self.of(tag)
        return None if declared is None else declared.serializer()

    def of(self, tag: str | None) -> DeclaredType | None:
        """The type of one output; ``tag`` None: of the main one."""
        return self.main if tag is None else dict(self.sides).get(tag)


def typed(output: Output, types: OutputTypes | None) -> Output:
    """What an operator with these types writes to: the output itself if nothing is to be done."""
    if types is None or (not types.sides and (types.main is None or types.is_kept)):
        return output
    return TypedOutput(output, types)


class TypedOutput:
    """Wraps any output and coerces the records on their way to it."""

    def __init__(self, inner: Output, types: OutputTypes) -> None:
        self._inner = inner
        main = None if types.is_kept else types.main
        self._coerce = None if main is None else main.coercer()
        self._side_coercers = {tag: declared.coercer() for tag, declared in types.sides}

    @property
    def watermark_ms(self) -> int:
        return self._inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._inner.watermark_ms = watermark_ms

    def collect(self, bundle: Bundle) -> None:
        if self._coerce is not None:
            bundle = Bundle(self._coerce(bundle.records), bundle.timestamps)
        self._inner.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        coerce = self._side_coercers.get(tag)
        if coerce is not None:
            bundle = Bundle(coerce(bundle.records), bundle.timestamps)
        self._inner.collect_side(tag, bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self._inner.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self._inner.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._inner.emit_marker(marker)
