"""Log lines of driver and workers: UTC time, level, logger, message, or one JSON object each.

Facts (job, operator, task, subtask, attempt) follow the message. Lines that are logged in a
task get them without anybody's help, those of user functions too; see ``core/chain/log_facts``.
Law: a line is never lost because its message cannot be formatted.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from headgate.base.redaction import without_secrets
from headgate.base.settings import LogFormat, LogLevel, LogSettings
from headgate.core.chain.log_facts import FACTS, SHOWN_FACTS, facts_here, message_of

PROGRESS_LOGGER: Final = "headgate.progress"
LEVEL_VARIABLE: Final = "HEADGATE_LOG_LEVEL"
FORMAT_VARIABLE: Final = "HEADGATE_LOG_FORMAT"
"""Two environment variables that stand for settings which nobody has given."""


def log_settings(given: Mapping[str, str]) -> LogSettings:
    """What the settings say, or else the environment variables; raises SettingsInvalid."""
    found = {}
    for name, key, kind in (
        (LEVEL_VARIABLE, "headgate.log.level", LogLevel),
        (FORMAT_VARIABLE, "headgate.log.format", LogFormat),
    ):
        text = os.environ.get(name, "").lower()
        if text in [choice.value for choice in kind]:
            found[key] = text
    return LogSettings.parse({**found, **given})


def set_up_driver_logs(given: Mapping[str, str]) -> None:
    """Log as the settings ask, unless they say nothing or the program has set up its own logs."""
    settings = log_settings(given)
    is_asked = (settings.level, settings.format) != (LogSettings().level, LogSettings().format)
    if is_asked and _is_ours(logging.getLogger()):
        set_up_logs(settings.level.value, settings.format.value)


def set_up_worker_logs(settings: LogSettings | None = None) -> None:
    """Set up the logs of a worker, unless it has handlers of somebody else."""
    if _is_ours(logging.getLogger()):
        chosen = log_settings({}) if settings is None else settings
        set_up_logs(chosen.level.value, chosen.format.value)


def _is_ours(root: logging.Logger) -> bool:
    """Whether nobody else has said how this process logs."""
    return all(isinstance(handler, StderrHandler) for handler in root.handlers)


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
    for key, value in facts_here(sys._getframe(1), record.name).items():
        record.__dict__.setdefault(key, value)
    return True


class TextLines(logging.Formatter):
    """``2025-01-31T12:00:00.000Z INFO headgate.spark.job message job=…``.

    Further lines of a message, and its traceback, come below.
    """

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={_word(value)}" for key, value in _facts(record, SHOWN_FACTS))
        first, *more = message_of(record).split("\n")
        head = f"{_time(record)} {record.levelname} {record.name} {first}{facts}"
        head += "".join(f"\n{line}" for line in more)
        trace = _traceback(record)
        return f"{head}\n{trace}" if trace else head


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            **dict(_facts(record, FACTS)),
        }
        if trace := _traceback(record):
            fields["traceback"] = trace
        return json.dumps(fields, default=str)


def _traceback(record: logging.LogRecord) -> str:
    """Its own, or that of a line which came from a worker."""
    if record.exc_info:
        return without_secrets(logging.Formatter().formatException(record.exc_info))
    return record.exc_text or ""


def _word(value: object) -> str:
    """The value as text, in quotes if it is not a single word."""
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def _facts(record: logging.LogRecord, keys: Sequence[str]) -> list[tuple[str, object]]:
    return [(key, record.__dict__[key]) for key in keys if key in record.__dict__]


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
