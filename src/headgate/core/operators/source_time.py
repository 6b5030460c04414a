"""Event time of a source task: of its splits, with other tasks of its source, with other sources.

Each split has its own event time; the minimum over those that are not idle goes out and never goes
back. Tasks of an endless source that get splits while they run share theirs through the driver.
Law: a task that has nothing to read emits what the others have emitted before, so that the stream
as a whole never passes a split that is known and on its way to a task. It falls idle when all tasks
have nothing to read, and counts again as soon as one of them has something.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, StreamStatus
from headgate.base.messages import SourceTimeAnnounced
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Output
from headgate.core.chain.watermarks import TimedOutput
from headgate.functions.watermarks import AlignmentGroup

REPORT_MS: Final = 100.0
"""Between two reports of a task that only moves on."""


class SplitWatermarks:
    """The watermark of the task: the minimum over its splits that are not idle."""

    def __init__(self, output: Output) -> None:
        self.target = TimedOutput(output)
        self.is_alone = True
        """It falls idle by itself, not together with the other tasks of its source."""
        self.shares: list[SplitWatermark] = []  # of splits that have not ended
        self.ended_ms = MIN_WATERMARK_MS  # of those that have, the furthest

    @property
    def rests(self) -> bool:
        """Whether no split counts: none is there, or all are idle."""
        return not any(share.active for share in self.shares)

    @property
    def furthest_ms(self) -> int:
        """What any split has reached, ended or not."""
        return max([self.ended_ms, *(share.watermark_ms for share in self.shares)])

    def add(self) -> "SplitWatermark":
        """For one more split."""
        self.shares.append(SplitWatermark(self))
        return self.shares[-1]

    def ended(self, share: "SplitWatermark") -> None:
        """Nothing follows from a split; the others do not wait for it."""
        self.shares.remove(share)
        self.ended_ms = max(self.ended_ms, share.watermark_ms)
        self.advance()

    def advance(self) -> None:
        """Emit the combined watermark, if it has moved."""
        if not self.shares:
            return
        emitted_ms = self.target.watermark_ms
        for share in self.shares:  # of many files the first unread one holds back all
            if share.active and share.watermark_ms <= emitted_ms:
                return
        counting = [share.watermark_ms for share in self.shares if share.active]
        if counting:
            self.target.emit_watermark(min(counting))
        elif self.target.active and self.is_alone:
            self.target.emit_watermark(max(share.watermark_ms for share in self.shares))
            self.target.mark_idle()


class SplitWatermark:
    """The watermark of one split, which its generator writes to."""

    __slots__ = ("_times", "active", "watermark_ms")

    def __init__(self, times: SplitWatermarks) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._times = times

    def collect(self, bundle: Bundle) -> None:
        self.active = True
        self._times.target.collect(bundle)

    def emit_watermark(self, watermark_ms: int) -> None:
        before_ms = self.watermark_ms
        if watermark_ms > before_ms:
            self.mark_active()
            self.watermark_ms = watermark_ms
            if before_ms <= self._times.target.watermark_ms:  # it may have held back the others
                self._times.advance()

    def mark_idle(self) -> None:
        if self.active:
            self.active = False
            self._times.advance()

    def mark_active(self) -> None:
        if not self.active:
            self.active = True
            self._times.target.mark_active()


class SharedTime:
    """What a task tells the driver of its event time, and hears of the tasks of its source."""

    def __init__(
        self,
        times: SplitWatermarks,
        context: OperatorContext,
        received: Callable[[], int],
        idle_ms: int | None,
    ) -> None:
        """``received``: splits that were assigned so far; ``idle_ms``: of its strategy."""
        times.is_alone = False
        self._times = times
        self._context = context
        self._received = received
        self._idle_ms = idle_ms
        self._announced: SourceTimeAnnounced | None = None
        self._followed = self._awaits_report = self._awaits_idleness = self._over = False
        self._idle_since_ms = inf
        self._reported = 0, MIN_WATERMARK_MS, False  # what the driver takes for granted
        self._reported_at_ms = -inf

    def announced(self, announced: SourceTimeAnnounced) -> None:
        """The driver has told how far the others are; it counts with the next poll."""
        self._announced, self._followed = announced, announced.followed

    def follow(self) -> None:
        """If there is nothing to read, emit what the others have."""
        announced, self._announced = self._announced, None
        times = self._times
        if announced is None or not times.rests:
            return
        times.target.emit_watermark(announced.watermark_ms)
        if announced.all_rest and times.target.active:
            times.target.mark_idle(StreamStatus(False, True, awaits_splits=not times.shares))
            self._idle_since_ms = self._context.elapsed_ms()
            self._declare_idle_later()

    def report(self) -> None:
        """Tell the driver what has changed; how far the task is only if others follow it."""
        if self._over:
            return
        times, before = self._times, self._reported
        rests = times.rests
        if not rests:
            times.target.mark_active()
        reached_ms = times.furthest_ms if rests else times.target.watermark_ms
        now = self._received(), reached_ms, rests
        if now == before:
            return
        if (now[0], rests) == (before[0], before[2]) and not self._may_move_on():
            return
        self._reported, self._reported_at_ms = now, self._context.elapsed_ms()
        self._context.tell_source_time(*now)

    def close(self) -> None:
        """Report no more."""
        self._over = True

    def _declare_idle_later(self) -> None:
        if self._idle_ms is not None and not self._awaits_idleness:
            self._awaits_idleness = True
            wait_ms = self._idle_since_ms + self._idle_ms - self._context.elapsed_ms()
            self._context.later(wait_ms, self._declare_idle)

    def _declare_idle(self) -> None:
        """It awaits splits no longer, if it has found none for the time of its strategy."""
        self._awaits_idleness = False
        times = self._times
        if self._over or times.target.active or times.shares:
            return
        if self._context.elapsed_ms() < self._idle_since_ms + (self._idle_ms or 0):
            self._declare_idle_later()
            return
        times.target.mark_active()
        times.target.mark_idle(StreamStatus(False, True))

    def _may_move_on(self) -> bool:
        if not self._followed:
            return False
        wait_ms = self._reported_at_ms + REPORT_MS - self._context.elapsed_ms()
        if wait_ms > 0 and not self._awaits_report:
            self._awaits_report = True
            self._context.later(wait_ms, self._report_later)
        return wait_ms <= 0

    def _report_later(self) -> None:
        self._awaits_report = False
        self.report()


class SourceAlignment:
    """Keeps the splits of a task near those of its alignment group, which may run anywhere.

    It reports the task's event time at intervals; the driver announces that of the slowest. Law: a
    split further ahead than the drift is not read, and before the first announcement none beyond
    its first records.
    """

    def __init__(
        self,
        alignment: AlignmentGroup,
        context: OperatorContext,
        least_ms: Callable[[], int | None],
    ) -> None:
        """``least_ms`` returns the event time of the slowest split; None: all are idle."""
        self.limit_ms = MIN_WATERMARK_MS
        """A split that is further than this waits."""
        self._alignment = alignment
        self._context = context
        self._least_ms = least_ms
        self._reported_ms: int | None = None
        self._closed = False
        self._report()

    def announced(self, group: str, watermark_ms: int | None) -> None:
        """The event time of the slowest task of a group; None: all are idle."""
        if group == self._alignment.group:
            ahead_ms = MAX_WATERMARK_MS if watermark_ms is None else watermark_ms
            self.limit_ms = min(MAX_WATERMARK_MS, ahead_ms + self._alignment.drift_ms)

    def paused(self) -> None:
        """All splits wait. If none had begun at the last report, report at once.

        Otherwise all tasks would start with the next report, perhaps a second later.
        """
        if self._reported_ms == MIN_WATERMARK_MS:
            self._send_report()

    def close(self) -> None:
        """Report no more."""
        self._closed = True

    def _report(self) -> None:
        if not self._closed:
            self._send_report()
            self._context.later(self._alignment.interval_ms, self._report)

    def _send_report(self) -> None:
        self._reported_ms = self._least_ms()
        self._context.tell_time(self._alignment.group, self._reported_ms)
