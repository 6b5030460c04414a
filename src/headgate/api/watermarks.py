"""Watermark strategies: how a stream gets its event time.

A strategy names a generator of watermarks, and perhaps an assigner of timestamps, a time after
which a silent stream is not waited for, and a group of sources that wait for each other. Law: a
strategy never changes, every method gives a new one; it travels to the tasks, where each stream, or
each split of a source, gets a generator of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any

from headgate.api.checks import check_text
from headgate.base.errors import PlanInvalid
from headgate.core.chain.timestamps import TimestampAssigner
from headgate.core.chain.watermarks import (
    OWN_TIME,
    AlignmentGroup,
    Bounded,
    CustomWatermarks,
    Marking,
    TimePlan,
    WatermarkGenerator,
    silent,
)
from headgate.functions.context import RuntimeContext
from headgate.functions.time import Duration, Time


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Made by one of its static methods.

    ::

        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)) \\
            .with_timestamp_assigner(lambda record, before: record["at_ms"]) \\
            .with_idleness(Duration.of_minutes(1))
    """

    _start: Callable[[RuntimeContext], Marking]
    _assigner: object | None = None
    _idle_ms: int | None = None
    _alignment: AlignmentGroup | None = None

    @staticmethod
    def for_monotonous_timestamps() -> "WatermarkStrategy":
        """Timestamps only go up; the watermark is the latest of them less a millisecond."""
        return WatermarkStrategy(partial(_bounded, 0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration | Time) -> "WatermarkStrategy":
        """No record comes later than this span behind the latest one."""
        bound_ms = _millis(max_out_of_orderness, "for_bounded_out_of_orderness", 0)
        return WatermarkStrategy(partial(_bounded, bound_ms))

    @staticmethod
    def no_watermarks() -> "WatermarkStrategy":
        """Event time stands still until the input has ended."""
        return WatermarkStrategy(silent)

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
        return WatermarkStrategy(partial(_custom, create, _takes_argument(create)))

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
        return replace(self, _assigner=given)

    def with_idleness(self, idle_timeout: Duration | Time) -> "WatermarkStrategy":
        """A stream or split without a record for this span is not waited for."""
        return replace(self, _idle_ms=_millis(idle_timeout, "with_idleness", 1))

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
        group = check_text(watermark_group, caller)
        drift_ms = _millis(max_allowed_watermark_drift, caller, 0)
        every_ms = 1000 if update_interval is None else _millis(update_interval, caller, 1)
        return replace(self, _alignment=AlignmentGroup(group, drift_ms, every_ms))

    @property
    def assigns_times(self) -> bool:
        """Whether it gives records timestamps."""
        return self._assigner is not None

    @property
    def aligns(self) -> bool:
        """Whether it is for sources that wait for each other."""
        return self._alignment is not None

    def plan(self, interval_ms: int, batch: bool) -> TimePlan:
        """What the tasks do; a batch job has no event time but that of records and its end."""
        if batch:
            return TimePlan(silent, self._assigner, interval_ms=0)
        return TimePlan(self._start, self._assigner, self._idle_ms, self._alignment, interval_ms)


def time_plan(strategy: WatermarkStrategy | None, interval_ms: int, batch: bool) -> TimePlan:
    """Of a source; without a strategy it may tell event time itself, but not to a batch job."""
    if strategy is not None:
        return strategy.plan(interval_ms, batch)
    return TimePlan(silent, interval_ms=0) if batch else OWN_TIME


def check_strategy(strategy: object, caller: str) -> WatermarkStrategy:
    """What a user gave as a strategy."""
    if isinstance(strategy, WatermarkStrategy):
        return strategy
    raise PlanInvalid(
        f"{caller}() was given {strategy!r} as its watermark strategy; give one such as "
        f"WatermarkStrategy.for_monotonous_timestamps()"
    )


def _bounded(bound_ms: int, context: RuntimeContext) -> Marking:
    return Bounded(bound_ms)


def _custom(create: Callable[..., object], takes: bool, context: RuntimeContext) -> Marking:
    return CustomWatermarks(create(context) if takes else create())


def _takes_argument(create: Callable[..., object]) -> bool:
    """Whether a supplier cannot be called without an argument."""
    try:
        parameters = signature(create).parameters.values()
    except (TypeError, ValueError):  # some builtins do not tell
        return False
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(one.kind in places and one.default is Parameter.empty for one in parameters)


def _millis(span: object, caller: str, least: int) -> int:
    if isinstance(span, Duration):
        millis = span.to_millis()
    elif isinstance(span, Time):
        millis = span.to_milliseconds()
    else:
        raise PlanInvalid(f"{caller}() was given {span!r}; give a Duration or a Time")
    if millis < least:
        raise PlanInvalid(f"{caller}() was given {millis} ms; give {least} ms or more")
    return millis
