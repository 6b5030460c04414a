"""The log of a worker process: which job its lines belong to, and those that the driver gets.

Lines of a level are kept until the task manager sends them, with its figures. Law: a line never
makes the thread that logs wait or fail; at most so many lines and bytes are kept in an interval,
the others are counted. A process that is not the task manager's own is left alone.
"""

import logging
import os
import socket
import time
from typing import Final

from headgate.base.job_records import LogLine
from headgate.base.settings import ShipLevel
from headgate.core.chain.log_facts import log_always_with, logged_with, process_works_for
from headgate.host.net.contact import DriverContact
from headgate.host.net.loop import wall_ms
from headgate.host.shipping.log_lines import line_bytes, line_of, show_if_alone

MOST_LINES: Final = 200
MOST_BYTES: Final = 256 * 1024
"""Most lines and bytes in an interval."""


class WorkerLog(logging.Handler):
    """Collects the log of one task manager, while it is entered."""

    def __init__(self, contact: DriverContact, slot: int, *, is_alone: bool) -> None:
        """``is_alone``: the process is the task manager's own."""
        super().__init__(_LEVELS.get(contact.logs.ship_level, logging.WARNING))
        self._is_alone = is_alone
        self._ships = is_alone and contact.logs.ship_level is not ShipLevel.OFF
        self._facts = {"job": contact.job, "job_id": contact.job, "slot": slot}
        self._interval_s = contact.times.metrics_ms / 1000
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        self._lines: list[LogLine] = []
        self._interval_ends = 0.0
        self._spent_lines = self._spent_bytes = 0
        self._left_out = 0
        self._scope = logged_with(self._facts)

    def __enter__(self) -> "WorkerLog":
        self._scope.__enter__()
        if self._is_alone:
            process_works_for(self._facts)
        if self._ships:
            logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger().removeHandler(self)
        self.close()
        if self._is_alone:
            process_works_for(None)
        self._scope.__exit__(None, None, None)

    def run_began(self, job: str, attempt: int) -> None:
        """On the task manager's thread: the job's name, and the attempt that lines belong to."""
        facts = {"job": job, "attempt": attempt}
        log_always_with(facts)
        if self._is_alone:
            process_works_for(facts)

    def take(self) -> list[LogLine]:
        """What was logged since the last time, oldest first."""
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            left_out, self._left_out = self._left_out, 0
        finally:
            self.release()
        if left_out:
            lines.append(self._words(f"… {left_out:,} lines were left out here"))
        return lines

    def handle(self, record: logging.LogRecord) -> bool:
        """See ``logging.Handler``; the message is formatted before the lock is taken."""
        show_if_alone(record, self)
        if not self._has_room():
            return False
        try:
            line = line_of(record, self._host)
        except Exception as error:  # whatever a user's object does
            line = self._words(f"a line of {record.name} cannot be shown: {type(error).__name__}")
        self.acquire()
        try:
            self._lines.append(line)
            self._spent_bytes += line_bytes(line)
        finally:
            self.release()
        return True

    def _has_room(self) -> bool:
        now = time.monotonic()
        self.acquire()
        try:
            if now >= self._interval_ends:
                self._interval_ends = now + self._interval_s
                self._spent_lines = self._spent_bytes = 0
            has_room = (
                max(self._spent_lines, len(self._lines)) < MOST_LINES
                and self._spent_bytes < MOST_BYTES
            )
            if has_room:
                self._spent_lines += 1
            else:
                self._left_out += 1
            return has_room
        finally:
            self.release()

    def _words(self, message: str) -> LogLine:
        at_ms = wall_ms()
        return LogLine(0, at_ms, "WARNING", __name__, message, host=self._host)


_LEVELS: Final = {
    ShipLevel.INFO: logging.INFO,
    ShipLevel.WARNING: logging.WARNING,
    ShipLevel.ERROR: logging.ERROR,
}
