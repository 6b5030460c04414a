"""Two real processes for a benchmark: this one, and a child that answers through a pipe.

Both have an exchange; the tasks are producers and consumers of buffers or records, each a machine
with ``step``.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from headgate.base.elements import Bundle, Record
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import BufferBuilder
from headgate.core.egress.partition import Partition, PartitionKind
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.link import Address
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import Gate, InputGate
from headgate.core.task.environment import Input, RemoteProducer
from headgate.core.task.task import StepResult
from headgate.host.net.exchange import Exchange
from headgate.host.net.runner import TaskThread

T = TypeVar("T")

SEGMENTS = 1024
JOIN_S = 120.0
ANSWER_S = 120.0
"""No phase of a benchmark lasts longer; a child that is silent for this long is broken."""


class ChildFailed(RuntimeError):
    """The child process of a benchmark ended with an error; its traceback is the message."""


class Child:
    """The other process: send it words, read its answers."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def tell(self, word: object) -> None:
        self._pipe.send(word)

    def has_answer(self, wait_s: float) -> bool:
        """Whether the child has said something, after waiting for it this long."""
        return self._pipe.poll(wait_s)

    def hear(self, kind: type[T]) -> T:
        """The child's next answer, which must be of ``kind``."""
        if not self._pipe.poll(ANSWER_S):
            raise ChildFailed(f"the child process said nothing for {ANSWER_S:.0f} s")
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise ChildFailed("the child process ended without an answer") from None
        if isinstance(answer, ChildFailed):
            raise answer
        assert isinstance(answer, kind), answer
        return answer


@contextmanager
def child_process(target: Callable[..., None], *args: Any) -> Iterator[Child]:
    """Run ``target(pipe, *args)`` in a fresh process; it is gone at the end of the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(target, theirs, args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Child(ours)
        process.join(10)
    finally:
        if process.is_alive():
            process.terminate()
        process.join()
        ours.close()


def _run(target: Callable[..., None], pipe: Connection, args: tuple[Any, ...]) -> None:
    try:
        target(pipe, *args)
    except BaseException:
        pipe.send(ChildFailed(traceback.format_exc()))


def open_gate(
    exchange: Exchange,
    task_thread: TaskThread,
    partition: PartitionId,
    address: Address,
    channels: int,
) -> Gate:
    """A gate with a channel for each subpartition over there, which wakes ``task_thread``."""
    with exchange.inside() as environment:
        inputs = [Input(partition, index, RemoteProducer(address)) for index in range(channels)]
        gate = environment.create_gate(task_thread.turn.name, inputs)
        gate.notify = task_thread.wake
        gate.request_partitions()
    return gate


def open_partition(
    exchange: Exchange, task_thread: TaskThread, partition: PartitionId, subpartitions: int
) -> Partition:
    """A pipelined partition whose pool wakes ``task_thread``."""
    with exchange.inside() as environment:
        created = environment.create_partition(
            partition, PartitionKind.PIPELINED_BOUNDED, subpartitions, task_thread.wait
        )
        created.pool.notify = task_thread.wake
    return created


def wait_until_consumed(exchange: Exchange, partition: PartitionId) -> None:
    """A partition leaves the registry when its last buffer has been consumed."""
    done = exchange.task_thread("waiter")
    exchange.baton.take(done.turn)
    try:
        done.wait(lambda: partition not in exchange.environment.partitions)
    finally:
        exchange.baton.give(done.turn)


def consume(
    exchange: Exchange,
    task_thread: TaskThread,
    consumer: "RawConsumer | RecordConsumer",
    child: Child,
) -> tuple[float, float]:
    """Let the child begin, consume all it sends; seconds and CPU seconds since the first buffer."""
    watches: list[CpuWatch] = []
    consumer.on_first = lambda: watches.append(CpuWatch())
    runner = exchange.run(consumer, task_thread)
    child.tell("go")
    runner.join(JOIN_S)
    return watches[0].wall_s(), watches[0].cpu_s()


class CpuWatch:
    """CPU seconds of this process (all threads, user and system) since the start."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def cpu_s(self) -> float:
        return time.process_time() - self._cpu

    def wall_s(self) -> float:
        return time.perf_counter() - self._wall


BUFFERS_PER_STEP = 16


LISTS_PER_STEP = 4
"""About a thousand records, as a task gets them out of one buffer."""


class RawProducer:
    """Fills buffers with nothing in particular, channel after channel, as many as are wanted."""

    def __init__(self, name: str, partition: Partition, buffers: int | None) -> None:
        """``buffers`` None: without end."""
        self.name = name
        self.pace: Callable[[int], bool] = lambda sent: True
        """Asked before every step whether it is time to go on; if not, it must wake the task."""
        self.sent = 0
        self.blocked_at = 0.0
        """When it last found no buffer."""
        self.paused = False
        self._partition = partition
        self._wanted = buffers
        self._channel = 0

    def step(self) -> StepResult:
        partition = self._partition
        if self.sent == self._wanted:
            partition.finish()
            return StepResult.DONE
        if self.paused or not self.pace(self.sent):
            return StepResult.IDLE
        channels, capacity = len(partition.subpartitions), 0
        for _ in range(BUFFERS_PER_STEP):
            lease = partition.pool.try_request()
            if lease is None:
                if partition.available():  # else the pool will wake us
                    continue
                self.blocked_at = time.monotonic()
                return StepResult.IDLE
            builder = BufferBuilder(lease)
            capacity = capacity or builder.capacity
            consumer = builder.consumer()
            builder.commit(capacity)
            builder.finish()
            partition.add(consumer, self._channel)
            self._channel = (self._channel + 1) % channels
            self.sent += 1
            if self.sent == self._wanted:
                break
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        if error is not None:
            self._partition.release()


class RawConsumer:
    """Takes buffers and gives them back; can stop reading for a while."""

    def __init__(self, name: str, gate: InputGate) -> None:
        self.name = name
        self.bytes_in = 0
        self.buffers_in = 0
        self.stopped = False
        self.on_first: Callable[[], None] = lambda: None
        self._gate = gate

    def step(self) -> StepResult:
        if self.stopped:
            return StepResult.IDLE
        for _ in range(BUFFERS_PER_STEP):
            arrival = self._gate.poll()
            if arrival is None:
                return StepResult.DONE if self._gate.finished else StepResult.IDLE
            buffer = arrival.buffer
            if buffer is not None:
                if not self.buffers_in:
                    self.on_first()
                self.bytes_in += buffer.size
                self.buffers_in += 1
                buffer.release()
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self._gate.close()


class RecordProducer:
    """Emits ready lists of records, over and over, until enough have gone."""

    def __init__(
        self, name: str, writer: RecordWriter, lists: list[list[Record]], records: int
    ) -> None:
        self.name = name
        self._writer = writer
        self._lists = lists
        self._left = records
        self._next = 0

    def step(self) -> StepResult:
        if self._left <= 0:
            self._writer.finish()
            return StepResult.DONE
        for _ in range(LISTS_PER_STEP):
            if not self._writer.available():
                return StepResult.IDLE
            records = self._lists[self._next]
            self._next = (self._next + 1) % len(self._lists)
            self._left -= len(records)
            self._writer.emit_all(records)
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self._writer.close()
        if error is not None:
            self._writer.partition.release()


class RecordConsumer:
    """Turns buffers into records again and counts them."""

    def __init__(self, name: str, gate: InputGate, deserializers: list[Deserializer]) -> None:
        self.name = name
        self.records_in = 0
        self.on_first: Callable[[], None] = lambda: None
        self._gate = gate
        self._deserializers = deserializers

    def step(self) -> StepResult:
        arrival = self._gate.poll()
        if arrival is None:
            return StepResult.DONE if self._gate.finished else StepResult.IDLE
        if arrival.buffer is not None:
            if not self.records_in:
                self.on_first()
            deserializer = self._deserializers[arrival.channel]
            deserializer.feed(arrival.buffer)
            result = DeserializationResult.MIDDLE
            while result is DeserializationResult.MIDDLE:
                result, element = deserializer.next()
                if isinstance(element, Bundle):
                    self.records_in += len(element.records)
                del element  # a task is through with a bundle before it takes the next
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        for deserializer in self._deserializers:
            deserializer.close()
        self._gate.close()
