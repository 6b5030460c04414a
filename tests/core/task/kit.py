"""A task manager without threads for the tests of tasks: real partitions, gates, writers, tasks.

Time stands still unless the test moves it; every `lend` must be followed by its `regain`. `Lab`
ends with the question whether every segment has come home.
"""

from collections.abc import Callable
from typing import Any

from headgate.base.checkpoints import CheckpointKind, CheckpointOptions, Stop
from headgate.base.ids import PartitionId
from headgate.base.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    TaskState,
)
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.buffer import Buffer
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import ChainSpec, OperatorSpec, ToNetwork, ToOperator
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.checkpoint.snapshot import ChannelData, CheckpointPlan, TaskSnapshot
from headgate.core.egress.partition import Partition, PartitionKind, Wait, cannot_wait
from headgate.core.egress.router import RoundRobin, Router
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate, InputGate, UnionGate
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.task.environment import Environment, Here, Input
from headgate.core.task.idling import SourceIdling
from headgate.core.task.inputs import ENDED, NOTHING, NetworkInput
from headgate.core.task.processors import InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import StepResult, Task, TaskParts, TaskServices
from headgate.functions.context import TaskInfo
from tests.arena import assert_all_home, plain_segments
from tests.core.chain.kit import StrictLoan
from tests.core.operators.kit import ScriptedSource
from tests.core.pair import SECRET, SMALL, Timers

WALL_MS = 1_700_000_000_000


class Lab:
    """One environment, its clock, and the tasks that the test has made in it."""

    def __init__(self, segments: int = 64, settings: ExchangeSettings = SMALL) -> None:
        self.timers = Timers()
        self.environment = Environment(
            settings,
            plain_segments(segments, settings.segment_bytes),
            secret=SECRET,
            dial=_nobody,
            later=self.timers.later,
        )
        self.clock = Clock(
            lambda: self.timers.now_ms,
            lambda: WALL_MS + int(self.timers.now_ms),
            self.timers.later,
        )
        self.loan = StrictLoan()
        self._writers: list[RecordWriter] = []
        self.woken = 0
        self.states: list[str] = []
        self.declined: list[tuple[int, str, bool]] = []
        self.times: list[tuple[str, int | None]] = []
        self.wanted: list[tuple[int, int]] = []
        self.source_times: list[tuple[int, int, bool]] = []
        self.wanted = 0

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            for writer in self._writers:
                writer.close()
            self.environment.close()
            assert_all_home(self.environment.pool)

    def wake(self) -> None:
        self.woken += 1

    def idling(self) -> SourceIdling:
        return SourceIdling(self.clock, self.wake)

    def partition(self, name: str, channels: int = 1, wait: Wait = cannot_wait) -> Partition:
        return self.environment.create_partition(
            PartitionId(name), PartitionKind.PIPELINED_BOUNDED, channels, wait
        )

    def writer(
        self, name: str, channels: int = 1, router: Router | None = None, wait: Wait = cannot_wait
    ) -> RecordWriter:
        """A writer whose every emit can be read at once."""
        partition = self.partition(name, channels, wait)
        self._writers.append(RecordWriter(partition, router or RoundRobin(), timeout_ms=0))
        return self._writers[-1]

    def gate(self, *partitions: str, subpartition: int = 0) -> Gate:
        """A gate with a channel for each partition, requested when its task starts."""
        return self.environment.create_gate(
            "gate", [Input(PartitionId(name), subpartition, Here()) for name in partitions]
        )

    def input(self, number: int, *gates: Gate) -> NetworkInput:
        gate: InputGate = gates[0] if len(gates) == 1 else UnionGate(list(gates))
        gate.notify = self.wake
        return NetworkInput(number, gate, self.environment.create_deserializers(gate))

    def open_input(self, *partitions: str, number: int = 0) -> NetworkInput:
        """An input whose partitions are requested already."""
        gate = self.gate(*partitions)
        made = self.input(number, gate)
        gate.request_partitions()
        return made

    def chain(self, *operators: Callable[[], Operator], writers: Any = ()) -> Chain:
        """Operators one behind the other; the last one writes to all writers."""
        specs = [
            OperatorSpec(
                index,
                f"op{index}",
                f"uid{index}",
                make,
                (ToOperator(index + 1),)
                if index + 1 < len(operators)
                else tuple(ToNetwork(number) for number in range(len(writers))),
            )
            for index, make in enumerate(operators)
        ]
        return Chain(ChainSpec(tuple(specs)), writers, self.loan)

    def task(
        self,
        *operators: Callable[[], Operator],
        gates: tuple[tuple[Gate, ...], ...] = (),
        writers: tuple[RecordWriter, ...] = (),
        marker: tuple[float, int, int] | None = None,
        checkpoints: CheckpointPlan | None = None,
        restored: TaskRestored | None = None,
    ) -> Task:
        """A task; ``gates`` are those of each input of its head."""
        chain = self.chain(*operators, writers=writers)
        processor: Processor
        if isinstance(chain.head, SourceOperator):
            processor = SourceProcessor(chain, self.loan, self.clock, self.idling(), marker)
        else:
            inputs = [self.input(number, *own) for number, own in enumerate(gates)]
            processor = InputProcessor(chain, inputs, self.loan, self.clock)
        for writer in writers:
            writer.partition.pool.notify = self.wake
        every = [gate for own in gates for gate in own]
        info = TaskInfo("job", "vertex", 0, 1)
        parts = TaskParts(chain, processor, every, writers)
        services = TaskServices(self.loan, self.clock, self.wake)
        return Task("0.0", info, parts, services, self, checkpoints, restored)

    # What the task reports (``TaskListener``).

    def state_changed(self, task: str, state: TaskState, error: BaseException | None) -> None:
        self.states.append(state.value if error is None else f"{state.value}: {error}")

    def time_reported(self, task: str, group: str, watermark_ms: int | None) -> None:
        self.times.append((group, watermark_ms))

    def splits_wanted(self, task: str, count: int, held: int) -> None:
        self.wanted.append((count, held))

    def source_time_reported(
        self, task: str, received: int, watermark_ms: int, rests: bool
    ) -> None:
        self.source_times.append((received, watermark_ms, rests))

    def checkpoint_declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        self.declined.append((checkpoint, reason, subsumed))

    def checkpoint_wanted(self, task: str) -> None:
        assert self.loan.lent
        self.wanted += 1


class Shelf:
    """A storage of the test: keeps what tasks hand to it, and answers when the test says so."""

    def __init__(self) -> None:
        self.written: list[Shelved] = []

    def plan(self, timeout_ms: int | None = None, **changes: Any) -> CheckpointPlan:
        """``changes``: ``exactly_once``, ``enabled``."""
        policy = BarrierPolicy(changes.pop("exactly_once", True), timeout_ms)
        return CheckpointPlan(policy, self._start, **changes)

    @property
    def last(self) -> "Shelved":
        return self.written[-1]

    @property
    def ids(self) -> list[int]:
        return [writing.snapshot.barrier.checkpoint for writing in self.written]

    def _start(self, snapshot: TaskSnapshot, done: Callable[[], None]) -> "Shelved":
        self.written.append(Shelved(snapshot, done))
        return self.written[-1]


class Shelved:
    """One snapshot; see ``Writing``."""

    def __init__(self, snapshot: TaskSnapshot, done: Callable[[], None]) -> None:
        self.snapshot = snapshot
        self.done = done
        self.in_flight: list[ChannelData] | None = None
        self.state_bytes: int | None = None
        self.align_ms = -1.0
        self.aborted = False

    @property
    def bytes_in_flight(self) -> dict[tuple[bool, int, int], bytes]:
        assert self.in_flight is not None, "it was not completed"
        return {(o.is_input, o.index, o.channel): b"".join(o.parts) for o in self.in_flight}

    def complete(self, in_flight: Any, align_ms: float) -> None:
        assert self.in_flight is None and not self.aborted, "it was ended before"
        self.in_flight, self.align_ms = list(in_flight), align_ms

    def abort(self) -> None:
        self.aborted = True


def read_stream(data: bytes) -> list[Any]:
    """The elements that bytes in flight stand for."""
    deserializer, found = Deserializer(), []
    deserializer.feed(Buffer(data))
    while (element := deserializer.next()[1]) is not None:
        found.append(element)
    assert deserializer.is_between_elements
    return found


def options(stop: Stop = Stop.NO) -> CheckpointOptions:
    """Of a checkpoint that begins as the clock of a lab does; a savepoint if the job stops."""
    kind = CheckpointKind.SAVEPOINT if stop.ends else CheckpointKind.CHECKPOINT
    return CheckpointOptions(WALL_MS, kind, stop)


def trigger(task: Task, checkpoint: int, how: CheckpointOptions | None = None) -> str:
    """Why it cannot begin there, or nothing."""
    order = CheckpointTriggered("run", task.id, checkpoint, how or options())
    return task.obey(order)


def complete(task: Task, checkpoint: int) -> None:
    task.obey(CheckpointCompleted("run", checkpoint))


def abort(task: Task, checkpoint: int, reason: str) -> None:
    task.obey(CheckpointAborted("run", checkpoint, reason))


def step_until(task: Task, end: StepResult, most: int = 1000) -> int:
    """Step until the task says ``end``; answers with the number of steps."""
    for count in range(1, most + 1):
        if task.step() is end:
            return count
    raise AssertionError(f"not {end} within {most} steps")


def live(task: Task) -> BaseException | None:
    """Step to the end and close, as a runner does; answers with the error."""
    error: BaseException | None = None
    try:
        step_until(task, StepResult.DONE)
    except BaseException as trouble:
        error = trouble
    task._loan.regain()
    task.close(error)
    return error


def _nobody(address: object) -> Any:
    raise AssertionError("a lab dials nobody")


def take_all(source: NetworkInput, limit: int = 1 << 30) -> list[Any]:
    taken: list[Any] = []
    while (element := source.take(limit)) is not NOTHING and element is not ENDED:
        taken.append(element)
    return taken


def source(*answers: Any) -> Callable[[], Operator]:
    return lambda: SourceOperator(ScriptedSource(), (answers,))


def sink(got: list[Any]) -> Callable[[], Operator]:
    return lambda: SinkFunctionOperator(got.append)


def fill(lab: Lab, task: Task, up: Any) -> int:
    """Send until the task cannot write any more."""
    for count in range(1, 100):
        up.emit_all([40])
        step_until(task, StepResult.IDLE)
        if not task._can_write():
            up.emit_all([40])
            return count + 1
    raise AssertionError("it has buffers without end")
