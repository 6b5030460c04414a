"""The simulated driver: one thread, a virtual clock and network, steps chosen by a seed."""

from collections.abc import Callable, Iterable
from random import Random

from headgate.base.elements import Record
from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.task.environment import Here, Input, RemoteProducer
from headgate.sim.clock import Clock
from headgate.sim.jobs.world import Scheduler
from headgate.sim.network import Network, NetworkConditions
from headgate.sim.worker import SimWorker
from tests.drivers.driver import Reading, Writing
from tests.sim.plain_tasks import PlainReader, PlainWriter

MAX_STEPS = 1_000_000
STILL_MS = 500
CONDITIONS = NetworkConditions(
    latency_ms=0.2, jitter_ms=0.2, bandwidth=50_000, window_bytes=16_384, tiny_reads=0
)


class SimDriver:
    """Two simulated workers."""

    total_segments = 60

    def __init__(self, mode: FlowControl) -> None:
        settings = ExchangeSettings(segment_bytes=4096, flow_control=mode)
        self.segment_bytes = settings.segment_bytes
        self._clock = Clock()
        network = Network(self._clock, Random(1), lambda: CONDITIONS)
        self._workers = [
            SimWorker(
                index, settings, self.total_segments, self._clock, network, Random(index), 1000
            )
            for index in range(2)
        ]
        for worker in self._workers:
            worker.peers = self._workers
        self._scheduler = Scheduler(self._clock, self._workers, Random(2))
        self._tasks: list[PlainWriter | PlainReader] = []

    def close(self) -> None:
        for task in self._tasks:
            task.thread.kill()

    def write(
        self, where: int, partition: str, records: Iterable[Record], *, lanes: int = 1
    ) -> PlainWriter:
        writing = PlainWriter(self._workers[where], partition, records, lanes)
        self._start(writing)
        return writing

    def read(
        self, where: int, partition: str, lanes: list[int], *, source: int, held: bool = False
    ) -> PlainReader:
        place = Here() if where == source else RemoteProducer(self._workers[source].address)
        inputs = [Input(PartitionId(partition), lane, place) for lane in lanes]
        reading = PlainReader(self._workers[where], f"reader of {partition}", inputs)
        if not held:
            self._start(reading)
        return reading

    def let_go(self, reading: Reading) -> None:
        assert isinstance(reading, PlainReader)
        self._start(reading)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(MAX_STEPS):
            if condition():
                return
            assert self._scheduler.act() is not None
        raise AssertionError(f"{what}: not within {MAX_STEPS} steps")

    def run_until_still(self, progress: Callable[[], int]) -> None:
        before = -1
        while before != (now := progress()):
            before = now
            until_ms = self._clock.now_ms + STILL_MS
            self.run_until(lambda until_ms=until_ms: self._clock.now_ms > until_ms, "time passes")

    def outcome(self, task: Writing | Reading) -> BaseException | None:
        assert isinstance(task, PlainWriter | PlainReader)
        self.run_until(lambda: task.thread.is_over, f"{task.thread.name} ends")
        return task.thread.error

    def free_segments(self, where: int) -> int:
        return len(self._workers[where].environment.pool.free)

    def _start(self, task: PlainWriter | PlainReader) -> None:
        task.thread.start(task)
        self._tasks.append(task)
        self._scheduler.tasks = [task.thread for task in self._tasks]
