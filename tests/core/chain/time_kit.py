"""What the tests of event time are made of: an output that keeps one order, a clock by hand."""

from collections.abc import Callable
from typing import Any

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import (
    Bounded,
    CustomWatermarks,
    Marking,
    TimePlan,
)
from headgate.functions.context import RuntimeContext, TaskInfo
from headgate.functions.watermarks import WatermarkGenerator, WatermarkOutput

IDLE, ACTIVE = StreamStatus(active=False), StreamStatus(active=True)


class Line:
    """An output that keeps records (with their times), watermarks and statuses in one list."""

    def __init__(self) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.seen: list[Any] = []

    def collect(self, bundle: Bundle) -> None:
        times = bundle.timestamps or [None] * len(bundle.records)
        self.seen += zip(bundle.records, times, strict=True)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        raise AssertionError("nobody sends to the side here")

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        self.seen.append(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self.seen.append(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self.seen.append(marker)

    def take(self) -> list[Any]:
        """What came since the last call."""
        seen, self.seen = self.seen, []
        return seen


class HandClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.held_up_ms = 0.0
        self.reports: list[tuple[str, int | None]] = []
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._due.append((self.now_ms + delay_ms, action))

    @property
    def waiting(self) -> int:
        return len(self._due)

    def pass_ms(self, span_ms: int) -> None:
        """One millisecond after the other, so that each action sees its own time."""
        for _ in range(span_ms):
            self.now_ms += 1
            due = [action for at, action in self._due if at <= self.now_ms]
            self._due = [(at, action) for at, action in self._due if at > self.now_ms]
            for action in due:
                action()

    def context(self, subtask: int = 0, parallelism: int = 1) -> OperatorContext:
        return OperatorContext(
            "op",
            TaskInfo("job", "vertex", subtask, parallelism),
            lambda: self.now_ms,
            self.later,
            held_up_ms=lambda: self.held_up_ms,
            tell_time=lambda group, watermark_ms: self.reports.append((group, watermark_ms)),
        )


def open_with(operator: Operator, clock: HandClock) -> Line:
    """The operator, ready for elements; answers with its output."""
    line = Line()
    operator.set_up(line)
    operator.open(clock.context())
    return line


def by_first(record: Any, before: int) -> int:
    """The time of a record is its first field."""
    return record[0]  # type: ignore[no-any-return]


def bounded(bound_ms: int = 0, **fields: Any) -> TimePlan:
    def start(context: RuntimeContext) -> Marking:
        return Bounded(bound_ms)

    return TimePlan(start, **{"assigner": by_first, **fields})


def custom(make: Callable[[], WatermarkGenerator], **fields: Any) -> TimePlan:
    def start(context: RuntimeContext) -> Marking:
        return CustomWatermarks(make())

    return TimePlan(start, **{"assigner": by_first, **fields})


def records(*times: int) -> Bundle:
    """Records whose first field is their time to be."""
    return Bundle([(time,) for time in times])


def timed(*times: int) -> list[Any]:
    """How they look on a line."""
    return [((time,), time) for time in times]


class ScriptedGenerator(WatermarkGenerator):
    """Says what the test tells it to."""

    def __init__(
        self,
        for_event: Callable[[Any, int, WatermarkOutput], None] = lambda event, time, output: None,
        now_and_then: Callable[[WatermarkOutput], None] = lambda output: None,
    ) -> None:
        self._for_event = for_event
        self._now_and_then = now_and_then

    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        self._for_event(event, timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self._now_and_then(output)
