"""Prints records as lines, in PyFlink's form: ``2> +I[a,1]`` from the second of several tasks.

Law: the lines of one list go out in one write, so that those of two tasks do not mix.
"""

import sys
from dataclasses import dataclass
from typing import TextIO

from headgate.api.source import Sink, SinkWriter
from headgate.base.elements import Record
from headgate.connectors.record_text import record_text
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True)
class PrintSink(Sink):
    """Writes to standard output, or to ``stream`` where the description does not travel."""

    sink_identifier: str | None = None
    stream: TextIO | None = None

    def create_writer(self, context: OperatorContext) -> "PrintWriter":
        task = context.task
        prefix = format_prefix(self.sink_identifier, task.subtask, task.parallelism)
        return PrintWriter(prefix, self.stream)


class PrintWriter(SinkWriter):
    """Prints the records of one task."""

    def __init__(self, prefix: str, stream: TextIO | None) -> None:
        self._prefix = prefix
        self._stream = stream

    def write(self, records: list[Record]) -> None:
        # Looked up at each write: notebooks and tests put another stream in its place.
        stream = self._stream or sys.stdout
        prefix = self._prefix
        stream.write("".join([f"{prefix}{record_text(record)}\n" for record in records]))
        stream.flush()


def format_line(sink_identifier: str | None, subtask: int, parallelism: int, record: Record) -> str:
    """One record as it is printed, without the end of the line; ``subtask`` counts from 0."""
    return format_prefix(sink_identifier, subtask, parallelism) + record_text(record)


def format_prefix(sink_identifier: str | None, subtask: int, parallelism: int) -> str:
    """What stands before the record: ``name:2> ``, ``name> ``, ``2> `` or nothing."""
    names = [sink_identifier] if sink_identifier else []
    if parallelism > 1:
        names.append(str(subtask + 1))
    return ":".join(names) + "> " if names else ""
