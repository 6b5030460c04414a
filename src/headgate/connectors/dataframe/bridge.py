"""The bridge between a Spark task and the tasks of a job that run in its process.

Spark's rows come in through inlets, one per DataFrame; records leave through an outlet. Tasks find
both by token. Law: nothing is lost and nothing waits forever: a full inlet makes Spark wait, unless
a task starves for rows of another inlet, which may come later in the input; then the full inlet
spills to a file. A task that has found nothing is woken by the next batch, the end or ``close``.
If only some rows are wanted, those that have left are counted, and the input is not read to its
end. After ``close`` no token and no file remains.
"""

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa

from headgate.base.errors import TaskCancelled


class BatchSpill:
    """Arrow batches of one schema, first in first out, in a file without a name.

    Takes no disk space when empty; its file vanishes with the process. Not thread-safe.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._places: deque[tuple[int, int]] = deque()
        self._end = 0
        self._schema: pa.Schema | None = None

    def __len__(self) -> int:
        return len(self._places)

    def put(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="headgate-")  # noqa: SIM115 - see close()
            self._schema = batch.schema
        data = batch.serialize()
        self._file.seek(self._end)
        self._file.write(data)
        self._places.append((self._end, data.size))
        self._end += data.size

    def take(self) -> pa.RecordBatch:
        assert self._file is not None, "nothing was spilled"
        start, size = self._places.popleft()
        self._file.seek(start)
        data = pa.py_buffer(self._file.read(size))
        if not self._places:
            self._file.truncate(0)
            self._end = 0
        return pa.ipc.read_record_batch(data, self._schema)

    def close(self) -> None:
        file, self._file = self._file, None
        self._places.clear()
        if file is not None:
            file.close()


ROOM_BYTES: Final = 8 * 1024 * 1024
"""An inlet or outlet that holds this many bytes is full."""

Sort = Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]]
"""Which parts of a batch of the input belong to which inlet."""


class Inlet:
    """Rows of one DataFrame on their way to the task of this process that reads them."""

    def __init__(self, bridge: "BatchBridge") -> None:
        self._bridge = bridge
        self.batches: deque[pa.RecordBatch] = deque()
        self.held_bytes = 0
        self.spill = BatchSpill()
        self.starves = False
        self.is_closed = False
        self.wake: Callable[[], None] = lambda: None
        """Polls the task again that reads from here."""

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self._bridge.room_bytes

    @property
    def is_empty(self) -> bool:
        return not self.batches and not self.spill

    def take(self) -> "pa.RecordBatch | None":
        """The next batch; None: nothing now, or nothing more if ``has_ended``."""
        return self._bridge.take_from(self)

    @property
    def has_ended(self) -> bool:
        """Whether all rows were taken; raises what broke the input."""
        return self._bridge.has_ended(self)

    def close(self) -> None:
        """Drop what still arrives."""
        self._bridge.close_inlet(self)


class BatchBridge:
    """Open from its construction to ``close``."""

    def __init__(
        self, inlets: Sequence[str], outlet: str | None, room_bytes: float = ROOM_BYTES
    ) -> None:
        """Tokens of the inlets and of the outlet, if there is one.

        Whoever puts, polls and sends on one thread gives ``room_bytes`` without a bound.
        """
        self.room_bytes = room_bytes
        self._changed = threading.Condition()
        self._inlets = [Inlet(self) for _ in inlets]
        self._fed = False
        self._feeding_error: Exception | None = None
        self._outgoing: deque[pa.RecordBatch] = deque()
        self._outgoing_bytes = 0
        self._ended = False
        self._closed = False
        self._wanted: int | None = None
        self._rows = 0
        self._sent: Callable[[int], None] = lambda rows: None
        self._tokens = [*inlets, *([] if outlet is None else [outlet])]
        _inlets.update(zip(inlets, self._inlets, strict=True))
        if outlet is not None:
            _outlets[outlet] = self

    # Spark's side.

    def feed(self, batches: Iterable[pa.RecordBatch], sort: Sort) -> None:
        """Bring all of Spark's input to the inlets; runs on its own thread."""
        error: Exception | None = None
        try:
            for batch in batches:
                for number, part in sort(batch):
                    self.put(number, part)
        except _Closed:
            return
        except Exception as raised:
            error = raised
        self.fed(error)

    def put(self, number: int, batch: pa.RecordBatch) -> None:
        """Bring a batch to an inlet; waits while that is full."""
        inlet = self._inlets[number]
        with self._changed:
            while inlet.is_full and not self._is_over and not inlet.is_closed:
                if any(other.starves for other in self._inlets if other is not inlet):
                    inlet.spill.put(batch)
                    return
                self._changed.wait()
            if self._is_over:
                raise _Closed
            if not inlet.is_closed:
                inlet.starves = False
                inlet.batches.append(batch)
                inlet.held_bytes += batch.nbytes
        inlet.wake()

    def fed(self, error: Exception | None = None) -> None:
        """The whole input was brought, or is broken."""
        with self._changed:
            self._fed = True
            self._feeding_error = error
        self._wake_all()

    @property
    def is_fed(self) -> bool:
        """Whether the whole input was taken."""
        return self._fed

    @property
    def is_limited(self) -> bool:
        """Whether only some rows are wanted."""
        return self._wanted is not None

    def limited(self, rows: int, sent: Callable[[int], None]) -> None:
        """See ``RowOutlet``; called before the first row."""
        self._wanted, self._sent = rows, sent

    def outgoing(self) -> Iterator[pa.RecordBatch]:
        """What tasks have sent, until ``end`` was called and everything was handed to Spark."""
        while True:
            with self._changed:
                while not self._outgoing and not self._ended:
                    self._changed.wait()
                if not self._outgoing:
                    return
                batch = self._outgoing.popleft()
                self._outgoing_bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch

    def sent(self) -> list[pa.RecordBatch]:
        """What tasks have sent and was not handed to Spark, without waiting for more."""
        with self._changed:
            batches = list(self._outgoing)
            self._outgoing.clear()
            self._outgoing_bytes = 0
            self._changed.notify_all()
        return batches

    def end(self) -> None:
        """No task sends any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def check(self) -> None:
        """After a run that has finished: every row was read, unless only some were wanted.

        Then a task may even have ended before it opened its inlet.
        """
        if self.is_limited:
            return
        left = [number for number, inlet in enumerate(self._inlets) if not inlet.is_empty]
        assert self._fed, "the run has finished before its input"
        assert not left, f"rows of input {left} are left; no task here reads them"

    def close(self) -> None:
        """Wake all waiting threads; idempotent."""
        with self._changed:
            self._closed = self._ended = True
            self._outgoing.clear()
            for inlet in self._inlets:
                inlet.batches.clear()
                inlet.spill.close()
            self._changed.notify_all()
        self._wake_all()
        for token in self._tokens:
            _inlets.pop(token, None)
            _outlets.pop(token, None)

    def __enter__(self) -> "BatchBridge":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The side of the tasks.

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand a batch to Spark; blocks while Spark is behind, drops what nobody wants."""
        if self._wanted is not None and self._rows >= self._wanted:
            return  # the driver knows, and ends the run
        with self._changed:
            while self._outgoing_bytes >= self.room_bytes and not self._closed:
                self._changed.wait()
            if self._closed:
                raise TaskCancelled("Spark takes no more rows")
            self._outgoing.append(batch)
            self._outgoing_bytes += batch.nbytes
            self._rows += batch.num_rows
            rows = self._rows
            self._changed.notify_all()
        if self._wanted is not None:
            self._sent(rows)

    def take_from(self, inlet: Inlet) -> "pa.RecordBatch | None":
        with self._changed:
            if self._closed:
                raise TaskCancelled("Spark gives no more rows")
            if inlet.batches:
                batch = inlet.batches.popleft()
                inlet.held_bytes -= batch.nbytes
            elif inlet.spill:
                return inlet.spill.take()
            else:
                inlet.starves = not self._fed
                batch = None
            self._changed.notify_all()
            return batch

    def has_ended(self, inlet: Inlet) -> bool:
        with self._changed:
            if self._feeding_error is not None:
                raise self._feeding_error
            return self._fed and inlet.is_empty

    def close_inlet(self, inlet: Inlet) -> None:
        with self._changed:
            inlet.is_closed = True
            inlet.starves = False
            inlet.batches.clear()
            inlet.spill.close()
            self._changed.notify_all()

    @property
    def _is_over(self) -> bool:
        """Whether the rest of the input is of no use."""
        return self._closed or (self._ended and self._wanted is not None)

    def _wake_all(self) -> None:
        for inlet in self._inlets:
            inlet.wake()


class _Closed(Exception):
    """Ends the feeding."""


_inlets: dict[str, Inlet] = {}
_outlets: dict[str, BatchBridge] = {}


def inlet_of(token: str) -> Inlet:
    """The inlet of a DataFrame in this process."""
    assert token in _inlets, "rows of a DataFrame come only to tasks that Spark has started"
    return _inlets[token]


def outlet_of(token: str) -> BatchBridge:
    """Where records leave this process as rows."""
    assert token in _outlets, "rows of a DataFrame leave only from tasks that Spark has started"
    return _outlets[token]
