"""A simulated task manager: a real environment over a bytearray, and connections to the others.

A frozen worker does nothing at all: its tasks, reads, writes and timers wait until it thaws, as
those of a stopped process do. Its system still accepts connections and takes bytes into buffers.
Partitions and large elements that the real driver keeps in files are in memory here.
"""

import zlib
from collections import deque
from collections.abc import Callable
from random import Random

from headgate.base.elements import ByteLike
from headgate.base.errors import ConnectFailed
from headgate.base.ids import PartitionId, PeerName
from headgate.base.settings import Compression, ExchangeSettings
from headgate.core.buffers.buffer import cut_arena, stride_bytes
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.egress.writer import RecordWriter, flush_by_time
from headgate.core.exchange.frames import NONCE_BYTES
from headgate.core.exchange.link import Address, ConsumerEnd
from headgate.core.task.environment import Environment
from headgate.sim.clock import Clock
from headgate.sim.network import Network, SimConnection, Wire


class MemoryStore:
    """A blocking subpartition's data, kept in a list. Used after its end it fails loudly."""

    def __init__(self, on_deleted: Callable[[], None]) -> None:
        self._entries: list[tuple[bytes, bool]] | None = []
        self._finished = False
        self._readers = 0
        self._on_deleted = on_deleted

    def append(self, data: ByteLike, is_event: bool) -> None:
        assert self._entries is not None and not self._finished, "written after its end"
        self._entries.append((bytes(data), is_event))

    def finish(self) -> None:
        assert not self._finished, "finished twice"
        self._finished = True

    def open_reader(self) -> "MemoryReader":
        assert self._entries is not None and self._finished, "read before its end, or deleted"
        self._readers += 1
        return MemoryReader(self._entries, self._closed)

    def delete(self) -> None:
        assert self._entries is not None, "deleted twice"
        assert not self._readers, "deleted under a reader"
        self._entries = None
        self._on_deleted()

    def _closed(self) -> None:
        self._readers -= 1


class MemoryReader:
    """One reading of a memory store."""

    def __init__(self, entries: list[tuple[bytes, bool]], on_closed: Callable[[], None]) -> None:
        self._entries = iter(entries)
        self._on_closed = on_closed

    def next(self) -> tuple[ByteLike, bool] | None:
        return next(self._entries, None)

    def close(self) -> None:
        self._on_closed()


class MemorySpill:
    """A large element, gathered aside."""

    def __init__(self, on_closed: Callable[[], None]) -> None:
        self._data: bytearray | None = bytearray()
        self._on_closed = on_closed

    def write(self, data: memoryview) -> None:
        assert self._data is not None, "written after its end"
        self._data += data

    def written(self) -> bytes:
        assert self._data is not None, "read after its end"
        return bytes(self._data)

    def view(self) -> memoryview:
        assert self._data is not None, "read after its end"
        return memoryview(self._data)

    def close(self) -> None:
        assert self._data is not None, "closed twice"
        self._data = None
        self._on_closed()


class MemorySpills:
    """Makes spills, and counts those that are open."""

    def __init__(self) -> None:
        self.open_now = 0

    def open(self) -> MemorySpill:
        self.open_now += 1
        return MemorySpill(self._closed)

    def _closed(self) -> None:
        self.open_now -= 1


class ZlibCodec:
    """Compression for the simulation: slow and everywhere."""

    def compress(self, data: ByteLike) -> bytes:
        return zlib.compress(data, 1)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        return zlib.decompress(data)


FIRST_PORT = 4000


class CheckFailed(AssertionError):
    """A checker found that the law is broken."""


class SimWorker:
    """One task manager of the simulated cluster."""

    def __init__(
        self,
        index: int,
        settings: ExchangeSettings,
        segments: int,
        clock: Clock,
        network: Network,
        random: Random,
        tick_ms: float,
    ) -> None:
        self.index = index
        self.name = f"w{index}"
        self.address: Address = (self.name, FIRST_PORT + index)
        self.peer = PeerName(f"{self.name}:{FIRST_PORT + index}")
        self.peers: list[SimWorker] = []
        self.connections: list[SimConnection] = []
        self.waiting: deque[Wire] = deque()
        """Connections that the system has accepted and the worker has not."""
        self.frozen = False
        self.touched = True
        """Whether anything has happened here since the checkers looked."""
        self.dead = False
        """Killed: it stays frozen for ever, and nobody asks what it held."""
        self.stores = 0
        self.spills = MemorySpills()
        self.clock = clock
        self._network = network
        self._random = random
        self._tick_ms = tick_ms
        self._deferred: list[tuple[str, Callable[[], None]]] = []
        arena = memoryview(bytearray(stride_bytes(settings.segment_bytes) * segments))
        self.environment = Environment(
            settings,
            cut_arena(arena, settings.segment_bytes, segments),
            secret=b"known to all of this run",
            dial=self._dial,
            later=lambda delay_ms, call: self.later(delay_ms, "timer", call),
            codec=None if settings.compression is Compression.NONE else ZlibCodec(),
            make_store=self._make_store,
            spill_room=self.spills,
        )
        if tick_ms:  # else no signs of life are sent, and time can jump
            self.later(tick_ms, "tick", self._tick)

    def later(self, delay_ms: float, label: str, call: Callable[[], None]) -> None:
        """Call back after a while, or after thawing."""

        def fire() -> None:
            if self.frozen:
                self._deferred.append((label, call))
            else:
                self.touched = True
                call()

        self.clock.later(delay_ms, f"{label} of {self.name}", fire)

    def thaw(self) -> None:
        """Go on; what should have happened meanwhile happens now."""
        if self.dead:
            return
        self.frozen = False
        deferred, self._deferred = self._deferred, []
        for label, call in deferred:
            self.later(0, label, call)

    def die(self) -> None:
        """Everything here is gone; the system resets its connections."""
        self.dead = self.frozen = True
        for connection in self.connections:
            connection.wire.fault = "its worker died"
            connection.outgoing.tear("connection reset", self._network.pause_ms())
            connection.incoming.broken = True
        for wire in self.waiting:
            wire.fault = "its worker died"
            wire.down.tear("connection reset", self._network.pause_ms())
            wire.up.broken = True

    def flush_by_time(self, name: str, writer: RecordWriter) -> None:
        """Flush a writer with its buffer timeout, as long as its partition lives."""

        def later(delay_ms: float, tick: Callable[[], None]) -> None:
            def checked() -> None:
                due_ms, now_ms = flusher.next_deadline_ms, self.clock.now_ms
                tick()
                next_ms = flusher.next_deadline_ms
                if next_ms is not None and next_ms > now_ms + writer.timeout_ms:
                    raise CheckFailed(f"{flusher.name} rests until {next_ms} ms, too long")
                if due_ms is not None and due_ms <= now_ms:  # else it has flushed since: at rest
                    _check_flushed(writer)

            self.later(delay_ms, "flush", checked)

        flusher = flush_by_time(name, writer, lambda: self.clock.now_ms, later)

    def accept(self) -> str:
        """Take the next connection that waits."""
        wire = self.waiting.popleft()
        peer = PeerName(f"{wire.consumer}:{50_000 + len(self.connections)}")
        link = self.environment.producer_end(
            peer, self._random.randbytes(NONCE_BYTES), self.clock.now_ms
        )
        self._track(SimConnection(
            f"{self.name}◁{wire.name}", self.clock, link, wire,
            is_consumer=False, writes_per_flush=self._random.randint(1, 4),
        ))  # fmt: skip
        return wire.name

    def _dial(self, address: Address) -> ConsumerEnd:
        clock, network = self.clock, self._network
        target = next(peer for peer in self.peers if peer.address == address)
        link = self.environment.consumer_end(
            target.peer, self._random.randbytes(NONCE_BYTES), clock.now_ms
        )
        refused = target.name in network.refused
        if refused and self._random.random() < 0.3:
            link.fail(ConnectFailed(target.peer, "cannot connect: no route to host"))
            return link
        wire = network.wire(self.name, target.name)
        connection = SimConnection(
            f"{self.name}▷{wire.name}", clock, link, wire,
            is_consumer=True, writes_per_flush=self._random.randint(1, 4),
        )  # fmt: skip
        self._track(connection)
        if refused:
            wire.fault = "refused"
            self.later(
                wire.up.latency_ms, "refusal", lambda: connection.refused("connection refused")
            )
        else:
            clock.later(
                wire.up.latency_ms, f"dial {wire.name}", lambda: self._reached(wire, target)
            )
            self.later(2 * wire.up.latency_ms, f"dialled {wire.name}", connection.connected)
        return link

    def _reached(self, wire: Wire, target: "SimWorker") -> None:
        if wire.is_whole:
            target.waiting.append(wire)

    def _track(self, connection: SimConnection) -> None:
        self.connections.append(connection)
        connection.on_closed = self.connections.remove

    def _tick(self) -> None:
        for connection in list(self.connections):
            connection.tick()
        self.later(self._tick_ms, "tick", self._tick)

    def _make_store(self, partition: PartitionId, index: int) -> MemoryStore:
        self.stores += 1
        return MemoryStore(self._store_deleted)

    def _store_deleted(self) -> None:
        self.stores -= 1


def _check_flushed(writer: RecordWriter) -> None:
    """After a flush by time every byte that was written can be read."""
    for index, subpartition in enumerate(writer.partition.subpartitions):
        if isinstance(subpartition, PipelinedSubpartition) and subpartition._queue:
            last = subpartition._queue[-1]
            if last.has_data and not last.is_finished and not subpartition.flush_requested:
                raise CheckFailed(f"{writer.partition.id}[{index}] was not flushed in time")
