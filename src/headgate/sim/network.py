"""The virtual network: pipes with delay, bandwidth and a bounded window, and their faults.

A wire is one TCP connection, two pipes. Law: what is read from a pipe is what was written to it, in
order, in pieces of any size; a cut or a reset loses a tail, never a middle. A stalled pipe neither
delivers nor says anything, as if the cable were gone.

On each side of a wire a connection moves bytes between its link and the pipes, as the real driver
does. Each of its actions is one step of the world: connect, read once, flush a few writes. It
closes after its link. Closing with bytes unread resets the other side, as TCP does.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from headgate.base.elements import ByteLike
from headgate.core.exchange.link import Link, LinkState
from headgate.sim.clock import Clock

TAIL_MS = 0.001
PIECE_MS = 10
MIN_PIECE_BYTES = 64


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """How one connection behaves. Bandwidth is in bytes per millisecond."""

    latency_ms: float
    jitter_ms: float
    bandwidth: float
    window_bytes: int
    tiny_reads: float
    """Share of reads that take a few bytes only."""

    def __str__(self) -> str:
        return (
            f"{self.latency_ms:.2f}+{self.jitter_ms:.2f} ms, {self.bandwidth:g} bytes/ms, "
            f"window {self.window_bytes}"
        )


class Tap(Protocol):
    """Listens to the bytes of a pipe."""

    def feed(self, data: ByteLike) -> None:
        """They were written."""

    def forget(self, read: int) -> None:
        """So many bytes have been read in all."""


class Pipe:
    """Bytes on their way from one side to the other, like two socket buffers with a cable."""

    def __init__(
        self, name: str, clock: Clock, conditions: NetworkConditions, random: Random
    ) -> None:
        self.name = name
        self.tap: Tap | None = None
        self.read = 0
        self.written = 0
        self.end: str | None = None
        """Why nothing more will come; told to the reader when it has read all that arrived."""
        self.stalled = False
        self.broken = False
        """Nobody reads any more: what is written goes nowhere."""
        self._clock = clock
        self._conditions = conditions
        self._random = random
        self._flying: deque[bytes] = deque()
        self._arrived: deque[memoryview] = deque()
        self._free_ms = 0.0  # when the cable has taken what was written before
        self._last_ms = 0.0  # when the last byte so far arrives
        self._closed = False

    # The writer's side.

    @property
    def latency_ms(self) -> float:
        return self._conditions.latency_ms

    @property
    def room(self) -> int:
        """Bytes that a write would take now."""
        if self.broken:
            return 1 << 30  # they go nowhere
        return self._conditions.window_bytes - (self.written - self.read)

    @property
    def writable(self) -> bool:
        """Whether a writer that was blocked may go on: not for single bytes, as in a socket."""
        return self.broken or 3 * self.room >= self._conditions.window_bytes

    def write(self, parts: list[ByteLike]) -> int:
        """Take as much as there is room for; says how much that was."""
        taken = b"".join(parts)[: max(0, self.room)]
        if self.broken or not taken:
            return len(taken)
        if self.tap is not None:
            self.tap.feed(taken)
        self.written += len(taken)
        piece = max(MIN_PIECE_BYTES, int(self._conditions.bandwidth * PIECE_MS))
        for start in range(0, len(taken), piece):
            self._launch(taken[start : start + piece])
        return len(taken)

    def _launch(self, piece: bytes) -> None:
        """Put a piece on the cable; it arrives after all that was put there before."""
        now, conditions = self._clock.now_ms, self._conditions
        self._free_ms = max(now, self._free_ms) + len(piece) / conditions.bandwidth
        delay = conditions.latency_ms + self._random.random() * conditions.jitter_ms
        self._last_ms = max(self._last_ms, self._free_ms + delay)
        self._flying.append(piece)
        self._clock.later(self._last_ms - now, f"arrival {self.name}", self._arrive)

    def finish(self, reason: str) -> None:
        """The writer closed: the reader learns it after the last byte."""
        if not self._closed:
            self._closed = True
            wait_ms = max(self._last_ms - self._clock.now_ms, self._conditions.latency_ms) + TAIL_MS
            self._clock.later(wait_ms, f"end of {self.name}", lambda: self._finished(reason))

    def tear(self, reason: str, delay_ms: float) -> None:
        """A reset or cut: what has not arrived is lost, the reader learns it after the delay."""
        self.broken = True
        self._flying.clear()
        self._clock.later(delay_ms, f"reset of {self.name}", lambda: self._finished(reason))

    # The reader's side.

    @property
    def readable(self) -> bool:
        return bool(self._arrived) or self.end is not None

    @property
    def has_bytes(self) -> bool:
        return bool(self._arrived)

    @property
    def unread(self) -> bool:
        """Whether there is anything that its reader has not read."""
        return self.read < self.written

    def read_into(self, targets: list[memoryview]) -> int:
        """Read what has arrived, or less of it, into the targets."""
        limit = sum(len(chunk) for chunk in self._arrived)
        if self._random.random() < self._conditions.tiny_reads:
            limit = min(limit, self._random.choice((1, 1, 2, 3, 7, 8, 9, 31, 33)))
        count = 0
        for target in targets:
            at = 0
            while at < len(target) and count < limit:
                chunk = self._arrived[0]
                size = min(len(chunk), len(target) - at, limit - count)
                target[at : at + size] = chunk[:size]
                at += size
                count += size
                self._drop(size)
            if count == limit:
                break
        self.read += count
        if self.tap is not None:
            self.tap.forget(self.read)
        return count

    def _drop(self, size: int) -> None:
        rest = self._arrived[0][size:]
        if len(rest):
            self._arrived[0] = rest
        else:
            self._arrived.popleft()

    def _arrive(self) -> None:
        if self._flying and not self.stalled:
            self._arrived.append(memoryview(self._flying.popleft()))

    def _finished(self, reason: str) -> None:
        if not self.stalled and self.end is None:
            self.end = reason


@dataclass(eq=False, slots=True)
class Wire:
    """One connection between two workers: the consumer's side has dialled."""

    name: str
    consumer: str
    producer: str
    up: Pipe
    """From the consumer's side to the producer's: requests and credit."""
    down: Pipe
    """From the producer's side to the consumer's: buffers."""
    fault: str = ""
    """The fault that it had; empty: none."""

    @property
    def is_whole(self) -> bool:
        """Whether no byte has been or will be lost."""
        return not (self.up.broken or self.down.broken or self.up.stalled or self.down.stalled)

    def cut(self, up_delay_ms: float, down_delay_ms: float) -> None:
        """Both sides find the connection reset, each after a while."""
        self.fault = "cut"
        self.up.tear("connection reset", up_delay_ms)
        self.down.tear("connection reset", down_delay_ms)

    def stall(self, up: bool, down: bool) -> None:
        """Nothing more arrives in these directions, and nobody is told."""
        self.fault = "stalled"
        self.up.stalled |= up
        self.down.stalled |= down


class Network:
    """Makes wires. Refused addresses and the conditions of wires come from the scenario."""

    def __init__(
        self, clock: Clock, random: Random, conditions: Callable[[], NetworkConditions]
    ) -> None:
        self.clock = clock
        self.random = random
        self.wires: list[Wire] = []
        self.refused: list[str] = []
        """Workers at which nobody accepts (any more)."""
        self.swallows = 0
        """So many of the next connections are never answered."""
        self.make_tap: Callable[[], Tap | None] = lambda: None
        """For every pipe of the wires to come."""
        self._conditions = conditions

    def wire(self, consumer: str, producer: str) -> Wire:
        """A fresh connection from one worker to another."""
        conditions = self._conditions()
        number = len(self.wires)
        up = Pipe(f"{consumer}→{producer}#{number}", self.clock, conditions, self.random)
        down = Pipe(f"{producer}→{consumer}#{number}", self.clock, conditions, self.random)
        up.tap, down.tap = self.make_tap(), self.make_tap()
        wire = Wire(f"{consumer}→{producer}#{number}", consumer, producer, up, down)
        self.wires.append(wire)
        if self.swallows:
            self.swallows -= 1
            wire.stall(up=True, down=True)
        return wire

    def pause_ms(self) -> float:
        """How long news takes, roughly."""
        return self.random.random() * 5


class SimConnection:
    """A link on one side of a wire."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        link: Link,
        wire: Wire,
        *,
        is_consumer: bool,
        writes_per_flush: int,
    ) -> None:
        self.name = name
        self.link = link
        self.wire = wire
        self.incoming: Pipe = wire.down if is_consumer else wire.up
        self.outgoing: Pipe = wire.up if is_consumer else wire.down
        self.is_consumer = is_consumer
        self.connecting = is_consumer
        self.closed = False
        self.on_closed: Callable[[SimConnection], None] = lambda connection: None
        self._clock = clock
        self._dirty = False
        self._blocked = False
        self._writes_per_flush = writes_per_flush
        link.on_dirty = self._link_dirty

    # Steps.

    def connected(self) -> None:
        """The other side's system has accepted."""
        if self.closed or self.outgoing.stalled or self.incoming.stalled:
            return
        if not self.link.is_alive:
            self.settle()
            return
        if self.outgoing.broken:
            self.refused("connection reset", may_pass=True)
            return
        self.connecting = False
        self.link.connected(self._clock.now_ms)
        self._dirty = True
        self.settle()

    def refused(self, reason: str, *, may_pass: bool = False) -> None:
        """The other side's system has not; if nobody listens there, nobody will."""
        if not self.closed:
            self.link.ended(reason, may_pass=may_pass)
            self.settle()

    @property
    def can_read(self) -> bool:
        incoming = self.incoming
        if not incoming.readable:
            return False
        if self.connecting or self.closed or not self.link.is_alive:
            return False
        return not (incoming.has_bytes and self.link.decoder.paused)

    def read(self) -> str:
        """Take some of what has arrived, or the end."""
        link, incoming = self.link, self.incoming
        if not incoming.has_bytes:
            reason = incoming.end or ""
            link.ended(reason)
            self.settle()
            return reason
        targets = link.targets()
        count = incoming.read_into(targets) if targets else 0
        if count:
            link.received(count, self._clock.now_ms)
        self.settle()
        return f"{count} bytes"

    @property
    def can_flush(self) -> bool:
        if self.closed:
            return False
        if self.connecting:
            return self.link.state is LinkState.CLOSED
        return self.outgoing.writable if self._blocked else self._dirty

    def flush(self) -> str:
        """Send what the link has, as far as the pipe takes it."""
        link, total = self.link, 0
        if self.connecting:
            self.settle()
            return "given up"
        self._dirty = self._blocked = False
        for _ in range(self._writes_per_flush):
            parts = link.outgoing()
            if not parts:
                break
            size = sum(map(len, parts))
            sent = self.outgoing.write(parts)
            total += sent
            if sent:
                link.sent(sent, self._clock.now_ms)
            if sent < size:
                self._blocked = True
                break
        else:
            self._dirty = self._dirty or link.outbox.pending_bytes > 0
        self.settle()
        return f"{total} bytes"

    def tick(self) -> None:
        """Time has passed."""
        if not self.closed:
            self.link.tick(self._clock.now_ms)
            self.settle()

    def settle(self) -> None:
        """Close the connection if its link has closed."""
        if not self.closed and self.link.state is LinkState.CLOSED:
            self.close()

    def close(self) -> None:
        """Give up this side; the other one learns it after a while."""
        self.closed = True
        incoming, outgoing = self.incoming, self.outgoing
        if incoming.unread:
            outgoing.tear("connection reset", outgoing.latency_ms)
        else:
            outgoing.finish("it closed the connection")
        incoming.broken = True
        self.link.outbox.close()
        self.on_closed(self)

    def _link_dirty(self, link: Link) -> None:
        self._dirty = True
