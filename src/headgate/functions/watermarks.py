"""Event time as users define it: timestamp assigners, watermark generators and strategies.

A strategy names a generator of watermarks, and perhaps an assigner of timestamps, an idle timeout,
and a group of sources that are aligned. Law: a strategy never changes, every method gives a new
one; it travels to the tasks, where each stream, or each split of a source, gets a generator of its
own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any

from headgate.base.elements import Record, Watermark
from headgate.base.errors import PlanInvalid
from headgate.functions.context import RuntimeContext
from headgate.functions.time import Duration, Time, whole_ms


class TimestampAssigner(ABC):
    """Takes the event time out of a record."""

    @abstractmethod
    def extract_timestamp(self, value: Record, record_timestamp: int, /) -> int:
        """Milliseconds since 1970; ``record_timestamp`` is what the record had before, the
        smallest of all times if it had none.
        """


class WatermarkOutput(ABC):
    """Where a generator of the user says how far event time is."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """No record with this timestamp or an earlier one is expected; it never goes back."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Nobody shall wait for this stream, until its next record or watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """The stream takes part in event time again."""


class WatermarkGenerator(ABC):
    """Says how far event time is, in view of records or of the clock."""

    @abstractmethod
    def on_event(self, event: Record, timestamp: int, output: WatermarkOutput, /) -> None:
        """For each record; what is emitted here goes out right after it."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput, /) -> None:
        """Now and then (``pipeline.auto-watermark-interval``), until the input has ended."""


@dataclass(frozen=True, slots=True)
class AlignmentGroup:
    """Sources of a group wait for each other: none reads further than ``drift_ms`` ahead."""

    group: str
    drift_ms: int
    interval_ms: int = 1000
    """Between two reports of a source task."""


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Made by one of its static methods.

    ::

        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)) \\
            .with_timestamp_assigner(lambda record, before: record["at_ms"]) \\
            .with_idleness(Duration.of_minutes(1))
    """

    bound_ms: int | None = None
    """How much earlier than the latest timestamp watermarks are; None: there are none."""
    supplier: Callable[[RuntimeContext], object] | None = None
    """Makes a generator of the user's own, instead."""
    assigner: object | None = None
    idle_ms: int | None = None
    alignment: AlignmentGroup | None = None

    @staticmethod
    def for_monotonous_timestamps() -> "WatermarkStrategy":
        """Timestamps only go up; the watermark is the latest of them less a millisecond."""
        return WatermarkStrategy(bound_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration | Time) -> "WatermarkStrategy":
        """No record comes later than this span after the latest one."""
        return WatermarkStrategy(
            whole_ms(max_out_of_orderness, "for_bounded_out_of_orderness() was given", 0)
        )

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy":
        """Event time stands still until the input has ended."""
        return WatermarkStrategy()

    @staticmethod
    def for_generator(supplier: Callable[..., WatermarkGenerator]) -> "WatermarkStrategy":
        """A generator of your own: ``for_generator(MyGenerator)``.

        The supplier is called in the tasks, for each stream or split, with nothing or with the
        runtime context; it may also be an object with ``create_watermark_generator(context)``.
        """
        create = getattr(supplier, "create_watermark_generator", supplier)
        if not callable(create):
            raise PlanInvalid(
                f"for_generator() was given {supplier!r}; give a callable that makes a "
                f"WatermarkGenerator, for instance its class"
            )
        return WatermarkStrategy(supplier=partial(_supply, create, _takes_argument(create)))

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> "WatermarkStrategy":
        """Take the event time out of each record; a plain ``f(record, before)`` will do."""
        given = timestamp_assigner
        is_class = isinstance(given, type)
        if is_class or not (callable(given) or hasattr(given, "extract_timestamp")):
            raise PlanInvalid(
                f"with_timestamp_assigner() was given {given!r}; give a TimestampAssigner, "
                f"which has extract_timestamp, or a callable with its two arguments"
            )
        return replace(self, assigner=given)

    def with_idleness(self, idle_timeout: Duration | Time) -> "WatermarkStrategy":
        """A stream or split without a record for this span is not waited for."""
        return replace(self, idle_ms=whole_ms(idle_timeout, "with_idleness() was given", 1))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration | Time,
        update_interval: Duration | Time | None = None,
    ) -> "WatermarkStrategy":
        """Sources of the same group wait for each other: none is read further ahead than this.

        ``update_interval`` (1 s): how often a source tells how far it is.
        """
        caller = "with_watermark_alignment"
        group: object = watermark_group
        if not (isinstance(group, str) and group):
            raise PlanInvalid(f"{caller}() was given {group!r}; give a text that is not empty")
        given = f"{caller}() was given"
        drift_ms = whole_ms(max_allowed_watermark_drift, given, 0)
        every_ms = 1000 if update_interval is None else whole_ms(update_interval, given, 1)
        return replace(self, alignment=AlignmentGroup(group, drift_ms, every_ms))

    @property
    def assigns_times(self) -> bool:
        """Whether it gives records timestamps."""
        return self.assigner is not None

    @property
    def aligns(self) -> bool:
        """Whether it is for sources that wait for each other."""
        return self.alignment is not None


def check_strategy(strategy: object, caller: str) -> WatermarkStrategy:
    """The given strategy; raises PlanInvalid if it is none."""
    if isinstance(strategy, WatermarkStrategy):
        return strategy
    raise PlanInvalid(
        f"{caller}() was given {strategy!r} as its watermark strategy; give one such as "
        f"WatermarkStrategy.for_monotonous_timestamps()"
    )


def _supply(create: Callable[..., object], takes: bool, context: RuntimeContext) -> object:
    return create(context) if takes else create()


def _takes_argument(create: Callable[..., object]) -> bool:
    """Whether a supplier cannot be called without an argument."""
    try:
        parameters = signature(create).parameters.values()
    except (TypeError, ValueError):  # some builtins do not tell
        return False
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.kind in places and parameter.default is Parameter.empty
        for parameter in parameters
    )
