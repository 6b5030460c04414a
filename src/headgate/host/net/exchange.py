"""The data exchange of one task manager: arena, server, connections and threads in one object.

``with Exchange(settings, secret) as exchange`` starts it; the end of the block ends every thread
and socket it owns. Law: other threads touch its machines only within ``exchange.inside()``.
"""

import gc
import logging
import mmap
import os
import resource
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from headgate.base.elements import ByteLike
from headgate.base.errors import (
    MemoryShort,
    PeerBrokeProtocol,
    PeerBusy,
    PeerUnproven,
    SettingsInvalid,
    TaskCancelled,
)
from headgate.base.ids import PeerName
from headgate.base.settings import Compression, ExchangeSettings
from headgate.core.buffers.buffer import PAGE_BYTES, Segment, cut_arena, stride_bytes
from headgate.core.buffers.sizing import segment_count
from headgate.core.egress.writer import Flusher, RecordWriter, flush_by_time
from headgate.core.exchange.compression import CompressionCodec
from headgate.core.exchange.frames import NONCE_BYTES
from headgate.core.exchange.link import Address, ConsumerEnd, Link
from headgate.core.task.environment import Environment
from headgate.host.files.partition_files import PartitionFiles
from headgate.host.net.baton import Baton, Turn
from headgate.host.net.connection import Connection, Server, UnprovenConnections, connect
from headgate.host.net.loop import Loop, now_ms
from headgate.host.net.runner import SLICE_MS, Runner, Stepper, TaskThread, waited_ns
from headgate.host.net.throttled_log import ThrottledLog
from headgate.host.net.transport import Tls

log = logging.getLogger(__name__)

TICK_MS: Final = 1000.0
RUNNABLE_MS: Final = 50.0
"""How long threads wait for cores is looked up no more often than this."""
RUNNABLE_COSTS: Final = 50
"""The pause until the next look-up, in durations of the last one."""
RUNNABLE_MOST_MS: Final = 1000.0
"""The longest such pause."""
CANCEL_S: Final = 30.0
"""How long a cancelled task may take to return from the user's code; then it is abandoned."""

MIN_SECRET_BYTES: Final = 16
_CODEC_NAMES: Final = {Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd"}


class Exchange:
    """One task manager's data exchange, running."""

    def __init__(
        self,
        settings: ExchangeSettings,
        secret: bytes,
        *,
        segments: int | None = None,
        heap_bytes: int = 0,
        local_only: bool = False,
    ) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise SettingsInvalid(
                "the job's secret",
                f"it has {len(secret)} bytes; a peer that guesses it may run code here, so it "
                f"needs {MIN_SECRET_BYTES} or more, from secrets.token_bytes(32) for instance",
            )
        count = segment_count(settings, heap_bytes) if segments is None else segments
        self._tls = Tls(settings) if settings.tls_enabled and not local_only else None
        self.settings = settings
        self._connections: list[Connection] = []
        self._unproven = UnprovenConnections(self._unproven_limit)
        self._most_unproven = _descriptors() // 4
        self._runners: list[Runner] = []
        self._runnable_ms = self._runnable_at_ms = 0.0
        self._roster = threading.Lock()  # guards the runners, and whether more may start
        self._closing = threading.Lock()
        self._closed = self._stopping = False
        with ExitStack() as undo:  # on an error, undo what was begun
            self.loop = Loop(settings.transport.value)
            undo.callback(self.loop.close)
            self._connection_log = ThrottledLog(log, self.loop.later)
            undo.callback(self._connection_log.flush)
            self.files = PartitionFiles(settings.storage)
            undo.callback(self.files.close)
            self.environment = self._make_environment(secret, count)
            self._server = None if local_only else self._listen()
            if self._server is not None:
                undo.callback(self._server.close)
            self.baton = Baton(self.loop.nudge)
            undo.callback(self.baton.watch().stop)
            self._tick_ms = _tick_ms(settings)
            self.loop.later(self._tick_ms, self._tick)
            self._standby = self._start_standby()
            undo.callback(self._stop_standby)
            self._undo = undo.pop_all()

    @property
    def closed(self) -> bool:
        """Whether its end has begun."""
        return self._closed

    @property
    def address(self) -> Address:
        """Where other task managers reach this one."""
        assert self._server is not None, "a local exchange has no address"
        return self._server.address

    @contextmanager
    def inside(self) -> Iterator[Environment]:
        """Hold the baton for a moment, to set up or inspect machines; not from within a task."""
        assert not self.baton.held_here(), "this thread is inside already"
        turn = Turn(f"caller {threading.current_thread().name}")
        self.baton.take(turn)
        try:
            try:
                yield self.environment
            finally:
                self.loop.poll(0)
        finally:
            self.baton.give(turn)

    def task_thread(self, name: str) -> TaskThread:
        """What the writers and gates of a task wait and wake with."""
        return TaskThread(name, self.baton, self.loop)

    def run(self, task: Stepper, task_thread: TaskThread) -> Runner:
        """Start a task on a thread of its own."""
        with self._roster:
            if self._closed:
                raise TaskCancelled(f"task {task.name} came after the task manager had closed")
            runner = Runner(task_thread, self.baton, self.loop, task)
            self._runners = [known for known in self._runners if known.is_alive]
            runner.start()
            self._runners.append(runner)
            return runner

    def runnable_ms(self) -> float:
        """How long the threads of its process have waited for a core so far, all together.

        Called inside the baton.
        """
        began_ms = now_ms()
        if began_ms >= self._runnable_at_ms:
            self._runnable_ms = max(self._runnable_ms, _runnable_ms())  # a thread may have ended
            ended_ms = now_ms()
            pause_ms = max(RUNNABLE_MS, RUNNABLE_COSTS * (ended_ms - began_ms))
            self._runnable_at_ms = ended_ms + min(pause_ms, RUNNABLE_MOST_MS)
        return self._runnable_ms

    def round_ms(self) -> float:
        """How long it takes until every task had its turn, if all of them have work to do."""
        return len(self._runners) * SLICE_MS

    def flush_by_time(self, name: str, writer: RecordWriter) -> Flusher:
        """Flush a writer with its buffer timeout, as long as its partition lives (call inside)."""
        return flush_by_time(name, writer, now_ms, self.loop.later)

    def close(self) -> None:
        """Cancel the tasks, close every connection, end every thread, remove the files.

        Idempotent; a second caller waits for the first. Not from within a task: it waits for them.
        """
        assert not self.baton.held_here(), "a task cannot close the exchange that runs it"
        with self._closing:
            with self._roster:
                if self._closed:
                    return
                self._closed = True
            with self._undo:
                self._end_tasks()
                with self.inside() as environment, ExitStack() as last:
                    last.callback(self._end_connections)
                    environment.close()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Begin and end.

    def _make_environment(self, secret: bytes, segments: int) -> Environment:
        return Environment(
            self.settings,
            allocate_arena(self.settings.segment_bytes, segments),
            secret=secret,
            dial=self._dial,
            later=self.loop.later,
            codec=make_codec(self.settings.compression),
            make_store=self.files.make_store,
            spill_room=self.files,
        )

    def _end_tasks(self) -> None:
        with self.inside():
            for runner in self._runners:
                runner.task_thread.cancel()
        deadline = time.monotonic() + CANCEL_S
        for runner in self._runners:
            if not runner.ends_within(max(0.0, deadline - time.monotonic())):
                log.error(
                    "task %s has not returned from user code %g s after it was cancelled; its "
                    "thread is left running",
                    runner.task.name,
                    CANCEL_S,
                )

    def _end_connections(self) -> None:
        if self._server is not None:
            self._server.close()
        with ExitStack() as last:
            for connection in list(self._connections):
                last.callback(connection.close)
                last.callback(connection.link.close)
                connection.flush()  # sends the reason

    # The standby thread: serves the network when no task has the baton.

    def _start_standby(self) -> threading.Thread:
        self.baton.standby = self.baton.holder = turn = Turn("standby")
        turn.go()
        thread = threading.Thread(target=self._stand_by, name="headgate-standby", daemon=True)
        thread.start()
        return thread

    def _stop_standby(self) -> None:
        self._stopping = True
        self.loop.nudge()
        self._standby.join()

    def _stand_by(self) -> None:
        baton, turn = self.baton, self.baton.standby
        assert turn is not None
        turn.thread = threading.get_ident()
        while True:
            turn.wait()
            while not self._stopping and not baton.wanted:
                baton.asleep = True
                if not baton.wanted:
                    self.loop.poll(None)
                baton.asleep = False
            if self._stopping and baton.close(turn):
                return
            baton.give(turn)

    # Connections.

    def _listen(self) -> Server:
        return Server(
            self.loop, self.settings, self._tls, self._accepted, self._greet, self._connection_log
        )

    def _accepted(self, peer: PeerName) -> Link:
        return self.environment.producer_end(peer, secrets.token_bytes(NONCE_BYTES), now_ms())

    def _dial(self, address: Address) -> ConsumerEnd:
        peer = PeerName(f"{address[0]}:{address[1]}")
        link = self.environment.consumer_end(peer, secrets.token_bytes(NONCE_BYTES), now_ms())
        connection = connect(self.loop, self.settings, self._tls, address, link)
        if connection is not None:
            self._track(connection)
        return link

    def _greet(self, connection: Connection, host: str) -> None:
        self._unproven.add(connection, host)
        self._track(connection)

    def _unproven_limit(self) -> int:
        """High enough that a job's own task managers never evict each other.

        Every reader of a partition here uses some connection, so there are at most as many peers
        as readers. In any case most descriptors stay free for proven connections.
        """
        readers = self.environment.partitions.readers
        return max(1, min(max(self.settings.accept_backlog, readers), self._most_unproven))

    def _track(self, connection: Connection) -> None:
        self._connections.append(connection)
        connection.on_closed = self._ended

    def _ended(self, connection: Connection) -> None:
        self._connections.remove(connection)
        self._unproven.forget(connection)
        error = connection.link.error
        if error is not None:
            strange = isinstance(error, PeerBrokeProtocol | PeerUnproven | PeerBusy)
            level = logging.WARNING if strange else logging.INFO
            self._connection_log.log(level, f"connection ended: {error}")

    def _tick(self) -> None:
        # In the next poll, after what waits in the sockets: it may be this side that was late.
        for connection in self._connections:
            self.loop.later(0, connection.tick)
        self.loop.later(self._tick_ms, self._tick)


def _descriptors() -> int:
    """How many files and sockets this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _runnable_ms() -> float:
    """How long threads of this process have waited for a core; 0: the platform does not tell."""
    total = 0
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return 0.0
    for thread in threads:
        try:
            total += waited_ns(thread)
        except (OSError, ValueError, IndexError):  # the thread has just ended
            continue
    return total / 1e6


def _tick_ms(settings: ExchangeSettings) -> float:
    """Often enough for the shortest timeout of connections."""
    shortest = min(
        settings.connect_timeout_ms, settings.heartbeat_timeout_ms, settings.heartbeat_interval_ms
    )
    return min(TICK_MS, max(10.0, shortest / 4))


def allocate_arena(segment_bytes: int, count: int) -> list[Segment]:
    """All segments of a task manager: anonymous, page-aligned memory, freed with its last view.

    Raises MemoryShort.
    """
    size = max(PAGE_BYTES, stride_bytes(segment_bytes) * count)
    try:
        memory = mmap.mmap(-1, size)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise MemoryShort(required=size, allocated=0) from error
    return cut_arena(memoryview(memory), segment_bytes, count)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python collect cyclic garbage less often: streams make many short-lived tuples.

    Objects that exist already are never scanned; cycles are still found, after more allocations.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class ArrowCodec:
    """LZ4 (raw blocks) or Zstandard."""

    def __init__(self, compression: Compression) -> None:
        import pyarrow  # noqa: PLC0415 - only compression needs it

        self._codec = pyarrow.Codec(_CODEC_NAMES[compression])
        # Arrow does not say how much a block of LZ4 has expanded to: if that is less than the peer
        # claims, the rest is whatever this process had in its memory.
        self._may_fall_short = compression is Compression.LZ4

    def compress(self, data: ByteLike) -> bytes:
        packed: bytes = self._codec.compress(data, asbytes=True)
        return packed

    def decompress(self, data: ByteLike, size: int) -> bytes:
        original: bytes = self._codec.decompress(data, decompressed_size=size, asbytes=True)
        if self._may_fall_short and self._fits(data, size - 1):
            raise ValueError(f"it expands to fewer than {size} bytes")
        return original

    def _fits(self, data: ByteLike, size: int) -> bool:
        try:
            self._codec.decompress(data, decompressed_size=size, asbytes=True)
        except OSError:
            return False
        return True


def make_codec(compression: Compression) -> CompressionCodec | None:
    """The codec for a setting, or None for no compression."""
    return None if compression is Compression.NONE else ArrowCodec(compression)
