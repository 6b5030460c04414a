"""The flusher: makes half-full buffers readable after the buffer timeout.

Law: no committed byte waits longer than the timeout. It has no thread; the driver calls ``tick``
when ``next_deadline_ms`` has come. What goes wrong there is remembered and raised at the next emit.
"""

from headgate.base.errors import FlushFailed
from headgate.core.egress.writer import RecordWriter


class Flusher:
    """Flushes one writer by time; named after its task."""

    def __init__(self, name: str, writer: RecordWriter, now_ms: float) -> None:
        self.name = f"flusher of {name}"
        self.error: Exception | None = None
        self._writer = writer
        self._period_ms = writer.timeout_ms
        self._next_ms = now_ms + self._period_ms
        writer.flush_error = self.raise_error

    @property
    def next_deadline_ms(self) -> float | None:
        """When to tick next; None: never (the writer flushes itself, or only full buffers go)."""
        return self._next_ms if self._period_ms > 0 and self.error is None else None

    def tick(self, now_ms: float) -> None:
        """Flush if it is time to."""
        if self.next_deadline_ms is None or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._period_ms
        try:
            self._writer.flush_all()
        except Exception as error:
            self.error = error

    def raise_error(self) -> None:
        """Raise what a tick has met, if anything."""
        if self.error is not None:
            raise FlushFailed(f"{self.name} failed: {self.error}") from self.error
