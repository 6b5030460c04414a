"""Event time at work: timestamps of records, and watermark generators of streams and splits.

Law: timestamps are whole milliseconds that fit into 64 bits, or None; nothing but the user's own
assigner is called for a record. The built-in generators look at the times of a bundle and emit only
when asked. What a user's generator emits in ``on_event`` goes out right after that record: the
bundle is cut there, so that records and watermarks stay in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Final, Protocol

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Bundle,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.fields import FieldShape
from headgate.core.chain.left_out import FailureStreak, attempt, bundle_without, without
from headgate.core.chain.operator import Output
from headgate.core.chain.user_function import UserFunction
from headgate.core.state.key_taking import part_of
from headgate.functions.context import RuntimeContext
from headgate.functions.watermarks import AlignmentGroup, WatermarkOutput, WatermarkStrategy


class Target(Protocol):
    """Where a generator sends records, watermarks and idleness."""

    def collect(self, bundle: Bundle) -> None: ...

    def emit_watermark(self, watermark_ms: int) -> None: ...

    def mark_idle(self) -> None: ...

    def mark_active(self) -> None: ...


class Marking(Protocol):
    """A generator at work on one stream, or on one split of a source."""

    @property
    def current_ms(self) -> int:
        """Event time, emitted or not."""

    def passed(self, bundle: Bundle, target: Target) -> None:
        """Send records on, with what they mean for event time."""

    def periodic(self, target: Target) -> None:
        """Emit event time."""


@dataclass(frozen=True, slots=True)
class TimePlan:
    """What a watermark strategy says; travels to the tasks."""

    start: Callable[[RuntimeContext], Marking]
    assigner: object | None = None
    idle_ms: int | None = None
    alignment: AlignmentGroup | None = None
    interval_ms: int = 200
    """Between two watermarks; 0: none before the end."""
    keeps_own: bool = False
    """Watermarks that a source brings itself are passed on."""


class Bounded:
    """No record comes more than ``bound_ms`` behind the latest one; 0: times only go up."""

    def __init__(self, bound_ms: int) -> None:
        self.current_ms = MIN_WATERMARK_MS
        self._delay_ms = bound_ms + 1  # another record with the latest time may follow

    def passed(self, bundle: Bundle, target: Target) -> None:
        target.collect(bundle)
        highest_ms = highest_of(bundle.timestamps)
        if highest_ms is not None and highest_ms - self._delay_ms > self.current_ms:
            self.current_ms = highest_ms - self._delay_ms

    def periodic(self, target: Target) -> None:
        target.emit_watermark(self.current_ms)


class Silent:
    """No watermarks but the last one."""

    def __init__(self) -> None:
        self.current_ms = MIN_WATERMARK_MS

    def passed(self, bundle: Bundle, target: Target) -> None:
        target.collect(bundle)

    def periodic(self, target: Target) -> None:
        """Emits nothing."""


class CustomWatermarks:
    """A generator of the user."""

    def __init__(self, generator: object) -> None:
        on_event = getattr(generator, "on_event", None)
        on_periodic = getattr(generator, "on_periodic_emit", None)
        if on_event is None or on_periodic is None:
            raise TypeError(
                f"the supplier of a watermark strategy returned {generator!r}; "
                f"return a WatermarkGenerator, which has on_event and on_periodic_emit"
            )
        self._on_event: Callable[[Record, int, WatermarkOutput], object] = on_event
        self._on_periodic: Callable[[WatermarkOutput], object] = on_periodic
        self._emissions = _Emissions()

    @property
    def current_ms(self) -> int:
        return self._emissions.watermark_ms

    def passed(self, bundle: Bundle, target: Target) -> None:
        on_event, emissions = self._on_event, self._emissions
        records, times = bundle.records, bundle.timestamps
        known = times or [None] * len(records)
        sent = 0
        for number, (record, time) in enumerate(zip(records, known, strict=True), 1):
            on_event(record, MIN_WATERMARK_MS if time is None else time, emissions)
            if emissions.actions:
                target.collect(Bundle(records[sent:number], times and times[sent:number]))
                sent = number
                emissions.send(target)
        if not sent:
            target.collect(bundle)
        elif sent < len(records):
            target.collect(Bundle(records[sent:], times and times[sent:]))

    def periodic(self, target: Target) -> None:
        self._on_periodic(self._emissions)
        self._emissions.send(target)


class _Emissions(WatermarkOutput):
    """Keeps what a generator emits until the records before it are sent."""

    def __init__(self) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.actions: list[Callable[[Target], None]] = []

    def emit_watermark(self, watermark: Watermark) -> None:
        watermark_ms = checked_watermark(watermark, "a watermark generator").timestamp_ms
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        self.actions.append(lambda target: target.emit_watermark(watermark_ms))

    def mark_idle(self) -> None:
        self.actions.append(lambda target: target.mark_idle())

    def mark_active(self) -> None:
        self.actions.append(lambda target: target.mark_active())

    def send(self, target: Target) -> None:
        actions, self.actions = self.actions, []
        for action in actions:
            action(target)


def checked_watermark(watermark: Record, whose: str) -> Watermark:
    """What a user's code has emitted."""
    if not isinstance(watermark, Watermark) or type(watermark.timestamp_ms) is not int:
        raise TypeError(f"{whose} emitted {watermark!r}; give Watermark(milliseconds)")
    if not MIN_WATERMARK_MS <= watermark.timestamp_ms <= MAX_WATERMARK_MS:
        raise ValueError(f"{whose} emitted {watermark!r}, which does not fit into 64 bits")
    return watermark


def silent(context: RuntimeContext) -> Marking:
    """For strategies without watermarks, and for batch jobs."""
    return Silent()


OWN_TIME: Final = TimePlan(silent, interval_ms=0, keeps_own=True)
"""The plan of a source without a strategy."""


def time_plan(strategy: WatermarkStrategy, interval_ms: int, batch: bool) -> TimePlan:
    """What tasks do; a batch job has no event time but that of its records and its end."""
    if batch:
        return TimePlan(silent, strategy.assigner, interval_ms=0)
    start: Callable[[RuntimeContext], Marking] = silent
    if strategy.supplier is not None:
        start = partial(_custom, strategy.supplier)
    elif strategy.bound_ms is not None:
        start = partial(_bounded, strategy.bound_ms)
    return TimePlan(start, strategy.assigner, strategy.idle_ms, strategy.alignment, interval_ms)


def source_time_plan(strategy: WatermarkStrategy | None, interval_ms: int, batch: bool) -> TimePlan:
    """Without a strategy a source may emit watermarks itself, except in a batch job."""
    if strategy is not None:
        return time_plan(strategy, interval_ms, batch)
    return TimePlan(silent, interval_ms=0) if batch else OWN_TIME


def _bounded(bound_ms: int, context: RuntimeContext) -> Marking:
    return Bounded(bound_ms)


def _custom(supplier: Callable[[RuntimeContext], object], context: RuntimeContext) -> Marking:
    return CustomWatermarks(supplier(context))


IDLE: Final = StreamStatus(active=False)


class TimedOutput:
    """An output with the law of event time: it never goes back.

    What was marked idle becomes active before its next record or watermark.
    """

    def __init__(self, output: Output) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._output = output

    def collect(self, bundle: Bundle) -> None:
        if not self.active:
            self.mark_active()
        self._output.collect(bundle)

    def emit_watermark(self, watermark_ms: int) -> None:
        if watermark_ms > self.watermark_ms:
            self.mark_active()
            self.watermark_ms = watermark_ms
            self._output.emit_watermark(Watermark(watermark_ms))

    def mark_idle(self, status: StreamStatus = IDLE) -> None:
        if self.active:
            self.active = False
            self._output.emit_status(status)

    def mark_active(self) -> None:
        if not self.active:
            self.active = True
            self._output.emit_status(StreamStatus(active=True))


class Stamper:
    """Gives the records of a bundle the times that an assigner says; without one they keep theirs.

    An assigner is a TimestampAssigner or a plain callable with the same two arguments.
    """

    def __init__(self, assigner: object | None) -> None:
        self._extract = (
            None if assigner is None else UserFunction(assigner, "extract_timestamp").call
        )
        self._part = part_of(self._extract, parameters=2)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether the times of records with so many fields are among these."""
        return self._extract is None or self._time_place(shape, count) is not None

    def _time_place(self, shape: FieldShape, count: int) -> int | None:
        part = self._part
        return None if part is None else shape.place(part.name, part.is_attribute, count)

    def stamped(self, bundle: Bundle, streak: FailureStreak | None = None) -> Bundle:
        """The records with their times; ``streak`` takes those that get none."""
        extract, fields = self._extract, bundle.fields
        if extract is None:
            return bundle
        if streak is not None:
            return self._stamped_on(bundle, extract, streak)
        at = None if fields is None else self._time_place(fields.shape, len(fields.places))
        if fields is not None and at is not None:
            items = fields.places[at]
            times = list(items) if type(items) is list else [items[0]] * fields.count
            return Bundle.of_fields(fields, _checked(times))
        records, before = bundle.records, bundle.timestamps
        if before is None:
            times = [extract(record, MIN_WATERMARK_MS) for record in records]
        else:
            known = [MIN_WATERMARK_MS if time is None else time for time in before]
            times = list(map(extract, records, known))
        return Bundle(records, _checked(times))

    def _stamped_on(
        self, bundle: Bundle, extract: Callable[..., Record], streak: FailureStreak
    ) -> Bundle:
        """The records with their times, without those whose time cannot be taken."""
        before = bundle.timestamps or [None] * len(bundle.records)
        known = [MIN_WATERMARK_MS if time is None else time for time in before]
        times, failed = attempt(
            zip(bundle.records, known, strict=True),
            lambda pairs: (extract(*pair) for pair in pairs),
            bundle,
            streak,
        )
        bundle = bundle_without(bundle, failed) if failed else bundle
        try:
            return Bundle(bundle.records, _checked(times))
        except (TypeError, ValueError):  # each alone, to learn which ones are no times
            times, failed = attempt(
                iter(times), lambda some: (_checked([time])[0] for time in some), bundle, streak
            )
            return Bundle(without(bundle.records, failed), times)


def highest_of(times: Sequence[int | None] | None) -> int | None:
    """The latest of the times of a bundle; None: it has none."""
    if not times:
        return None
    try:
        return max(times)  # type: ignore[type-var]  # mostly there is no None among them
    except TypeError:
        return max((time for time in times if time is not None), default=None)


def _checked(times: list[Record]) -> list[int | None]:
    if set(map(type, times)) != {int}:
        times = [_whole(time) for time in times]
    if not times:
        return []
    least = min(times)
    if least <= MIN_WATERMARK_MS or max(times) > MAX_WATERMARK_MS:
        return [_fitting(time) for time in times]
    return times


def _whole(time: Record) -> int:
    """Numbers of numpy and the like are whole numbers too; parts of a millisecond are cut off."""
    try:
        return int(time) if isinstance(time, float) else index(time)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"a timestamp assigner returned {time!r}, a {type(time).__name__}; "
            f"return milliseconds since 1970 as a number"
        ) from None


def _fitting(time: int) -> int | None:
    if time == MIN_WATERMARK_MS:
        return None  # as users say that there is no time
    if not MIN_WATERMARK_MS < time <= MAX_WATERMARK_MS:
        raise ValueError(
            f"a timestamp assigner returned {time}, which does not fit into 64 bits; "
            f"return milliseconds since 1970"
        )
    return time
