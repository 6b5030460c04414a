"""Sinks that end in the driver: results for whoever iterates over them, and printed lines."""

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TextIO

from headgate.api.source import Sink, SinkWriter
from headgate.api.types.types import TypeInformation
from headgate.base.errors import HeadgateError
from headgate.connectors.formats.record_text import printed_text
from headgate.connectors.print_sink import format_prefix
from headgate.core.chain.context import OperatorContext
from headgate.host.driver.results import ResultAddress, ResultWriter, StreamClosed, Take
from headgate.spark.job import SparkJob

QUEUED_LISTS: Final = 16
"""So many lists of records wait in the driver for whoever iterates over the result."""
LOOK_S: Final = 0.5
"""How often a sink that waits for the reader looks whether the job still runs."""


class DriverSink(Sink):
    """A sink whose records go to the driver; it gets its way there when the job is launched."""

    def __init__(self, take: Take) -> None:
        self.take: Take | None = take
        self.result_address: ResultAddress | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "take": None}  # what takes the records stays in the driver

    def create_writer(self, context: OperatorContext) -> SinkWriter:
        return self.connect()

    def connect(self) -> ResultWriter:
        assert self.result_address is not None, "the job was launched without a way to the driver"
        return ResultWriter(self.result_address)


class DriverPrintSink(DriverSink):
    """Prints records in the driver, where the user can see them."""

    def __init__(self, identifier: str | None, out: TextIO | None = None) -> None:
        super().__init__(Printer(out))
        self.identifier = identifier
        self.type_info: TypeInformation | None = None

    def for_type(self, type_info: TypeInformation | None) -> "DriverPrintSink":
        """The same for records that a program has declared to be of this type."""
        self.type_info = type_info
        return self

    def create_writer(self, context: OperatorContext) -> SinkWriter:
        task = context.task
        prefix = format_prefix(self.identifier, task.subtask, task.parallelism)
        text = printed_text(self.type_info)
        return LineWriter(self.connect(), lambda record: prefix + text(record))


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


class CollectedResults:
    """Records of a running job in the order of their arrival; raises what made the job fail."""

    def __init__(self) -> None:
        self._lists: deque[list[Any]] = deque()
        self._changed = threading.Condition()
        self._current: list[Any] = []
        self._job: SparkJob | None = None
        self._closed = False
        self._ended = False

    def take(self, records: list[Any]) -> None:
        """Called on the thread of a sink's connection; waits while the iterator is slow."""
        with self._changed:
            while len(self._lists) >= QUEUED_LISTS and not self._closed:
                if self._job is not None and self._job.run.is_dead:
                    raise StreamClosed("the job is ending")  # its sink must not wait for a reader
                self._changed.wait(LOOK_S)
            if self._closed:
                raise StreamClosed("nobody iterates over the result any more")
            self._lists.append(records)
            self._changed.notify_all()

    def started(self, job: SparkJob) -> None:
        """Records come from this job; its end ends the iteration, after all that came before."""
        self._job = job
        job.when_ended(self._job_ended)

    def __iter__(self) -> "CollectedResults":
        return self

    def __next__(self) -> Any:
        while not self._current:
            if self._closed or not self._fetch():
                raise StopIteration
        return self._current.pop()

    def close(self) -> None:
        """Nobody wants the rest: cancel the job if it runs; idempotent."""
        if self._closed:
            return
        job = self._job
        if job is not None:
            # Before the sink notices that it is hung up on, which would look like a failure.
            job.cancel_soon("nobody wants the rest of its results")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if job is not None:
            with suppress(HeadgateError):  # its end was asked for
                job.wait()

    def abandon(self) -> None:
        """The same without waiting; called by the garbage collector, on whatever thread."""
        if not self._closed and not self._ended:
            with suppress(RuntimeError):  # no thread can start when Python ends
                threading.Thread(target=self.close, name="headgate-abandon", daemon=True).start()

    def _job_ended(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _fetch(self) -> bool:
        """Wait for the next list; False: there is none any more. Raises what the job raises."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._lists or self._ended or self._closed)
                found = self._lists.popleft() if self._lists else None
                self._changed.notify_all()
        except KeyboardInterrupt:
            self.close()
            raise
        if found is None:
            if not self._closed and self._job is not None:
                self._job.wait()
            return False
        found.reverse()
        self._current = found
        return True
