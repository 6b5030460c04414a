"""Lines as workers send them, kept in a list."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.base.job_records import LogLine
from headgate.host.shipping.log_lines import line_of


class KeptLines(logging.Handler):
    """Each with what is known about who logged it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(line_of(record, "here"))

    def of(self, message: str) -> LogLine:
        """The only line with this text in it."""
        (line,) = [line for line in self.lines if message in line.message]
        return line


@contextmanager
def kept_lines(logger: str) -> Iterator[KeptLines]:
    """Those of a logger, and of those below it."""
    handler = KeptLines()
    logging.getLogger(logger).addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger(logger).removeHandler(handler)
