"""The exchange of one task manager: arena, server, connections, threads, in one object.

``with Exchange(settings, secret) as exchange`` starts it; the end of the block ends every thread
and socket it owns. Other threads touch its machines only within ``exchange.inside()``.
"""

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from headgate.base.ids import PeerName
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.sizing import segment_count
from headgate.core.egress.flusher import Flusher
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.directory import Address
from headgate.core.exchange.ends import ConsumerEnd
from headgate.core.exchange.frames import NONCE_BYTES
from headgate.core.exchange.link import Link
from headgate.core.task.environment import Environment
from headgate.host.baton import Baton, Turn
from headgate.host.codec import make_codec
from headgate.host.connection import Connection, Server, connect
from headgate.host.loop import Loop, now_ms
from headgate.host.memory import allocate_arena
from headgate.host.runner import Runner, Seat, Stepper
from headgate.host.storage import FileRoom
from headgate.host.transport import Tls

log = logging.getLogger(__name__)

TICK_MS = 1000.0


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
        count = segment_count(settings, heap_bytes) if segments is None else segments
        tls = Tls(settings) if settings.tls_enabled and not local_only else None
        self.settings = settings
        self.loop = Loop(settings.transport.value)
        self.baton = Baton(self.loop.nudge)
        self.files = FileRoom(settings.storage)
        self.environment = Environment(
            settings,
            allocate_arena(settings.segment_bytes, count),
            secret=secret,
            dial=self._dial,
            later=self.loop.later,
            codec=make_codec(settings.compression),
            make_store=self.files.make_store,
        )
        self._tls = tls
        self._connections: list[Connection] = []
        self._runners: list[Runner] = []
        self._stopping = False
        self._standby = threading.Thread(
            target=self._stand_by, name="headgate-standby", daemon=True
        )
        try:
            self._server = None if local_only else self._listen()
        except BaseException:
            self.loop.close()
            self.files.close()
            raise
        self._watchdog = self.baton.watch()
        self._start_standby()
        self.loop.later(TICK_MS, self._tick)

    @property
    def address(self) -> Address:
        """Where other task managers reach this one."""
        assert self._server is not None, "a local exchange has no address"
        return self._server.address

    @contextmanager
    def inside(self) -> Iterator[Environment]:
        """Hold the baton for a moment, to set up or look at machines."""
        turn = Turn(f"visitor {threading.current_thread().name}")
        self.baton.take(turn)
        try:
            yield self.environment
        finally:
            self.loop.poll(0)
            self.baton.give(turn)

    def seat(self, name: str) -> Seat:
        """A place for a task's thread: what its writer and gate wait and wake with."""
        return Seat(name, self.baton, self.loop)

    def run(self, task: Stepper, seat: Seat) -> Runner:
        """Start a task on a thread of its own."""
        runner = Runner(seat, self.baton, self.loop, task)
        self._runners.append(runner)
        runner.start()
        return runner

    def flush_by_time(self, name: str, writer: RecordWriter) -> Flusher:
        """Flush a writer with its buffer timeout, as long as its partition lives (call inside)."""
        flusher = Flusher(name, writer, now_ms())

        def tick() -> None:
            flusher.tick(now_ms())
            schedule()

        def schedule() -> None:
            deadline = flusher.next_deadline_ms
            if deadline is not None and not writer.partition.released:
                self.loop.later(max(0.0, deadline - now_ms()), tick)

        schedule()
        return flusher

    def close(self) -> None:
        """Cancel the tasks, close every connection, end every thread, remove the files."""
        if self._stopping:
            return
        with self.inside():
            for runner in self._runners:
                runner.seat.cancel()
        for runner in self._runners:
            runner._thread.join()
        with self.inside() as environment:
            environment.close()
            self._flush_last_words()
            if self._server is not None:
                self._server.close()
            for connection in list(self._connections):
                connection.link.close()
                connection.close()
            self._stopping = True
        self.loop.nudge()
        self._standby.join()
        self._watchdog.stop()
        self.loop.close()
        self.files.close()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The standby thread: serves the network when no task has the baton.

    def _start_standby(self) -> None:
        self.baton.standby = turn = Turn("standby")
        self.baton.holder = turn
        turn.go()
        self._standby.start()

    def _stand_by(self) -> None:
        baton, turn = self.baton, self.baton.standby
        assert turn is not None
        while True:
            turn.wait()
            while not self._stopping and not baton.wanted:
                baton.asleep = True
                if not baton.wanted:
                    self.loop.poll(None)
                baton.asleep = False
            if self._stopping and not baton.wanted:
                return
            baton.give(turn)

    # Connections.

    def _listen(self) -> Server:
        return Server(self.loop, self.settings, self._tls, self._accepted, self._track)

    def _accepted(self, peer: PeerName) -> Link:
        return self.environment.producer_end(peer, secrets.token_bytes(NONCE_BYTES), now_ms())

    def _dial(self, address: Address) -> ConsumerEnd:
        peer = PeerName(f"{address[0]}:{address[1]}")
        link = self.environment.consumer_end(peer, secrets.token_bytes(NONCE_BYTES), now_ms())
        connection = connect(self.loop, self.settings, self._tls, address, link)
        if connection is not None:
            self._track(connection)
        return link

    def _track(self, connection: Connection) -> None:
        self._connections.append(connection)
        connection.on_closed = self._connections.remove

    def _tick(self) -> None:
        for connection in list(self._connections):
            connection.tick()
        self.loop.later(TICK_MS, self._tick)

    def _flush_last_words(self) -> None:
        for connection in list(self._connections):
            connection.flush()
