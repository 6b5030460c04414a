"""The simulated driver: one thread, a virtual clock and network, steps chosen by a seed."""

from collections.abc import Callable, Iterable
from random import Random

from headgate.base.elements import Bundle, Record
from headgate.base.events import CheckpointBarrier, Event
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.task.environment import Here, Input, RemoteProducer
from headgate.sim.clock import Clock
from headgate.sim.network import Network, Weather
from headgate.sim.stage import Stage
from headgate.sim.worker import SimWorker
from tests.drivers.driver import Reading, Writing
from tests.sim.tasks import Fate, SimTask

MAX_STEPS = 1_000_000
STILL_MS = 500
WEATHER = Weather(
    latency_ms=0.2, jitter_ms=0.2, bandwidth=50_000, window_bytes=16_384, tiny_reads=0
)


class SimWriting:
    """Writes records, and events among them, a step for each."""

    def __init__(
        self, worker: SimWorker, partition: str, records: Iterable[Record], lanes: int
    ) -> None:
        self.written = 0
        self.task = SimTask(f"writer of {partition}", worker, self._run, self._end)
        self._records = records
        self._worker = worker
        self._partition = worker.environment.create_partition(
            PartitionId(partition), PartitionKind.PIPELINED_BOUNDED, lanes, self.task.wait
        )
        self._partition.pool.notify = self.task.wake
        self._writer = RecordWriter(self._partition, RoundRobin(), timeout_ms=10)
        worker.flush_by_time(self.task.name, self._writer)

    def _run(self, task: SimTask) -> Fate:
        for record in self._records:
            if isinstance(record, CheckpointBarrier):
                self._writer.broadcast_event(record)
            else:
                self._writer.emit(record)
                self._writer.seal()
            self.written += 1
            task.pause()
        self._writer.finish()
        return Fate.FINISHED

    def _end(self, error: BaseException | None) -> None:
        self._writer.close()
        if isinstance(error, Exception):
            self._partition.release(error)


class SimReading:
    """Reads its channels to their end."""

    def __init__(self, worker: SimWorker, inputs: list[Input]) -> None:
        self.received: list[list[Record]] = [[] for _ in inputs]
        self.events: list[Event] = []
        self.task = SimTask(f"reader of {inputs[0].partition}", worker, self._run, self._end)
        self._deserializers = [Deserializer() for _ in inputs]
        self._gate: Gate = worker.environment.create_gate("gate", inputs)
        self._gate.notify = self.task.wake

    def _run(self, task: SimTask) -> Fate:
        self._gate.request_partitions()
        while True:
            task.begin_step()
            arrival = self._gate.poll()
            if arrival is None:
                if self._gate.finished:
                    return Fate.FINISHED
                task.rest("input")
            elif arrival.event is not None:
                self.events.append(arrival.event)
            else:
                assert arrival.buffer is not None
                deserializer = self._deserializers[arrival.channel]
                deserializer.feed(arrival.buffer)
                self._take(arrival.channel, deserializer)
                task.pause()

    def _take(self, channel: int, deserializer: Deserializer) -> None:
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = deserializer.next()
            if isinstance(element, Bundle):
                self.received[channel] += element.records

    def _end(self, error: BaseException | None) -> None:
        for deserializer in self._deserializers:
            deserializer.close()
        self._gate.close()


class SimDriver:
    """Two simulated workers."""

    total_segments = 60

    def __init__(self, mode: FlowControl) -> None:
        settings = ExchangeSettings(segment_bytes=4096, flow_control=mode)
        self.segment_bytes = settings.segment_bytes
        self._clock = Clock()
        network = Network(self._clock, Random(1), lambda: WEATHER)
        self._workers = [
            SimWorker(
                index, settings, self.total_segments, self._clock, network, Random(index), 1000
            )
            for index in range(2)
        ]
        for worker in self._workers:
            worker.peers = self._workers
        self._stage = Stage(self._clock, self._workers, Random(2))

    def close(self) -> None:
        for task in self._stage.tasks:
            task.kill()

    def write(
        self, where: int, partition: str, records: Iterable[Record], *, lanes: int = 1
    ) -> SimWriting:
        writing = SimWriting(self._workers[where], partition, records, lanes)
        self._start(writing.task)
        return writing

    def read(
        self, where: int, partition: str, lanes: list[int], *, source: int, held: bool = False
    ) -> SimReading:
        place = Here() if where == source else RemoteProducer(self._workers[source].address)
        inputs = [Input(PartitionId(partition), lane, place) for lane in lanes]
        reading = SimReading(self._workers[where], inputs)
        if not held:
            self._start(reading.task)
        return reading

    def let_go(self, reading: Reading) -> None:
        assert isinstance(reading, SimReading)
        self._start(reading.task)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(MAX_STEPS):
            if condition():
                return
            assert self._stage.act() is not None
        raise AssertionError(f"{what}: not within {MAX_STEPS} steps")

    def run_until_still(self, progress: Callable[[], int]) -> None:
        before = -1
        while before != (now := progress()):
            before = now
            until_ms = self._clock.now_ms + STILL_MS
            self.run_until(lambda until_ms=until_ms: self._clock.now_ms > until_ms, "time passes")

    def outcome(self, task: Writing | Reading) -> BaseException | None:
        assert isinstance(task, SimWriting | SimReading)
        self.run_until(lambda: task.task.is_over, f"{task.task.name} ends")
        return task.task.error

    def free_segments(self, where: int) -> int:
        return len(self._workers[where].environment.pool.free)

    def _start(self, task: SimTask) -> None:
        task.start()
        self._stage.tasks.append(task)
