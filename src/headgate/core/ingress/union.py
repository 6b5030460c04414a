"""The union gate: several gates read as one, channels numbered through.

Law: channel index = offset of its gate + index within it; gates with data stand in a queue, each
once, and take turns; one with a barrier that has overtaken goes to the front. It is finished when
all of its gates are.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from headgate.base.elements import ByteLike
from headgate.base.errors import TaskCancelled
from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.gate import BufferOrEvent, InputGate, send_to_all, unannounced
from headgate.core.ingress.waiting import WaitingCopier


class UnionGate:
    """Owns what its gates call (``notify``, ``on_…``); closing it closes them."""

    def __init__(self, gates: list[InputGate]) -> None:
        assert len(gates) > 1, "a union has at least two gates"
        self.notify: Callable[[], None] = lambda: None
        self.on_announced: Callable[[int, CheckpointBarrier], None] = unannounced
        self.closed = False
        self._on_arrived: Callable[[int, Buffer], None] | None = None
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
            gate.on_announced = lambda channel, barrier, number=number: self._announced(  # type: ignore[misc]
                number, channel, barrier
            )
            if gate.available():
                self._gate_ready(number)

    def poll(self) -> BufferOrEvent | None:
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

    def block(self, channel: int) -> None:
        """Read nothing more of a channel. Idempotent."""
        gate, index = self._find(channel)
        gate.block(index)

    def unblock(self, channel: int) -> None:
        """Read a channel again. Idempotent."""
        gate, index = self._find(channel)
        gate.unblock(index)

    def hold(self, channel: int) -> None:
        """Let the producer of a channel send no more for now. Idempotent."""
        gate, index = self._find(channel)
        gate.hold(index)

    def let_go(self, channel: int) -> None:
        """End of the hold. Idempotent."""
        gate, index = self._find(channel)
        gate.let_go(index)

    def queued(self, channel: int) -> Sequence[Buffer]:
        """What has arrived in a channel and was not read."""
        gate, index = self._find(channel)
        return gate.queued(index)

    def copy_waiting(self, channel: int, copier: WaitingCopier) -> None:
        """Copy what waits in a channel in this process; it stays there."""
        gate, index = self._find(channel)
        gate.copy_waiting(index, copier)

    def expand(self, data: ByteLike) -> ByteLike:
        """The payload of a compressed buffer as it was; all gates compress alike."""
        return self._gates[0].expand(data)

    @property
    def on_arrived(self) -> Callable[[int, Buffer], None] | None:
        return self._on_arrived

    @on_arrived.setter
    def on_arrived(self, call: Callable[[int, Buffer], None] | None) -> None:
        self._on_arrived = call
        for gate, offset in zip(self._gates, self._offsets, strict=True):
            gate.on_arrived = _with_offset(call, offset)

    def waiting(self) -> int:
        """Data buffers of all gates that were not read."""
        return sum(gate.waiting() for gate in self._gates)

    def resize(self, size: int) -> None:
        """Ask the producers of all gates for buffers of at most so many bytes."""
        for gate in self._gates:
            gate.resize(size)

    def send_event(self, event: TaskEvent) -> None:
        """An event back to the producers of all gates, as one gate sends it to its channels."""
        send_to_all(self._gates, event)

    def close(self) -> None:
        """Close all gates; reading afterwards is an error. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with ExitStack() as all_of_them:  # whatever one of them raises, the others are closed
            all_of_them.callback(self.notify)
            for gate in reversed(self._gates):
                all_of_them.callback(gate.close)

    @property
    def gates(self) -> Sequence[InputGate]:
        """Those it is made of, in the order in which their channels are counted."""
        return self._gates

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

    def _announced(self, number: int, channel: int, barrier: CheckpointBarrier) -> None:
        if barrier.unaligned and self._queued[number]:
            self._queue.remove(number)
            self._queue.appendleft(number)
        self.on_announced(self._offsets[number] + channel, barrier)

    def _find(self, channel: int) -> tuple[InputGate, int]:
        number = bisect_right(self._offsets, channel) - 1
        return self._gates[number], channel - self._offsets[number]


def _with_offset(
    call: Callable[[int, Buffer], None] | None, offset: int
) -> Callable[[int, Buffer], None] | None:
    if call is None:
        return None
    return lambda channel, buffer: call(offset + channel, buffer)
