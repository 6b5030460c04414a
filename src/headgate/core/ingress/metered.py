"""A gate that counts: wraps any gate and adds what passes to bytes-in and buffers-in."""

from collections.abc import Callable

from headgate.base.events import TaskEvent
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
    def channel_count(self) -> int:
        return self._inner.channel_count

    @property
    def finished(self) -> bool:
        return self._inner.finished
