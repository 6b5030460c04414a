"""The sink of ``execute_and_collect``: records go to the driver, each once.

With checkpoints records wait in the task until the checkpoint that holds them is complete, and go
to the driver in numbered lots. Law: the driver takes each lot of a writer once, in their order,
also when a new run of the job brings it again. Without checkpoints records go there as they come.
"""

import pickle
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.errors import HeadgateError
from headgate.base.moved import loads
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink
from headgate.host.driver.results import ResultWriter, StreamClosed
from headgate.spark.driver_sinks import DriverSink
from headgate.spark.job import SparkJob

QUEUED_LISTS: Final = 16
"""So many lists of records wait in the driver for whoever iterates over the result."""

LOOK_S: Final = 0.5
"""How often a sink that waits for the reader looks whether the job still runs."""


LOT_BYTES: Final = 64 << 20
"""A lot that has become this large is closed; it must fit into a frame."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Lists of records, pickled; lots of a writer are counted from 1."""

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


class CollectSink(DriverSink, TwoPhaseCommittingSink):
    """Ends in the ``CollectedResults`` of the driver."""

    def __init__(self) -> None:
        self.results: CollectedResults | None = CollectedResults()
        super().__init__(Receiver(self.results))

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "results": None}

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        return LotWriter() if context.checkpoints else StraightWriter(self.connect())

    def create_committer(self, context: ConnectorContext) -> "LotCommitter":
        return LotCommitter(self)


class Receiver:
    """In the driver: hands on what it has not had."""

    def __init__(self, results: CollectedResults) -> None:
        self._results = results
        self._had: dict[str, int] = {}
        self._lock = threading.Lock()  # two runs may bring the same lot at the same moment

    def __call__(self, message: list[Any] | Lot) -> None:
        """Called on the threads of connections."""
        if not isinstance(message, Lot):
            self._results.take(message)
            return
        with self._lock:
            if message.number > self._had.get(message.writer, 0):
                self._results.take([one for data in message.lists for one in loads(data)])
                self._had[message.writer] = message.number


class StraightWriter(CommittingSinkWriter):
    """Sends records at once."""

    def __init__(self, line: ResultWriter) -> None:
        self._line = line

    def write(self, records: list[Any]) -> None:
        self._line.write(records)

    def flush(self) -> None:
        self._line.flush()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Lot]:
        return ()

    def close(self) -> None:
        self._line.close()


class LotWriter(CommittingSinkWriter):
    """Keeps records, as bytes: whoever has sent them may change them."""

    def __init__(self) -> None:
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._lists: list[bytes] = []
        self._bytes = 0
        self._lots: list[Lot] = []

    def write(self, records: list[Any]) -> None:
        data = pickle.dumps(records, 5)
        self._lists.append(data)
        self._bytes += len(data)
        if self._bytes >= LOT_BYTES:
            self._close_lot()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Lot]:
        self._close_lot()
        lots, self._lots = self._lots, []
        return lots

    def _close_lot(self) -> None:
        if self._lists:
            self._number += 1
            self._lots.append(Lot(self._writer, self._number, tuple(self._lists)))
            self._lists, self._bytes = [], 0


class LotCommitter(Committer):
    """Sends lots; when it returns, the driver has taken them."""

    def __init__(self, sink: DriverSink) -> None:
        self._sink = sink
        self._line: ResultWriter | None = None

    def commit(self, committables: Sequence[Lot]) -> None:
        if self._line is None:
            self._line = self._sink.connect()
        for lot in committables:
            self._line.send(lot)
        self._line.flush()

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
