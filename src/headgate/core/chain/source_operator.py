"""The source operator: reads the splits of one task in turn and sends what they give.

Law: it never blocks; a split that has nothing now does not keep the others from being read; when
all splits have ended the largest watermark goes out and the source is done.
"""

from collections import deque
from contextlib import ExitStack
from enum import Enum
from typing import Final

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.owning import own_all
from headgate.core.chain.source import Source, SplitReader

POLL_RECORDS: Final = 1024


class Polled(Enum):
    """How a poll ended."""

    RECORDS = "some records went out"
    NOTHING = "nothing now; see wait_ms"
    ENDED = "all splits are read"


class SourceOperator(Operator):
    """``splits`` holds the splits of all tasks; this one takes its share."""

    inputs = 0

    def __init__(self, source: Source, splits: tuple[object, ...]) -> None:
        self._source = source
        self._splits = splits
        self._readers: deque[SplitReader] = deque()
        self.wait_ms = 0.0
        """After NOTHING: when to poll again."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        task = context.task
        for split in self._splits[task.subtask :: task.parallelism]:
            self._readers.append(self._source.open(split, None, context))

    def poll(self, limit: int = POLL_RECORDS) -> Polled:
        """Send on what the next split that has something gives."""
        readers = self._readers
        wait_ms = _LONG_MS
        for _ in range(len(readers)):
            reader = readers[0]
            found = reader.poll(limit)
            if found is None:
                readers.popleft()
                reader.close()
                wait_ms = 0.0
                continue
            bundle = found if isinstance(found, Bundle) else Bundle(list(found))
            if bundle.records:
                if not self._source.bounded:
                    readers.rotate(-1)  # of splits that end, one after the other is open
                if not self.reuses_objects and not getattr(reader, "gives_away", False):
                    bundle = Bundle(own_all(bundle.records), bundle.timestamps)
                self.output.collect(bundle)
                return Polled.RECORDS
            wait_ms = min(wait_ms, reader.wait_ms())
            readers.rotate(-1)
        self.wait_ms = wait_ms
        return Polled.NOTHING if readers else Polled.ENDED

    def finish(self) -> None:
        self.output.emit_watermark(Watermark(MAX_WATERMARK_MS))

    def close(self) -> None:
        with ExitStack() as last:  # whatever one of them raises, the others are closed too
            while self._readers:
                last.callback(self._readers.popleft().close)


_LONG_MS: Final = 1000.0
