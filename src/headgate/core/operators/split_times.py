"""Event time of a source task: the least of what its splits say.

Law: what comes out never goes back. A split counts from the start, also before its first record, so
that no record of a split that is read late is late; it does not count while it is idle, nor after
its end. When all that are left are idle, the furthest comes out first: nobody waits for anybody.
"""

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.core.chain.operator import Output
from headgate.core.chain.watermarks import TimedOutput


class SplitTimes:
    """Puts the shares of the splits together."""

    def __init__(self, output: Output) -> None:
        self.target = TimedOutput(output)
        self.shares: list[SplitEventTime] = []
        """Of splits that have not ended."""

    def add(self) -> "SplitEventTime":
        """Of one more split."""
        self.shares.append(SplitEventTime(self))
        return self.shares[-1]

    def ended(self, share: "SplitEventTime") -> None:
        """Nothing follows from a split; the others do not wait for it."""
        self.shares.remove(share)
        self.advance()

    def advance(self) -> None:
        """Tell what the shares come to."""
        if not self.shares:
            return
        told_ms = self.target.watermark_ms
        for share in self.shares:  # of many files the next one holds back all, and is the first
            if share.active and share.watermark_ms <= told_ms:
                return
        counting = [share.watermark_ms for share in self.shares if share.active]
        if counting:
            self.target.emit_watermark(min(counting))
        elif self.target.active:
            self.target.emit_watermark(max(share.watermark_ms for share in self.shares))
            self.target.mark_idle()


class SplitEventTime:
    """What one split brings; a target for its generator."""

    __slots__ = ("_times", "active", "watermark_ms")

    def __init__(self, times: SplitTimes) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.active = True
        self._times = times

    def collect(self, bundle: Bundle) -> None:
        self.active = True
        self._times.target.collect(bundle)

    def emit_watermark(self, watermark_ms: int) -> None:
        before_ms = self.watermark_ms
        if watermark_ms > before_ms:
            self.active = True
            self.watermark_ms = watermark_ms
            if before_ms <= self._times.target.watermark_ms:  # others wait for this one, perhaps
                self._times.advance()

    def mark_idle(self) -> None:
        if self.active:
            self.active = False
            self._times.advance()

    def mark_active(self) -> None:
        if not self.active:
            self.active = True
            self._times.target.mark_active()
