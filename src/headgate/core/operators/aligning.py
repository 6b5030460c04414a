"""Alignment of a source task with the others of its group, which may run anywhere.

Every now and then the task tells how far it is, and the driver announces how far the slowest of the
group is. Law: what is further ahead than the drift is not read, and before the first announcement
nothing behind the first records; who waits asks nobody, the next announcement says when to go on.
"""

from collections.abc import Callable

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.watermarks import AlignmentGroup


class Aligned:
    """Reports by the clock; knows how far its splits may read."""

    def __init__(
        self,
        alignment: AlignmentGroup,
        context: OperatorContext,
        least_ms: Callable[[], int | None],
    ) -> None:
        """``least_ms`` tells how far the slowest split is, None: there is none to wait for."""
        self.limit_ms = MIN_WATERMARK_MS  # until somebody has said how far the others are
        """A split that is further than this waits."""
        self._alignment = alignment
        self._context = context
        self._least_ms = least_ms
        self._told_ms: int | None = None
        self._closed = False
        self._report()

    def announced(self, group: str, watermark_ms: int | None) -> None:
        """How far the slowest of a group is; None: there is nobody to wait for."""
        if group == self._alignment.group:
            ahead_ms = MAX_WATERMARK_MS if watermark_ms is None else watermark_ms
            self.limit_ms = min(MAX_WATERMARK_MS, ahead_ms + self._alignment.drift_ms)

    def paused(self) -> None:
        """Nothing is read any more. Who waits because nobody had begun tells at once that it has.

        Otherwise the next report would bring the start of all, perhaps a second later.
        """
        if self._told_ms == MIN_WATERMARK_MS:
            self._tell()

    def close(self) -> None:
        """Report no more."""
        self._closed = True

    def _report(self) -> None:
        if not self._closed:
            self._tell()
            self._context.later(self._alignment.interval_ms, self._report)

    def _tell(self) -> None:
        self._told_ms = self._least_ms()
        self._context.tell_time(self._alignment.group, self._told_ms)
