"""A local pool: the buffers of one partition or gate, within a size that the global pool sets.

Law: free + lent == held, and held never exceeds size + overdraft except while the size has just
shrunk; then every returned segment goes back to the global pool until it fits again. When nothing
is free, listeners (channels that want floating buffers) are served in the order they came.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from headgate.base.errors import PoolDestroyed
from headgate.core.buffers.buffer import Lease, Segment


class OfferAnswer(Enum):
    """What a listener says to a buffer that it is offered."""

    REFUSED = "refused"
    WANTS_MORE = "wants more"
    ENOUGH = "enough"


class BufferListener(Protocol):
    """Somebody who waits for a buffer of a pool."""

    def buffer_offered(self, lease: Lease) -> OfferAnswer: ...

    def pool_destroyed(self) -> None: ...


class SegmentProvider(Protocol):
    """What a local pool needs of the global one."""

    def try_take(self) -> Segment | None: ...

    def wait(self, pool: "LocalPool") -> None: ...

    def segment_returned(self, segment: Segment) -> None: ...

    def pool_destroyed(self, pool: "LocalPool") -> None: ...


class LocalPool:
    """Buffers for one owner. ``notify`` is called when a buffer can be had again."""

    def __init__(
        self, depot: SegmentProvider, who: str, minimum: int, maximum: int, overdraft: int
    ) -> None:
        self.who = who
        self.minimum = minimum
        self.maximum = maximum
        self.overdraft = overdraft
        self.size = minimum
        self.held = 0
        self.free: deque[Segment] = deque()
        self.destroyed = False
        self.notify: Callable[[], None] | None = None
        self.owner: Callable[[int], None] | None = None
        """Asked to release this many buffers when the pool shrinks below what it has lent."""
        self._depot = depot
        self._listeners: deque[BufferListener] = deque()
        self._notify_wanted = False
        self._queued_at_depot = False

    def reserve(self) -> None:
        """Take the minimum at once and keep it: overdrafts, claims and larger shares of others
        come out of the rest, so that nobody waits for a minimum which others wait to give back."""
        while self.held < self.minimum:
            segment = self._depot.try_take()
            if segment is None:
                return
            self.held += 1
            self.free.append(segment)

    def try_request(self) -> Lease | None:
        """A buffer within the size of the pool, or None: not now."""
        if self.destroyed:
            raise PoolDestroyed(f"the buffer pool of {self.who} is destroyed")
        if self.held > self.size:
            self._return_excess()
        if self.free:
            return Lease(self.free.pop(), self)  # the last one back is warm in the cache
        if self.held < self.size:
            segment = self._depot.try_take()
            if segment is not None:
                self.held += 1
                return Lease(segment, self)
        return None

    def try_request_overdraft(self) -> Lease | None:
        """A buffer beyond the size, so that a step that has begun can end."""
        lease = self.try_request()
        if lease is None and self.size <= self.held < self.size + self.overdraft:
            segment = self._depot.try_take()
            if segment is not None:
                self.held += 1
                lease = Lease(segment, self)
        return lease

    def available(self) -> bool:
        """Whether a request would succeed; if not, ``notify`` is called when it would."""
        if self._can_lend():
            return True
        self._notify_wanted = True
        self._queue_at_depot()
        return False

    def listen(self, listener: BufferListener) -> bool:
        """Stand in the queue for a buffer; False if one can be had, or never will be."""
        if self._can_lend():
            return False
        self._listeners.append(listener)
        self._queue_at_depot()
        return True

    def forget(self, listener: BufferListener) -> None:
        """Take a listener out of the queue, wherever it stands."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def segment_returned(self, segment: Segment) -> None:
        """A lent segment comes home (a lease calls this)."""
        if self.destroyed or self.held > self.size:
            self.held -= 1
            self._depot.segment_returned(segment)
        elif self._listeners:
            self._place(segment)
        else:
            self.free.append(segment)
            if self._notify_wanted:
                self._tell_available()

    def segment_offered(self, segment: Segment) -> bool:
        """The global pool has a segment for us, as we had asked; False if we cannot use it now."""
        self._queued_at_depot = False
        wanted = self._listeners or self._notify_wanted
        if self.destroyed or self.held >= self.size or not wanted:
            return False
        self.held += 1
        self._place(segment)
        if self._listeners or self._notify_wanted:
            self._queue_at_depot()
        return True

    def settle(self) -> None:
        """The global pool has shared out anew: fit into the new ``size``, or fill it."""
        if self.destroyed:
            return
        if self.held > self.size:
            self._return_excess()
            if self.held > self.size and self.owner is not None:
                self.owner(self.held - self.size)
        else:
            self._grow()

    def destroy(self) -> None:
        """Refuse requests; what is lent flows to the global pool as it comes back. Idempotent."""
        if self.destroyed:
            return
        self.destroyed = True
        while self.free:
            self.held -= 1
            self._depot.segment_returned(self.free.popleft())
        self._depot.pool_destroyed(self)
        listeners, self._listeners = self._listeners, deque()
        for listener in listeners:
            listener.pool_destroyed()
        self._tell_available()

    @property
    def lent(self) -> int:
        return self.held - len(self.free)

    def check(self) -> None:
        """Assert the law."""
        assert 0 <= len(self.free) <= self.held
        assert self.minimum <= self.size <= self.maximum
        assert not (self.free and self.held > self.size), "excess was not returned"
        assert not (self.free and self._listeners), "a listener waits beside a free buffer"

    def _place(self, segment: Segment) -> None:
        while self._listeners:
            listener = self._listeners.popleft()
            lease = Lease(segment, self)
            answer = listener.buffer_offered(lease)
            if answer is OfferAnswer.WANTS_MORE:
                self._listeners.append(listener)
            if answer is not OfferAnswer.REFUSED:
                return
        self.free.append(segment)
        self._tell_available()

    def _return_excess(self) -> None:
        while self.held > self.size and self.free:
            self.held -= 1
            self._depot.segment_returned(self.free.popleft())

    def _grow(self) -> None:
        while self.held < self.size and (self._listeners or self._notify_wanted):
            segment = self._depot.try_take()
            if segment is None:
                self._queue_at_depot()
                return
            self.held += 1
            self._place(segment)

    def _tell_available(self) -> None:
        if self._notify_wanted:
            self._notify_wanted = False
            if self.notify is not None:
                self.notify()

    def _queue_at_depot(self) -> None:
        if not self._queued_at_depot and self.held < self.size and not self.destroyed:
            self._queued_at_depot = True
            self._depot.wait(self)

    def _can_lend(self) -> bool:
        if self.destroyed or self.free:
            return True
        segment = self._depot.try_take() if self.held < self.size else None
        if segment is None:
            return False
        self.held += 1
        self.free.append(segment)
        return True
