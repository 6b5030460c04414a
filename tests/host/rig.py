"""What the tests of the host are made of: bounded waits, tasks that write and read, raw peers."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice

from headgate.base.elements import Bundle, Record
from headgate.base.events import CheckpointBarrier, Event
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.base.spilling import SpillRoom
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin, Router
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.link import ProducerEnd
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import InputGate, UnionGate
from headgate.core.task.environment import Here, Input, Place, RemoteProducer
from headgate.core.task.task import StepResult
from headgate.host.net.exchange import Exchange
from headgate.host.net.loop import Loop
from headgate.host.net.runner import Runner, TaskThread

SECRET = b"the job's secret"
PATIENCE_S = 60.0


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds; fail with ``what`` did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.002)


def count_polls(loop: Loop) -> Callable[[], int]:
    """How many polls there were since this call."""
    waits: list[float | None] = []
    wait = loop._wait

    def counted(wait_ms: float | None) -> list[tuple[int, int]]:
        waits.append(wait_ms)
        return wait(wait_ms)

    setattr(loop, "_wait", counted)  # noqa: B010 - mypy forbids to assign to a method
    return lambda: len(waits)


def blobs(count: int, size: int = 1000) -> list[bytes]:
    """Records that are all different, so that no pickle makes one of them."""
    return [number.to_bytes(size, "little") for number in range(count)]


def pool_of(exchange: Exchange) -> tuple[int, int]:
    """Free and all segments of an exchange."""
    with exchange.inside() as environment:
        pool = environment.pool
        pool.check()
        return len(pool.free), pool.total


def all_home(exchange: Exchange) -> bool:
    free, total = pool_of(exchange)
    return free == total


def ends_in_memory() -> int:
    """Ends of accepted connections that Python has not freed."""
    return sum(type(found) is ProducerEnd for found in gc.get_objects())


class Producer:
    """A task that writes records (barriers as events), a chunk a step, and ends its partition."""

    def __init__(
        self, name: str, task_thread: TaskThread, writer: RecordWriter, records: Iterable[Record]
    ):
        self.name = name
        self.task_thread = task_thread
        self.writer = writer
        self.partition = writer.partition
        self.written = 0
        self.hold_after: int | None = None
        self.closed_with: list[BaseException | None] = []
        self.runner: Runner
        self._records: Iterator[Record] = iter(records)

    def step(self) -> StepResult:
        if self.written == self.hold_after or not self.writer.available():
            return StepResult.IDLE
        chunk = list(islice(self._records, 16))
        if not chunk:
            self.writer.finish()
            return StepResult.DONE
        for is_event, part in groupby(
            chunk, lambda element: isinstance(element, CheckpointBarrier)
        ):
            if is_event:
                for event in part:
                    self.writer.broadcast_event(event)
            else:
                self.writer.emit_all(list(part))
        self.writer.seal()
        self.written += len(chunk)
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self.closed_with.append(error)
        self.writer.close()
        if isinstance(error, Exception):
            self.partition.release(error)

    def join(self, timeout_s: float = PATIENCE_S) -> None:
        self.runner.join(timeout_s)

    def let_go(self, exchange: Exchange) -> None:
        """Write on, after ``hold_after``."""
        with exchange.inside():
            self.hold_after = None
            self.task_thread.wake()


class Consumer:
    """A task that reads a gate to its end and keeps what came, in order, for each channel."""

    def __init__(
        self,
        name: str,
        task_thread: TaskThread,
        gate: InputGate,
        spill_room: SpillRoom | None = None,
        keep: Callable[[Record], Record] = lambda record: record,
    ) -> None:
        self.name = name
        self.task_thread = task_thread
        self.gate = gate
        self.received: list[list[Record]] = [[] for _ in range(gate.channel_count)]
        self.events: list[Event] = []
        self.closed_with: list[BaseException | None] = []
        self.held = False
        self.runner: Runner
        self._keep = keep
        self._deserializers = [
            Deserializer(spill_room=spill_room) for _ in range(gate.channel_count)
        ]

    @property
    def records(self) -> list[Record]:
        return [record for channel in self.received for record in channel]

    def step(self) -> StepResult:
        if self.held:
            return StepResult.IDLE
        arrival = self.gate.poll()
        if arrival is None:
            return StepResult.DONE if self.gate.finished else StepResult.IDLE
        if arrival.event is not None:
            self.events.append(arrival.event)
            return StepResult.MORE
        assert arrival.buffer is not None
        deserializer = self._deserializers[arrival.channel]
        deserializer.feed(arrival.buffer)
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = deserializer.next()
            if isinstance(element, Bundle):
                self.received[arrival.channel].extend(map(self._keep, element.records))
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self.closed_with.append(error)
        self.gate.close()
        for deserializer in self._deserializers:
            deserializer.close()

    def join(self, timeout_s: float = PATIENCE_S) -> None:
        self.runner.join(timeout_s)

    def let_go(self, exchange: Exchange) -> None:
        """Read on, after ``held``."""
        with exchange.inside():
            self.held = False
            self.task_thread.wake()


def produce(
    exchange: Exchange,
    partition: str,
    records: Iterable[Record],
    *,
    subpartitions: int = 1,
    kind: PartitionKind = PartitionKind.PIPELINED_BOUNDED,
    router: Router | None = None,
    timeout_ms: int = 10,
    hold_after: int | None = None,
) -> Producer:
    """Start a task that writes ``records``."""
    task_thread = exchange.task_thread(f"writer of {partition}")
    with exchange.inside() as environment:
        made = environment.create_partition(
            PartitionId(partition), kind, subpartitions, task_thread.wait
        )
        made.pool.notify = task_thread.wake
        writer = RecordWriter(made, router or RoundRobin(), timeout_ms=timeout_ms)
        exchange.flush_by_time(task_thread.turn.name, writer)
    producer = Producer(task_thread.turn.name, task_thread, writer, records)
    producer.hold_after = hold_after
    producer.runner = exchange.run(producer, task_thread)
    return producer


def consume(
    exchange: Exchange,
    *gates: list[Input],
    spill: bool = False,
    held: bool = False,
    keep: Callable[[Record], Record] = lambda record: record,
) -> Consumer:
    """Start a task that reads one gate, or a union of several."""
    names = " and ".join(channel.partition for gate in gates for channel in gate[:1])
    task_thread = exchange.task_thread(f"reader of {names}")
    with exchange.inside() as environment:
        made = [environment.create_gate(task_thread.turn.name, inputs) for inputs in gates]
        gate: InputGate = made[0] if len(made) == 1 else UnionGate(list(made))
        gate.notify = task_thread.wake
        consumer = Consumer(
            task_thread.turn.name, task_thread, gate, exchange.files if spill else None, keep
        )
        consumer.held = held
        for member in made:
            member.request_partitions()
    consumer.runner = exchange.run(consumer, task_thread)
    return consumer


def from_there(exchange: Exchange, partition: str, subpartition: int = 0) -> Input:
    """A channel over the network."""
    return Input(PartitionId(partition), subpartition, RemoteProducer(exchange.address))


def from_here(partition: str, subpartition: int = 0) -> Input:
    """A channel within the process."""
    return Input(PartitionId(partition), subpartition, Here())


def at(place: Place, partition: str, subpartition: int = 0) -> Input:
    return Input(PartitionId(partition), subpartition, place)


def quick(**changes: object) -> ExchangeSettings:
    """Settings with which faults are noticed soon."""
    values: dict[str, object] = {
        "segment_bytes": 4096,
        "backoff_initial_ms": 5,
        "backoff_max_ms": 2000,
        "connect_timeout_ms": 2000,
        "connect_retry_ms": 0,
    }
    return ExchangeSettings(**{**values, **changes})  # type: ignore[arg-type]
