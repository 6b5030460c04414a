"""Log lines of the ``headgate`` command: UTC time, level, logger, message, or one JSON object each.

Facts that a record carries (job, task, subtask, attempt) stand behind the message.
"""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Final

FACTS: Final = ("job", "task", "subtask", "attempt")
PROGRESS_LOGGER: Final = "headgate.progress"


def set_up_logs(level: str = "warning", form: str = "text") -> None:
    """Say how Headgate logs in this process; the progress of jobs is logged at any level."""
    handler = StderrHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("headgate").setLevel(level.upper())
    logging.getLogger(PROGRESS_LOGGER).setLevel(logging.INFO)


class StderrHandler(logging.Handler):
    """Writes to what is standard error at that moment: a live picture puts itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class TextLines(logging.Formatter):
    """``2025-01-31T12:00:00.000Z INFO headgate.spark.job message job=…``."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={value}" for key, value in _facts(record).items())
        head = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{facts}"
        return head + "".join(f"\n{text}" for text in self._trouble(record))

    def _trouble(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: record.__dict__[key] for key in FACTS if key in record.__dict__}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
