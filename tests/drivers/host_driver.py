"""The driver of real life: threads, sockets, time."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from headgate.base.elements import Record
from headgate.base.settings import FlowControl
from headgate.core.task.environment import Here, RemoteProducer
from headgate.host.net.exchange import Exchange
from tests.drivers.driver import Reading, Writing
from tests.host.rig import (
    PATIENCE_S,
    SECRET,
    Consumer,
    Producer,
    at,
    consume,
    eventually,
    pool_of,
    produce,
    quick,
)


class HostDriver:
    """Two exchanges of this process that talk over the loopback."""

    total_segments = 60

    def __init__(self, mode: FlowControl) -> None:
        settings = quick(flow_control=mode, socket_buffer_bytes=16 * 1024)
        self.segment_bytes = settings.segment_bytes
        with ExitStack() as undo:
            self._exchanges = [
                undo.enter_context(Exchange(settings, SECRET, segments=self.total_segments))
                for _ in range(2)
            ]
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def write(
        self, where: int, partition: str, records: Iterable[Record], *, lanes: int = 1
    ) -> Producer:
        return produce(self._exchanges[where], partition, records, subpartitions=lanes)

    def read(
        self, where: int, partition: str, lanes: list[int], *, source: int, held: bool = False
    ) -> Consumer:
        place = Here() if where == source else RemoteProducer(self._exchanges[source].address)
        inputs = [at(place, partition, lane) for lane in lanes]
        return consume(self._exchanges[where], inputs, held=held)

    def let_go(self, reading: Reading) -> None:
        assert isinstance(reading, Consumer)
        for exchange in self._exchanges:
            if exchange.baton is reading.task_thread._baton:
                reading.let_go(exchange)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, what)

    def run_until_still(self, progress: Callable[[], int]) -> None:
        before = -1
        while before != (now := progress()):
            before = now
            time.sleep(0.1)  # that nothing happens meanwhile is the subject

    def outcome(self, task: Writing | Reading) -> BaseException | None:
        assert isinstance(task, Producer | Consumer)
        assert task.runner.ends_within(PATIENCE_S), f"{task.name} does not end"
        return task.runner.error

    def free_segments(self, where: int) -> int:
        return pool_of(self._exchanges[where])[0]
