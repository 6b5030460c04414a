"""One side of a wire: moves bytes between its link and the pipes, as the real driver does.

Each action is one step of the world: connect, read once, flush a few writes. The connection closes
behind its link. Closing with bytes unread resets the other side, as TCP does.
"""

from collections.abc import Callable

from headgate.core.exchange.link import Link, LinkState
from headgate.sim.clock import Clock
from headgate.sim.network import Pipe, Wire


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
        """Close behind the link."""
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
