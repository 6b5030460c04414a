"""A gate that counts: wraps any gate and adds what passes to bytes-in and buffers-in."""

from collections.abc import Callable, Sequence

from headgate.base.elements import ByteLike
from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.gate import Arrival, InputGate


class MeteredGate:
    """Same behaviour as the gate inside; ``bytes_in`` counts data, as it leaves the gate."""

    def __init__(self, inner: InputGate) -> None:
        self.bytes_in = 0
        self.buffers_in = 0
        self.events_in = 0
        self._inner = inner

    def poll(self) -> Arrival | None:
        arrival = self._inner.poll()
        if arrival is not None:
            if arrival.buffer is not None:
                self.bytes_in += arrival.buffer.size
                self.buffers_in += 1
            else:
                self.events_in += 1
        return arrival

    def available(self) -> bool:
        return self._inner.available()

    def block(self, channel: int) -> None:
        self._inner.block(channel)

    def unblock(self, channel: int) -> None:
        self._inner.unblock(channel)

    def hold(self, channel: int) -> None:
        self._inner.hold(channel)

    def let_go(self, channel: int) -> None:
        self._inner.let_go(channel)

    def queued(self, channel: int) -> Sequence[Buffer]:
        return self._inner.queued(channel)

    def expand(self, data: ByteLike) -> ByteLike:
        return self._inner.expand(data)

    def waiting(self) -> int:
        return self._inner.waiting()

    def resize(self, size: int) -> None:
        self._inner.resize(size)

    def send_event(self, event: TaskEvent) -> None:
        self._inner.send_event(event)

    def close(self) -> None:
        self._inner.close()

    @property
    def notify(self) -> Callable[[], None]:
        return self._inner.notify

    @notify.setter
    def notify(self, notify: Callable[[], None]) -> None:
        self._inner.notify = notify

    @property
    def on_announced(self) -> Callable[[int, CheckpointBarrier], None]:
        return self._inner.on_announced

    @on_announced.setter
    def on_announced(self, call: Callable[[int, CheckpointBarrier], None]) -> None:
        self._inner.on_announced = call

    @property
    def on_arrived(self) -> Callable[[int, Buffer], None] | None:
        return self._inner.on_arrived

    @on_arrived.setter
    def on_arrived(self, call: Callable[[int, Buffer], None] | None) -> None:
        self._inner.on_arrived = call

    @property
    def channel_count(self) -> int:
        return self._inner.channel_count

    @property
    def finished(self) -> bool:
        return self._inner.finished
