"""Sinks whose records go to the driver: ``execute_and_collect``, and ``print``.

Law: what takes the records never leaves the driver; a sink travels with the address of its stream
only, which ``submission`` sets.

With checkpoints collected records wait in the task until the checkpoint that holds them is
complete, and go to the driver in numbered batches. Law: the driver takes each batch of a writer
once, in their order, also when a new run of the job sends it again. Without checkpoints records go
there as they come.
"""

import pickle
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from headgate.api.types.types import TypeInformation
from headgate.base.errors import HeadgateError
from headgate.base.moved import loads
from headgate.connectors.formats.record_text import printed_text
from headgate.connectors.print_sink import format_prefix
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    Sink,
    SinkWriter,
    TwoPhaseCommittingSink,
)
from headgate.host.driver.results import ResultAddress, ResultWriter, StreamClosed, Take

if TYPE_CHECKING:
    from headgate.spark.job import SparkJob  # workers, which load the sink, have no use for it


QUEUED_LISTS: Final = 16
"""How many lists of records wait in the driver for the iterator over the result."""

LOOK_S: Final = 0.5
"""How often a sink that waits for the iterator checks whether the job still runs."""


BATCH_BYTES: Final = 64 << 20
"""A batch that has grown this large is closed; it must fit into a frame."""


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
        """Print records as this type, which the program has declared; returns the sink."""
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


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Lists of records, pickled; batches of a writer are numbered from 1."""

    writer: str
    number: int
    lists: tuple[bytes, ...]


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
                if self._job is not None and self._job.is_dying:
                    raise StreamClosed("the job is ending")  # its sink must not wait for a reader
                self._changed.wait(LOOK_S)
            if self._closed:
                raise StreamClosed("nobody iterates over the result any more")
            self._lists.append(records)
            self._changed.notify_all()

    def started(self, job: "SparkJob") -> None:
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
        """Close without waiting; called by the garbage collector, on any thread."""
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


class CollectSink(TwoPhaseCommittingSink):
    """Ends in the ``CollectedResults`` of the driver."""

    def __init__(self) -> None:
        self.results: CollectedResults | None = CollectedResults()
        self.driver_stream = DriverStream(BatchReceiver(self.results))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "results": None}

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        return (
            BatchWriter() if context.checkpoints else ImmediateWriter(self.driver_stream.connect())
        )

    def create_committer(self, context: ConnectorContext) -> "BatchCommitter":
        return BatchCommitter(self.driver_stream)


class BatchReceiver:
    """In the driver: passes on each batch once."""

    def __init__(self, results: CollectedResults) -> None:
        self._results = results
        self._last_numbers: dict[str, int] = {}
        self._lock = threading.Lock()  # two runs may send the same batch at once

    def __call__(self, message: list[Any] | ResultBatch) -> None:
        """Called on the threads of connections."""
        if not isinstance(message, ResultBatch):
            self._results.take(message)
            return
        with self._lock:
            if message.number > self._last_numbers.get(message.writer, 0):
                lists = map(loads, message.lists)
                self._results.take([record for records in lists for record in records])
                self._last_numbers[message.writer] = message.number


class ImmediateWriter(CommittingSinkWriter):
    """Sends records at once."""

    def __init__(self, results_writer: ResultWriter) -> None:
        self._results_writer = results_writer

    def write(self, records: list[Any]) -> None:
        self._results_writer.write(records)

    def flush(self) -> None:
        self._results_writer.flush()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[ResultBatch]:
        return ()

    def close(self) -> None:
        self._results_writer.close()


class BatchWriter(CommittingSinkWriter):
    """Keeps records, as bytes: their sender may change them."""

    def __init__(self) -> None:
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._lists: list[bytes] = []
        self._bytes = 0
        self._batches: list[ResultBatch] = []

    def write(self, records: list[Any]) -> None:
        data = pickle.dumps(records, 5)
        self._lists.append(data)
        self._bytes += len(data)
        if self._bytes >= BATCH_BYTES:
            self._close_batch()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[ResultBatch]:
        self._close_batch()
        batches, self._batches = self._batches, []
        return batches

    def _close_batch(self) -> None:
        if self._lists:
            self._number += 1
            self._batches.append(ResultBatch(self._writer, self._number, tuple(self._lists)))
            self._lists, self._bytes = [], 0


class BatchCommitter(Committer):
    """Sends batches; when it returns, the driver has taken them."""

    def __init__(self, stream: DriverStream) -> None:
        self._stream = stream
        self._results_writer: ResultWriter | None = None

    def commit(self, committables: Sequence[ResultBatch]) -> None:
        if self._results_writer is None:
            self._results_writer = self._stream.connect()
        for batch in committables:
            self._results_writer.send(batch)
        self._results_writer.flush()

    def close(self) -> None:
        if self._results_writer is not None:
            self._results_writer.close()
