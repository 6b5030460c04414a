"""What tasks do: sources write by chance, sinks read and check, relays do both."""

from dataclasses import dataclass
from random import Random

from headgate.base.elements import Bundle
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.task.environment import Input
from headgate.sim.worker import SimWorker
from tests.sim.ledger import Ledger
from tests.sim.streams import Inbox, Output, OutputPlan, count_records
from tests.sim.tasks import Fate, PlannedFailure, SimTask


@dataclass(frozen=True, slots=True)
class Manners:
    """How a task behaves; times in milliseconds, shares between 0 and 1."""

    steps: int = 0
    """Steps of a source."""
    polite: bool = True
    """Looks for a buffer before it writes; otherwise it blocks in the middle of a step."""
    sleeps: float = 0
    """Share of steps that are followed by a nap …"""
    sleep_ms: float = 0
    """… of this length."""
    holds: float = 0
    """Share of elements after which a reader naps with the buffer in its hands."""
    stops_after: int = -1
    """A long stop after so many arrivals …"""
    stop_ms: float = 0
    """… of this length."""
    fails_at: int = -1
    quits_after: int = -1
    """A reader closes its gate after so many elements."""
    nudges: float = 0
    """Share of arrivals that are answered with a task event."""
    bounded: bool = True
    """Whether its gates' pools are bounded."""


class Job:
    """One task's work: its streams, its program, its end."""

    def __init__(
        self,
        name: str,
        worker: SimWorker,
        manners: Manners,
        output: OutputPlan | None,
        inputs: list[list[Input]],
        ledger: Ledger,
        random: Random,
    ) -> None:
        self.task = SimTask(name, worker, self._program, self._clean_up)
        self.manners = manners
        self.output_plan = output
        self.inputs = inputs
        self.output: Output | None = None
        self.inbox: Inbox | None = None
        self._ledger = ledger
        self._random = random
        self._is_set_up = False

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def gates(self) -> list[Gate]:
        return [] if self.inbox is None else self.inbox.gates

    @property
    def deserializers(self) -> list[Deserializer]:
        return [] if self.inbox is None else self.inbox.deserializers

    @property
    def writers(self) -> list[RecordWriter]:
        return [] if self.output is None else [self.output.writer]

    def set_up(self) -> None:
        """Make partitions, then gates, as a task manager does. Once."""
        task = self.task
        if self._is_set_up or task.fate is not Fate.WAITING:
            return
        self._is_set_up = True
        if self.output_plan is not None:
            self.output = Output(self.output_plan, task.worker, self._ledger, task)
        if self.inputs:
            manners = self.manners
            self.inbox = Inbox(task, self.inputs, self._ledger, bounded=manners.bounded)

    def start(self) -> None:
        """Let it run."""
        self.set_up()
        self.task.start()

    def release_output(self, failure: Exception | None = None) -> None:
        """Let go of the partition, whether it was read or not."""
        if self.output is not None:
            self.output.partition.release(failure)

    def _program(self, task: SimTask) -> Fate:
        if self.inbox is None:
            return self._write(task)
        self.inbox.request()
        return self._read(task, self.inbox)

    def _write(self, task: SimTask) -> Fate:
        manners, random, output = self.manners, self._random, self.output
        assert output is not None
        for number in range(manners.steps):
            self._await_writer(task)
            for _ in range(random.choice((1, 1, 3))):
                output.act(random)
            output.writer.seal()
            if number == manners.fails_at:
                raise PlannedFailure(f"{self.name} broke at step {number}")
            if random.random() < manners.sleeps:
                task.sleep(manners.sleep_ms * random.random())
            else:
                task.pause()
        output.writer.finish()
        return Fate.FINISHED

    def _read(self, task: SimTask, inbox: Inbox) -> Fate:
        manners, random = self.manners, self._random
        arrivals = elements = 0
        while True:
            self._await_writer(task)
            task.begin_step()
            arrival = inbox.reader.poll()
            if arrival is None:
                if inbox.reader.finished:
                    break
                task.rest("input")
                continue
            arrivals += 1
            for element in inbox.elements(arrival):
                elements += 1
                if isinstance(element, Bundle) and self.output is not None:
                    self.output.emit(count_records(element), random)
                if elements == manners.quits_after:
                    return Fate.QUIT
                if random.random() < manners.holds:
                    task.sleep(manners.sleep_ms * random.random())
            self._settle(task, inbox, arrivals)
        if self.output is not None:
            self.output.writer.finish()
        return Fate.FINISHED

    def _settle(self, task: SimTask, inbox: Inbox, arrivals: int) -> None:
        """The end of a reader's step."""
        manners, random = self.manners, self._random
        if self.output is not None:
            self.output.writer.seal()
        if arrivals == manners.fails_at:
            raise PlannedFailure(f"{self.name} broke at arrival {arrivals}")
        if random.random() < manners.nudges:
            inbox.try_nudge()
        if arrivals == manners.stops_after:
            task.sleep(manners.stop_ms)
        elif random.random() < manners.sleeps:
            task.sleep(manners.sleep_ms * random.random())
        else:
            task.pause()

    def _await_writer(self, task: SimTask) -> None:
        if self.output is None or not self.manners.polite:
            return
        task.begin_step()
        while not self.output.writer.available():
            task.rest("a free output buffer")
            task.begin_step()

    def _clean_up(self, error: BaseException | None) -> None:
        if self.output is not None:
            self.output.writer.close()
            if error is not None:
                assert isinstance(error, Exception)
                self.release_output(error)
        if self.inbox is not None:
            self.inbox.close()
