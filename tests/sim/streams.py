"""What a task writes to and reads from: the real writer and gates, with the ledger looking on."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from headgate.base.elements import (
    Bundle,
    Element,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.events import (
    END_OF_PARTITION,
    END_OF_SUPERSTEP,
    CancelMarker,
    CheckpointBarrier,
    RuntimeEvent,
    TaskEvent,
)
from headgate.base.ids import PartitionId
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import BufferOrEvent, Gate, InputGate
from headgate.core.ingress.union import UnionGate
from headgate.core.task.environment import Input
from headgate.sim.worker import CheckFailed, SimWorker
from tests.core.egress.chosen import emit_to
from tests.sim.ledger import Item, Ledger, Position, item_of, items_of
from tests.sim.routes import RouteKind, make_route
from tests.sim.tasks import SimTask


class Nudge(TaskEvent):
    """What consumers of a run send back to their producers."""

    __slots__ = ("number", "sender")

    def __init__(self, sender: str, number: int) -> None:
        self.sender = sender
        self.number = number


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """A partition that a task will write."""

    partition: PartitionId
    kind: PartitionKind
    subpartitions: int
    route: RouteKind
    first: int
    payload_bytes: tuple[int, ...]
    """Sizes that its records may have."""


class Output:
    """A task's partition and writer."""

    def __init__(self, plan: OutputPlan, worker: SimWorker, ledger: Ledger, task: SimTask) -> None:
        environment = worker.environment
        timeout_ms = environment.settings.buffer_timeout_ms
        self.plan = plan
        self.route = make_route(plan.route, plan.subpartitions, plan.first)
        self.nudges: dict[str, int] = {}
        self.emitted = 0
        self._ledger = ledger
        ledger.opened(plan.partition, plan.subpartitions)
        self.partition = environment.create_partition(
            plan.partition, plan.kind, plan.subpartitions, task.wait
        )
        self.partition.pool.notify = task.wake
        self.writer = RecordWriter(self.partition, self.route.router, timeout_ms=timeout_ms)
        worker.flush_by_time(task.name, self.writer)
        environment.events.subscribe(plan.partition, Nudge, self._nudged)

    def emit(self, count: int, random: Random, timed: bool = False) -> None:
        """Write new records where the router says."""
        records = [self._record(random) for _ in range(count)]
        times: list[int | None] | None = None
        if timed:
            times = [random.choice((None, self.emitted)) for _ in records]
        for record, time in zip(records, times or [None] * count, strict=True):
            for channel in self.route.channels_of(record):
                self._log(channel, (record, time))
        self.writer.emit_all(records, times)

    def emit_to_one(self, random: Random) -> None:
        """Write a record, or a marker, to a channel of our choice."""
        channel = random.randrange(self.plan.subpartitions)
        if random.random() < 0.5:
            marker = LatencyMarker(self.emitted, 7, channel)
            self._log(channel, marker)
            self.writer.emit_element(marker, channel)
        else:
            record = self._record(random)
            self._log(channel, (record, None))
            emit_to(self.writer, channel, [record])

    def tell_all(self, element: Element) -> None:
        """Write an element to every channel."""
        for channel in range(self.plan.subpartitions):
            self._log(channel, element)
        self.writer.emit_element(element)

    def broadcast(self, event: RuntimeEvent) -> None:
        """Write an event to every channel."""
        for channel in range(self.plan.subpartitions):
            self._log(channel, event)
        self.writer.broadcast_event(event)

    def act(self, random: Random) -> None:
        """Write something, by chance."""
        dice = random.random()
        if dice < 0.70:
            self.emit(random.choice((1, 1, 2, 5)), random, timed=random.random() < 0.3)
        elif dice < 0.80:
            status = StreamStatus(random.random() < 0.5)
            self.tell_all(random.choice((Watermark(self.emitted), status)))
        elif dice < 0.92:
            barrier = CheckpointBarrier(self.emitted, 5, random.random() < 0.5)
            cancel = CancelMarker(self.emitted)
            self.broadcast(random.choice((barrier, END_OF_SUPERSTEP, cancel)))
        elif dice < 0.97:
            self.emit_to_one(random)
        else:
            self.writer.flush_all()

    def _record(self, random: Random) -> Record:
        number = self.emitted
        self.emitted += 1
        size = random.choice(self.plan.payload_bytes)
        payload = bytes(random.choice(b"abc") for _ in range(min(size, 8))) * (size // 8 + 1)
        return (self.plan.partition, number, random.randrange(16), payload[:size])

    def _log(self, channel: int, item: Item) -> None:
        self._ledger.wrote(self.plan.partition, channel, item)

    def _nudged(self, event: TaskEvent) -> None:
        assert isinstance(event, Nudge)
        expected = self.nudges.get(event.sender, 0)
        if event.number != expected:
            raise CheckFailed(
                f"{self.plan.partition} expected event {expected} of {event.sender} "
                f"and got {event.number}"
            )
        self.nudges[event.sender] = expected + 1


class Inbox:
    """A task's gates, read as one."""

    def __init__(
        self,
        task: SimTask,
        gates: list[list[Input]],
        ledger: Ledger,
        *,
        bounded: bool,
    ) -> None:
        environment = task.worker.environment
        self.name = task.name
        self.gates: list[Gate] = []
        self.positions: list[Position] = []
        for number, inputs in enumerate(gates):
            gate = environment.create_gate(f"{task.name}.{number}", inputs, bounded=bounded)
            self.gates.append(gate)
            for channel in inputs:
                self.positions.append(Position(task.name, channel.partition, channel.subpartition))
        self.reader: InputGate = self.gates[0] if len(gates) == 1 else UnionGate(list(self.gates))
        self.reader.notify = task.wake
        spill_bytes = environment.settings.spill_bytes
        self.deserializers = [
            Deserializer(spill_room=task.worker.spills, spill_bytes=spill_bytes)
            for _ in self.positions
        ]
        self.nudges = 0
        self.nudged: dict[PartitionId, int] = {}
        self._ledger = ledger

    def request(self) -> None:
        for gate in self.gates:
            gate.request_partitions()

    def elements(self, arrival: BufferOrEvent) -> Iterator[Element]:
        """Read an arrival to its end, element by element; every item is checked."""
        position = self.positions[arrival.channel]
        deserializer = self.deserializers[arrival.channel]
        if arrival.buffer is None:
            assert arrival.event is not None
            self._event(position, deserializer, arrival)
            return
        deserializer.feed(arrival.buffer)
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = deserializer.next()
            if element is None:
                return
            for item in items_of(element):
                self._ledger.got(position, item)
            yield element

    def try_nudge(self) -> None:
        """Send an event to all producers that are still sending, once all have shown up."""
        if not all(position.read or position.ended for position in self.positions):
            return
        for position in self.positions:
            if not position.ended:
                self.nudged[position.partition] = self.nudged.get(position.partition, 0) + 1
        self.nudges += 1
        self.reader.send_event(Nudge(self.name, self.nudges - 1))

    def close(self) -> None:
        for deserializer in self.deserializers:
            deserializer.close()
        self.reader.close()

    def _event(
        self, position: Position, deserializer: Deserializer, arrival: BufferOrEvent
    ) -> None:
        event = arrival.event
        assert event is not None
        if not deserializer.is_between_elements:
            raise CheckFailed(f"{position}: {event} came in the middle of an element")
        if event == END_OF_PARTITION:
            self._ledger.ended(position)
        else:
            self._ledger.got(position, item_of(event))


def count_records(element: Element) -> int:
    """The records of an element."""
    return len(element.records) if isinstance(element, Bundle) else 0
