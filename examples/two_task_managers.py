"""Two task managers in one process: a task of the first sends numbers, one of the second adds."""

import secrets

from headgate.base.elements import Bundle
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.task.environment import Input, RemoteProducer
from headgate.core.task.task import StepResult
from headgate.host.net.exchange import Exchange

NUMBERS = PartitionId("example/numbers/0#0")  # job, vertex, subtask, attempt


class Source:
    """Emits the numbers below ``count``, a thousand for each step."""

    name = "source"

    def __init__(self, writer: RecordWriter, count: int) -> None:
        self.writer, self.next, self.count = writer, 0, count

    def step(self) -> StepResult:
        if self.next == self.count:
            self.writer.finish()
            return StepResult.DONE
        if not self.writer.available():  # no buffer: back pressure; the pool wakes us
            return StepResult.IDLE
        end = min(self.next + 1000, self.count)
        self.writer.emit_all(list(range(self.next, end)))
        self.writer.seal()  # no record waits in a list between steps
        self.next = end
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self.writer.close()
        if isinstance(error, Exception):
            self.writer.partition.release(error)


class Sum:
    """Adds up what arrives, until the end of the partition."""

    name = "sum"

    def __init__(self, gate: Gate) -> None:
        self.gate, self.deserializer, self.total = gate, Deserializer(), 0

    def step(self) -> StepResult:
        arrival = self.gate.poll()
        if arrival is None:
            return StepResult.DONE if self.gate.finished else StepResult.IDLE
        if arrival.buffer is not None:
            self.deserializer.feed(arrival.buffer)
            result = DeserializationResult.MIDDLE
            while result is DeserializationResult.MIDDLE:
                result, element = self.deserializer.next()
                if isinstance(element, Bundle):
                    self.total += sum(element.records)
        return StepResult.MORE

    def close(self, error: BaseException | None) -> None:
        self.deserializer.close()
        self.gate.close()


def main() -> None:
    settings, secret = ExchangeSettings(), secrets.token_bytes(32)
    with (
        Exchange(settings, secret, segments=256) as first,
        Exchange(settings, secret, segments=256) as second,
    ):
        task_thread = first.task_thread("source")
        with first.inside() as environment:
            kind = PartitionKind.PIPELINED_BOUNDED
            partition = environment.create_partition(NUMBERS, kind, 1, task_thread.wait)
            partition.pool.notify = task_thread.wake
            writer = RecordWriter(partition, RoundRobin(), timeout_ms=settings.buffer_timeout_ms)
            first.flush_by_time("source", writer)
        first.run(Source(writer, 1_000_000), task_thread)

        task_thread = second.task_thread("sum")
        with second.inside() as environment:
            gate = environment.create_gate(
                "sum", [Input(NUMBERS, 0, RemoteProducer(first.address))]
            )
            gate.notify = task_thread.wake
            gate.request_partitions()
        task = Sum(gate)
        second.run(task, task_thread).join(timeout_s=30)
        print("sum of 1,000,000 numbers:", task.total)


if __name__ == "__main__":
    main()
