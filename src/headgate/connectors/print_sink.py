"""Prints records as lines, in PyFlink's form: ``2> (a,1)`` from the second of several tasks.

Law: the lines of one list go out in one write, so that those of two tasks do not mix.
"""

import sys
from dataclasses import dataclass, replace
from typing import TextIO

from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.connectors.formats.record_text import Text, printed_text
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter


@dataclass(frozen=True)
class PrintSink(Sink):
    """Writes to standard output, or to ``stream`` where the description does not travel."""

    sink_identifier: str | None = None
    stream: TextIO | None = None
    type_info: TypeInformation | None = None

    def for_type(self, type_info: TypeInformation | None) -> "PrintSink":
        """The sink for records that a program has declared to be of this type."""
        return replace(self, type_info=type_info)

    def create_writer(self, context: ConnectorContext) -> "PrintWriter":
        task = context.task
        prefix = format_prefix(self.sink_identifier, task.subtask, task.parallelism)
        return PrintWriter(prefix, self.stream, printed_text(self.type_info))


class PrintWriter(SinkWriter):
    """Prints the records of one task."""

    def __init__(self, prefix: str, stream: TextIO | None, text: Text) -> None:
        self._prefix = prefix
        self._stream = stream
        self._text = text

    def write(self, records: list[Record]) -> None:
        # Looked up at each write: notebooks and tests put another stream in its place.
        stream = self._stream or sys.stdout
        prefix, text = self._prefix, self._text
        stream.write("".join([f"{prefix}{text(record)}\n" for record in records]))
        stream.flush()


def format_prefix(sink_identifier: str | None, subtask: int, parallelism: int) -> str:
    """What stands before the record: ``name:2> ``, ``name> ``, ``2> `` or nothing.

    ``subtask`` counts from 0.
    """
    names = [sink_identifier] if sink_identifier else []
    if parallelism > 1:
        names.append(str(subtask + 1))
    return ":".join(names) + "> " if names else ""
