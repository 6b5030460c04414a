"""Spans and points of time as users write them, and how they are read. Nothing reads a clock."""

from dataclasses import dataclass

from headgate.base.errors import PlanInvalid


@dataclass(frozen=True, slots=True, order=True, init=False)
class Time:
    """A span in milliseconds: ``Time.seconds(5)``."""

    _milliseconds: int

    def __init__(self, milliseconds: int) -> None:
        object.__setattr__(self, "_milliseconds", _whole(milliseconds, "Time", "milliseconds"))

    def to_milliseconds(self) -> int:
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> "Time":
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> "Time":
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> "Time":
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> "Time":
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> "Time":
        return Time(days * 86_400_000)

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span in nanoseconds: ``Duration.of_seconds(5)``."""

    nanos: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "nanos", _whole(self.nanos, "Duration", "nanoseconds"))

    def to_millis(self) -> int:
        """Whole milliseconds, rounded down."""
        return self.nanos // 1_000_000

    @staticmethod
    def of_nanos(nanos: int) -> "Duration":
        return Duration(nanos)

    @staticmethod
    def of_millis(millis: int) -> "Duration":
        return Duration(millis * 1_000_000)

    @staticmethod
    def of_seconds(seconds: int, nano_adjustment: int | None = None) -> "Duration":
        return Duration(seconds * 1_000_000_000 + (nano_adjustment or 0))

    @staticmethod
    def of_minutes(minutes: int) -> "Duration":
        return Duration.of_seconds(minutes * 60)

    @staticmethod
    def of_hours(hours: int) -> "Duration":
        return Duration.of_seconds(hours * 3600)

    @staticmethod
    def of_days(days: int) -> "Duration":
        return Duration.of_seconds(days * 86_400)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time: seconds since 1970 (UTC) and nanoseconds on top."""

    seconds: int
    nanos: int = 0

    def to_epoch_milli(self) -> int:
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> "Instant":
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)


def measured_ms(span: object) -> int | None:
    """Milliseconds of a ``Time``, a ``Duration`` or what measures itself like them; else None."""
    for name in ("to_milliseconds", "to_millis"):
        convert = getattr(span, name, None)
        if convert is not None and not isinstance(span, type):
            span_ms = convert()
            if type(span_ms) is int:
                return span_ms
    return None


def whole_ms(span: object, given: str, least_ms: int | None = None) -> int:
    """Milliseconds of a span of time; raises PlanInvalid if it is none, or less than ``least_ms``.

    ``given`` begins the sentence of the error: ``with_idleness() was given``.
    """
    span_ms = measured_ms(span)
    if span_ms is None:
        raise PlanInvalid(f"{given} {span!r}; give a span of time, for instance Time.seconds(5)")
    if least_ms is not None and span_ms < least_ms:
        raise PlanInvalid(f"{given} {span_ms} ms; give {least_ms} ms or more")
    return span_ms


def _whole(amount: object, what: str, unit: str) -> int:
    """``Time.seconds(0.5)`` is 500 ms; parts of the unit itself are refused."""
    if isinstance(amount, int | float) and amount == amount // 1:
        return int(amount)
    raise PlanInvalid(f"{what} was given {amount!r} {unit}; give a whole number of them")
