"""The union gate: several gates read as one, channels numbered through.

Law: channel index = offset of its gate + index within it; gates with data stand in a queue, each
once, and take turns. It is finished when all of its gates are.
"""

from collections import deque
from collections.abc import Callable

from headgate.base.errors import TaskCancelled
from headgate.base.events import TaskEvent
from headgate.core.ingress.gate import Arrival, InputGate


class UnionGate:
    """Owns its gates' ``notify``; closing it closes them."""

    def __init__(self, gates: list[InputGate]) -> None:
        assert len(gates) > 1, "a union has at least two gates"
        self.notify: Callable[[], None] = lambda: None
        self.closed = False
        self._gates = gates
        self._offsets: list[int] = []
        self._count = 0
        self._queue: deque[int] = deque()
        self._queued = [False] * len(gates)
        self._left = set(range(len(gates)))
        for number, gate in enumerate(gates):
            self._offsets.append(self._count)
            self._count += gate.channel_count
            gate.notify = lambda number=number: self._gate_ready(number)  # type: ignore[misc]
            if gate.available():
                self._gate_ready(number)

    def poll(self) -> Arrival | None:
        """The next buffer or event of any gate, or None: nothing now."""
        if self.closed:
            raise TaskCancelled("the union gate is closed: its task was cancelled")
        queue = self._queue
        while queue:
            number = queue.popleft()
            self._queued[number] = False
            gate = self._gates[number]
            arrival = gate.poll()
            if gate.finished:
                self._left.discard(number)
            elif arrival is not None and (arrival.more or gate.available()):
                self._queued[number] = True
                queue.append(number)
            if arrival is not None:
                arrival.channel += self._offsets[number]
                arrival.more = bool(queue)
                return arrival
        return None

    def available(self) -> bool:
        """Whether ``poll`` is worth a call."""
        return bool(self._queue) or self.closed or self.finished

    def send_event(self, event: TaskEvent) -> None:
        """An event back to the producers of all gates."""
        for gate in self._gates:
            gate.send_event(event)

    def close(self) -> None:
        """Close all gates; reading afterwards is an error. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for gate in self._gates:
            gate.close()
        self.notify()

    @property
    def channel_count(self) -> int:
        return self._count

    @property
    def finished(self) -> bool:
        return not self._left

    def _gate_ready(self, number: int) -> None:
        if self._queued[number] or number not in self._left or self.closed:
            return
        self._queued[number] = True
        self._queue.append(number)
        if len(self._queue) == 1:
            self.notify()
