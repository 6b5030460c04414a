"""Records that came too late for event time: they go to a side output, or are counted and dropped.

Law: the late records of a bundle leave together, with their times. What is dropped is counted for
the whole operator, with how much too late the latest came, and written to the log: at once, then
ever less often.
"""

from typing import Final

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Output
from headgate.core.chain.warning_pace import WarningPace

METRIC: Final = "numLateRecordsDropped"


class LateDrops:
    """What one operator of a task has dropped because it came too late."""

    def __init__(self, context: OperatorContext) -> None:
        self.count = 0
        self.most_ms = 0
        """How much too late the latest came: had the watermark been so much lower, or were so much
        more lateness allowed, nothing would have been dropped. 0: event time had ended."""
        self.last_ms = 0
        """The same of the last late records, also of those that went to a side output."""
        self._context = context
        self._pace = WarningPace()
        context.metrics.gauge(METRIC, lambda: self.count)

    def add(self, count: int, late_ms: int) -> None:
        """So many more, the latest of which came ``late_ms`` too late."""
        self.count += count
        self.most_ms = max(self.most_ms, late_ms)
        self._write(self._pace.count(count, self._context.elapsed_ms()))

    def close(self) -> None:
        """Write of those that no line was about yet."""
        self._write(self._pace.rest())

    def _write(self, count: int) -> None:
        if not count:
            return
        task = self._context.task
        dropped = f"{count:,} records came too late and were dropped"
        if count == 1:
            dropped = "1 record came too late and was dropped"
        self._context.warn(
            f"operator {self._context.operator!r} ({task.subtask + 1}/{task.parallelism}): "
            f"{dropped}, {self.count:,} so far, {self._how_late}, or give late records a side "
            f"output",
            None,
        )

    @property
    def _how_late(self) -> str:
        if not self.most_ms:
            return (
                "after the end of event time; do not let event time end in one input while "
                "another one still has records"
            )
        return (
            f"up to {self.most_ms:,} ms too late; allow more out-of-orderness in the watermark "
            f"strategy or more lateness"
        )


def how_late(watermark_ms: int, until_ms: int) -> int:
    """By how much something is too late that the watermark ``until_ms`` is the first to exclude.

    0 after the end of event time: no lateness would have helped.
    """
    return 0 if watermark_ms == MAX_WATERMARK_MS else watermark_ms - until_ms + 1


class LateRecords:
    """Of one input; ``tag`` is the id of their side output, None: they are dropped."""

    def __init__(self, tag: str | None, output: Output, drops: LateDrops) -> None:
        self._tag = tag
        self._output = output
        self._drops = drops
        self._records: list[Record] = []
        self._times: list[int | None] = []
        self._until_ms = MAX_WATERMARK_MS

    def take(self, record: Record, timestamp: int, until_ms: int) -> None:
        """One of them; with a watermark below ``until_ms`` it would not have been late."""
        self._records.append(record)
        self._times.append(timestamp)
        if until_ms < self._until_ms:
            self._until_ms = until_ms

    def flush(self, watermark_ms: int) -> None:
        """Send on what was collected, or count it."""
        if not self._records:
            return
        late = Bundle(self._records, self._times)
        self._drops.last_ms = how_late(watermark_ms, self._until_ms)
        self._records, self._times, self._until_ms = [], [], MAX_WATERMARK_MS
        if self._tag is None:
            self._drops.add(len(late.records), self._drops.last_ms)
        else:
            self._output.collect_side(self._tag, late)
