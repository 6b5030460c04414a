"""Tasks that only write, or only read, on simulated workers: the exchange without operators.

They are stepped by the threads of simulated jobs, so that a task that rests goes on only if it is
woken.
"""

from collections.abc import Iterable
from random import Random

from headgate.base.elements import Bundle, Record
from headgate.base.events import CheckpointBarrier, Event
from headgate.base.ids import PartitionId
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.task.environment import Input
from headgate.core.task.task import StepResult
from headgate.sim.jobs.scenario import Delays
from headgate.sim.jobs.threads import SimThread
from headgate.sim.worker import SimWorker


class PlainWriter:
    """Writes records in turn to its channels, and events among them to all; a step for each.

    A patient one begins no record before a buffer is free.
    """

    def __init__(
        self,
        worker: SimWorker,
        partition: str,
        records: Iterable[Record],
        channels: int,
        *,
        first: int = 0,
        timeout_ms: int = 10,
        is_patient: bool = False,
    ) -> None:
        self.written = 0
        self.thread = _thread(f"writer of {partition}", worker)
        self._records = iter(records)
        self._is_patient = is_patient
        self._partition = worker.environment.create_partition(
            PartitionId(partition), PartitionKind.PIPELINED_BOUNDED, channels, self.thread.wait
        )
        self._partition.pool.notify = self.thread.wake
        self.writer = RecordWriter(self._partition, RoundRobin(first), timeout_ms=timeout_ms)
        worker.flush_by_time(self.thread.name, self.writer)

    def step(self) -> StepResult:
        if self._is_patient and not self.writer.available():
            return StepResult.IDLE
        for record in self._records:
            if isinstance(record, CheckpointBarrier):
                self.writer.broadcast_event(record)
            else:
                self.writer.emit(record)
                self.writer.seal()
            self.written += 1
            return StepResult.MORE
        self.writer.finish()
        return StepResult.DONE

    def close(self, error: BaseException | None) -> None:
        self.writer.close()
        if isinstance(error, Exception):
            self._partition.release(error)


class PlainReader:
    """Reads its channels to their end, or only so many buffers and events."""

    def __init__(
        self, worker: SimWorker, name: str, inputs: list[Input], most: int | None = None
    ) -> None:
        self.received: list[list[Record]] = [[] for _ in inputs]
        self.events: list[Event] = []
        self.thread = _thread(name, worker)
        self._left = most
        self._has_begun = False
        self._deserializers = [Deserializer() for _ in inputs]
        self._gate: Gate = worker.environment.create_gate(name, inputs)
        self._gate.notify = self.thread.wake

    def step(self) -> StepResult:
        if not self._has_begun:
            self._has_begun = True
            self._gate.request_partitions()
        arrival = None if self._left == 0 else self._gate.poll()
        if arrival is None:
            return StepResult.DONE if self._gate.finished else StepResult.IDLE
        if self._left is not None:
            self._left -= 1
        if arrival.event is not None:
            self.events.append(arrival.event)
        else:
            assert arrival.buffer is not None
            deserializer = self._deserializers[arrival.channel]
            deserializer.feed(arrival.buffer)
            self._take(arrival.channel, deserializer)
        return StepResult.MORE

    def _take(self, channel: int, deserializer: Deserializer) -> None:
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = deserializer.next()
            if isinstance(element, Bundle):
                self.received[channel] += element.records

    def close(self, error: BaseException | None) -> None:
        for deserializer in self._deserializers:
            deserializer.close()
        self._gate.close()


def _thread(name: str, worker: SimWorker) -> SimThread:
    return SimThread(name, worker, Random(name), called_in=0.0, delays=Delays())
