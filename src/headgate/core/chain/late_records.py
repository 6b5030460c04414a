"""Records that came too late for event time: they go to a side output, or are counted and dropped.

Law: the late records of a bundle leave together, with their times.
"""

from headgate.base.elements import Bundle, Record
from headgate.core.chain.operator import Output


class LateRecords:
    """Of one input; ``tag`` is the id of their side output, None: they are dropped."""

    def __init__(self, tag: str | None, output: Output) -> None:
        self.dropped = 0
        self._tag = tag
        self._output = output
        self._records: list[Record] = []
        self._times: list[int | None] = []

    def take(self, record: Record, timestamp: int) -> None:
        """One of them."""
        if self._tag is None:
            self.dropped += 1
        else:
            self._records.append(record)
            self._times.append(timestamp)

    def flush(self) -> None:
        """Send on what was collected."""
        if self._records and self._tag is not None:
            late = Bundle(self._records, self._times)
            self._records, self._times = [], []
            self._output.collect_side(self._tag, late)
