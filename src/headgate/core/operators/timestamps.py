"""The operator of ``assign_timestamps_and_watermarks``: event time begins anew here.

Law: watermarks and statuses of before are not passed on, only the end of event time is; watermarks
go out at intervals, or right after the record for which the user's generator emitted them; after
the end of the input, or a failure, no timer does anything.
"""

from typing import Final

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, StreamStatus, Watermark
from headgate.base.fields import FieldShape
from headgate.core.chain.context import OperatorContext, OperatorRuntimeContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import takes_fields
from headgate.core.chain.watermarks import (
    CustomWatermarks,
    Marking,
    Stamper,
    TimedOutput,
    TimePlan,
)

SHORTEST_REST_MS: Final = 1.0


class TimedOperator(Operator):
    """In its place after a source that has applied the strategy to each of its splits."""

    def process(self, bundle: Bundle, number: int) -> None:
        self.output.collect(bundle)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        return takes_fields(self.output, shape, count)


class TimestampsOperator(Operator):
    """Gives records their times and makes watermarks, as a strategy says."""

    _marking: Marking

    def __init__(self, plan: TimePlan) -> None:
        self._plan = plan
        self._stamper = Stamper(plan.assigner)
        self._over = False
        self._active_ms = 0.0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._target = TimedOutput(self.output)
        self._streak = None if self.failures is None else self.failures.streak()
        self._marking = self._plan.start(OperatorRuntimeContext(context))
        self._awaits_idle = self._is_idle = False
        if self._plan.interval_ms:
            context.later(self._plan.interval_ms, self._tick)
        if self._plan.idle_ms is not None:
            self._record_passed()

    def process(self, bundle: Bundle, number: int) -> None:
        stamped = self._stamper.stamped(bundle, self._streak)
        if len(stamped):
            self._marking.passed(stamped, self._target)
        if self._plan.idle_ms is not None:
            self._record_passed()

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        is_own = self._streak is None and type(self._marking) is not CustomWatermarks
        takes_times = is_own and self._stamper.takes_fields(shape, count)
        return takes_times and takes_fields(self.output, shape, count)

    def watermark_advanced(self, watermark: Watermark) -> None:
        if watermark.timestamp_ms == MAX_WATERMARK_MS:
            self._end()

    def status_changed(self, status: StreamStatus) -> None:
        """Whether this stream is idle is for the strategy to say."""

    def finish(self) -> None:
        self._end()

    def close(self) -> None:
        self._over = True

    def _end(self) -> None:
        """Timers and windows that are left see the end, and nothing in between."""
        if not self._over:
            self._over = True
            self._target.emit_watermark(MAX_WATERMARK_MS)

    def _tick(self) -> None:
        if not self._over:
            if not self._is_idle:
                self._marking.periodic(self._target)
            self.context.later(self._plan.interval_ms, self._tick)

    # Idleness.

    def _record_passed(self) -> None:
        """A record has passed: the time without any begins now."""
        self._active_ms, self._is_idle = self._now_ms(), False
        if not self._awaits_idle:
            self._await_idle(self._plan.idle_ms or 0)

    def _await_idle(self, wait_ms: float) -> None:
        self._awaits_idle = True
        self.context.later(wait_ms, self._check_idle)

    def _check_idle(self) -> None:
        if self._over:
            return
        self._awaits_idle = False
        idle_ms = self._plan.idle_ms or 0
        quiet_ms = self._now_ms() - self._active_ms
        if quiet_ms < idle_ms:
            # While it is held up no time counts, and it would look again and again for a rest.
            self._await_idle(max(SHORTEST_REST_MS, idle_ms - quiet_ms))
            return
        if self._plan.interval_ms:
            self._marking.periodic(self._target)
        self._target.mark_idle()
        self._is_idle = True

    def _now_ms(self) -> float:
        # Time under backpressure does not count: records may have been waiting.
        return self.context.now_ms() - self.context.held_up_ms()
