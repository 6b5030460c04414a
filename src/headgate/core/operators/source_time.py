"""Event time of a source task: each split has its own, and the minimum over those goes out."""

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.core.chain.operator import Output
from headgate.core.chain.watermarks import TimedOutput


class SplitWatermarks:
    """The watermark of the task: the minimum over its splits that are not idle."""

    def __init__(self, output: Output) -> None:
        self.target = TimedOutput(output)
        self.shares: list[SplitWatermark] = []  # of splits that have not ended
        self.ended_ms = MIN_WATERMARK_MS  # of those that have, the furthest

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
        elif self.target.active:
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
