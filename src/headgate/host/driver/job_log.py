"""The log of one job in the driver: the driver's own lines about it, and those of its workers.

The newest lines are kept, for ``headgate logs`` and the page. Law: lines have growing numbers, the
oldest make room for new ones, and a program that has set up no logging sees what it would have seen
without this. On a cluster, where nobody looks at what workers write, their lines are written to the
driver's log as well.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from headgate.base.job_records import LogLine
from headgate.host.net.loop import wall_ms
from headgate.host.shipping.log_lines import facts_of, line_bytes, line_of, show_if_alone

log = logging.getLogger(__name__)

MOST_LINES: Final = 2_000
MOST_BYTES: Final = 1024 * 1024
MOST_RECEIVED: Final = 1_000
"""Lines of all workers together that are taken in a second; the others are counted."""
MOST_WAITING: Final = 1_000
"""Lines that wait to be written to the driver's log; the others are only kept."""
LAST_S: Final = 2.0
"""How long the end of a job waits for those lines."""
DRIVER: Final = "driver"
OURS: Final = "headgate"
"""The logger above all of Headgate's own."""
_FORWARDED: Final = "headgate_forwarded"


class JobLog:
    """The newest lines of a job; any thread may call any method."""

    def __init__(self, job: str, job_id: str, *, forwards: bool = False) -> None:
        """``forwards``: lines of workers are written to the driver's log, too."""
        self.job_id = job_id
        self._job = job
        self._forwards = forwards
        self._lock = threading.RLock()  # a collection of garbage in the middle may log, too
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._next = 1
        self._second_ends = 0.0
        self._received = self._left_out = 0
        self._waiting: deque[LogLine] = deque()
        self._writer: threading.Thread | None = None

    def open(self) -> None:
        """From now on the driver's own lines about the job are kept."""
        _driver_lines.add(self)

    def close(self) -> None:
        """No more of them; those that there are stay. Idempotent."""
        _driver_lines.remove(self)
        self._say_left_out()
        if (writer := self._writer) is not None:
            writer.join(LAST_S)

    def lines(self, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Lines with a number above ``after``, the oldest first."""
        with self._lock:
            return [line for line in self._lines if line.number > after][: max(0, limit)]

    def add(self, line: LogLine) -> None:
        """Keep a line; the oldest ones make room for it."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._lines.append(structs.replace(line, number=number))
            self._bytes += line_bytes(line)
            while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
                self._bytes -= line_bytes(self._lines.popleft())

    def received(self, lines: Sequence[LogLine]) -> None:
        """Lines of a worker have come; a thousand workers that all complain cost a bounded time."""
        with self._lock:
            now = time.monotonic()
            if now >= self._second_ends:
                self._second_ends, self._received = now + 1.0, 0
                self._say_left_out()
            taken = lines[: max(0, MOST_RECEIVED - self._received)]
            self._received += len(taken)
            self._left_out += len(lines) - len(taken)
        for line in taken:
            self.add(line)
        if self._forwards and taken:
            self._forward_soon(taken)

    def _say_left_out(self) -> None:
        with self._lock:
            left_out, self._left_out = self._left_out, 0
            if left_out:
                text = f"… {left_out:,} lines of workers were left out here"
                at_ms = wall_ms()
                self.add(LogLine(0, at_ms, "WARNING", __name__, text, host=DRIVER))

    def _forward_soon(self, lines: Sequence[LogLine]) -> None:
        """On another thread: a handler of the program's may be slow, and messages wait for us."""
        with self._lock:
            self._waiting.extend(lines[: max(0, MOST_WAITING - len(self._waiting))])
            if self._writer is None:
                writer = threading.Thread(
                    target=self._forward_all, name=f"headgate-log-{self.job_id}", daemon=True
                )
                writer.start()
                self._writer = writer

    def _forward_all(self) -> None:
        while (line := self._next_waiting()) is not None:
            try:
                self._forward(line)
            except Exception as error:  # whatever the program's own loggers do
                log.debug("a line of a worker cannot be written: %r", error)

    def _next_waiting(self) -> LogLine | None:
        """None: the thread ends, and the next lines start another."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._writer = None
            return None

    def _forward(self, line: LogLine) -> None:
        logger, level = logging.getLogger(line.logger), logging.getLevelName(line.level)
        if not isinstance(level, int) or not logger.isEnabledFor(level):
            return
        facts = {"job": self._job, "job_id": self.job_id, "host": line.host, _FORWARDED: True}
        for key, empty in (("task", ""), ("operator", ""), ("subtask", -1), ("attempt", -1)):
            if (value := getattr(line, key)) != empty:
                facts[key] = value
        message = (line.message,)
        record = logger.makeRecord(line.logger, level, "", 0, "%s", message, None, extra=facts)
        record.exc_text = line.traceback or None
        record.created, record.msecs = line.at_ms / 1000, line.at_ms % 1000
        logger.handle(record)


class DriverLines(logging.Handler):
    """Hands the driver's own lines to the logs of their jobs; installed while there are any."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._logs: dict[str, JobLog] = {}
        self._changing = threading.RLock()

    def add(self, log: JobLog) -> None:
        with self._changing:
            self._logs = {**self._logs, log.job_id: log}
            logging.getLogger(OURS).addHandler(self)

    def remove(self, log: JobLog) -> None:
        with self._changing:
            if self._logs.get(log.job_id) is log:
                self._logs = {key: kept for key, kept in self._logs.items() if kept is not log}
            if not self._logs:
                logging.getLogger(OURS).removeHandler(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """See ``logging.Handler``; without its lock, each log has its own."""
        show_if_alone(record, self)
        if _FORWARDED in record.__dict__:
            return False
        try:
            log = self._logs.get(str(facts_of(record).get("job_id", "")))
            if log is not None:
                log.add(line_of(record, DRIVER))
        except Exception:  # whatever the record holds: a log line harms no job
            return False
        return log is not None


_driver_lines: Final = DriverLines()
