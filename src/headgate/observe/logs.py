"""Log lines of driver and workers: UTC time, level, logger, message, or one JSON object each.

Facts (job, operator, task, subtask, attempt) stand behind the message. Lines that are logged in a
task get them without anybody's help, those of user functions too: whoever calls them is on the
stack. That costs nothing where nothing is logged.
"""

import json
import logging
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Final

from headgate.core.chain.context import OperatorContext

FACTS: Final = ("job", "operator", "task", "subtask", "attempt")
PROGRESS_LOGGER: Final = "headgate.progress"
LEVEL_VARIABLE: Final = "HEADGATE_LOG_LEVEL"
FORMAT_VARIABLE: Final = "HEADGATE_LOG_FORMAT"
"""What the driver says, for the workers that come from it."""
MOST_FRAMES: Final = 100


def set_up_worker_logs() -> None:
    """The same in a worker, unless somebody has said how to log there."""
    if not logging.getLogger().handlers:
        level = os.environ.get(LEVEL_VARIABLE, "").lower()
        set_up_logs(level if level in LEVELS else LEVELS[0], os.environ.get(FORMAT_VARIABLE, ""))


LEVELS: Final = ("warning", "debug", "info", "error")


def set_up_logs(level: str = "warning", form: str = "text") -> None:
    """Say how this process logs; the progress of jobs is logged at any level."""
    handler = StderrHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(add_facts)
    handler.addFilter(is_not_py4j)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection
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


def is_not_py4j(record: logging.LogRecord) -> bool:
    """Whether it is anything but a traceback of Py4J's, which raises the same error, too."""
    return not (record.exc_info and "py4j" in Path(record.pathname).parts)


def add_facts(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, and adds what is known about the task that logs."""
    context = _context_of(sys._getframe(1))
    if context is not None:
        task = context.task
        for key, value in (
            ("job", task.job),
            ("operator", context.operator),
            ("task", task.vertex),
            ("subtask", task.subtask),
            ("attempt", task.attempt),
        ):
            record.__dict__.setdefault(key, value)
    return True


def _context_of(frame: FrameType | None) -> OperatorContext | None:
    """Of the innermost operator that is at work on this thread."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        owner = frame.f_locals.get("self")
        for context in (_part(owner, "context"), _part(owner, "_context")):
            if isinstance(context, OperatorContext):
                return context
        frame = frame.f_back
    return None


def _part(owner: object, name: str) -> object:
    try:
        return getattr(owner, name, None)
    except Exception:  # a property of a user's own object
        return None


class TextLines(logging.Formatter):
    """``2025-01-31T12:00:00.000Z INFO headgate.spark.job message job=…``."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={_word(value)}" for key, value in _facts(record).items())
        head = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{facts}"
        return head + "".join(f"\n{text}" for text in self._trouble(record))

    def _trouble(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _word(value: object) -> str:
    """In quotes if it is not a single word."""
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: record.__dict__[key] for key in FACTS if key in record.__dict__}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
