"""Sinks whose records end in the driver: the stream that they share, and the one that prints.

Law: what takes the records never leaves the driver; a sink travels with the stream's address only.
``submission`` gives each stream its address.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from headgate.api.types.types import TypeInformation
from headgate.connectors.formats.record_text import printed_text
from headgate.connectors.print_sink import format_prefix
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.host.driver.results import ResultAddress, ResultWriter, Take


class DriverStream:
    """A sink's stream of records to the driver; it gets its address when the job is launched."""

    def __init__(self, take: Take) -> None:
        self.take: Take | None = take
        self.address: ResultAddress | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "take": None}  # what takes the records stays in the driver

    def connect(self) -> ResultWriter:
        assert self.address is not None, "the job was launched without a way to the driver"
        return ResultWriter(self.address)


class DriverPrintSink(Sink):
    """Prints records in the driver, where the user can see them."""

    def __init__(self, identifier: str | None, out: TextIO | None = None) -> None:
        self.driver_stream = DriverStream(Printer(out))
        self.identifier = identifier
        self.type_info: TypeInformation | None = None

    def for_type(self, type_info: TypeInformation | None) -> "DriverPrintSink":
        """The same for records that a program has declared to be of this type."""
        self.type_info = type_info
        return self

    def create_writer(self, context: ConnectorContext) -> SinkWriter:
        task = context.task
        prefix = format_prefix(self.identifier, task.subtask, task.parallelism)
        text = printed_text(self.type_info)
        return LineWriter(self.driver_stream.connect(), lambda record: prefix + text(record))


class LineWriter(SinkWriter):
    """Turns records into lines where they are, so that the driver only prints."""

    def __init__(self, inner: ResultWriter, line_of: Callable[[Any], str]) -> None:
        self._inner = inner
        self._line_of = line_of

    def write(self, records: list[Any]) -> None:
        self._inner.write([self._line_of(record) for record in records])

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()


class Printer:
    """Writes lines to the standard output of the moment, whole lists at a time."""

    _lock = threading.Lock()  # lines of several sinks must not mix

    def __init__(self, out: TextIO | None) -> None:
        self._out = out

    def __call__(self, lines: list[str]) -> None:
        with Printer._lock:
            out = self._out or sys.stdout
            out.write("".join(line if line.endswith("\n") else line + "\n" for line in lines))
            out.flush()
