"""Records of the standard library's logging as lines that travel, and that the driver keeps.

Law: whatever was logged becomes a line of bounded length, and nothing is raised.
"""

import logging
import sys
from typing import Final

from headgate.base.job_records import LogLine
from headgate.base.redaction import without_secrets
from headgate.core.chain.log_facts import FACTS, facts_here, message_of

MOST_CHARS: Final = 8 * 1024
"""Longest message, and longest traceback."""

_formatter: Final = logging.Formatter()


def line_of(record: logging.LogRecord, host: str) -> LogLine:
    """A line with what is known about who logs; called on the thread that logs."""
    facts = facts_of(record)
    message = message_of(record)
    if len(message) > MOST_CHARS:
        message = f"{message[:MOST_CHARS]}… ({len(message) - MOST_CHARS:,} more characters)"
    trace = _formatter.formatException(record.exc_info) if record.exc_info else ""
    trace = without_secrets(trace)
    if len(trace) > MOST_CHARS:  # the cause stands at its end
        trace = f"({len(trace) - MOST_CHARS:,} more characters) …{trace[-MOST_CHARS:]}"
    return LogLine(
        number=0,
        at_ms=int(record.created * 1000),
        level=_text(record.levelname),
        logger=_text(record.name),
        message=_text(message),
        task=_text(facts.get("task", "")),
        subtask=_number(facts.get("subtask")),
        attempt=_number(facts.get("attempt")),
        operator=_text(facts.get("operator", "")),
        host=host,
        traceback=_text(trace),
    )


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """What the record itself says comes before what is known here."""
    own: dict[str, object] = {key: record.__dict__[key] for key in FACTS if key in record.__dict__}
    return {**facts_here(sys._getframe(1), record.name), **own}


def _text(value: object) -> str:
    """Without half characters, as names of files may have them, which cannot be encoded."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1


def line_bytes(line: LogLine) -> int:
    """About what it takes to keep it."""
    return 200 + len(line.message) + len(line.traceback)


def show_if_alone(record: logging.LogRecord, handler: logging.Handler) -> None:
    """Write it to standard error if this is its only handler, as if it had none at all."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(other is not handler for other in logger.handlers):
            return
        logger = logger.parent if logger.propagate else None
    last = logging.lastResort
    if last is not None and record.levelno >= last.level:
        last.handle(record)
