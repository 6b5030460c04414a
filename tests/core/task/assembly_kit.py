"""A worker without threads: assembled tasks are stepped by the test, one after the other."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.base.elements import Serializer
from headgate.base.messages import ChannelOrder, CheckpointOrder, OutputOrder, TaskOrder
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import ChainSpec, OperatorSpec, PartitionSpec, ToNetwork
from headgate.core.checkpoint.snapshot import SnapshotTask, SnapshotWriting, TaskSnapshot
from headgate.core.egress.router import RoundRobin, Router
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.link import Address
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.task.assembly import AssembledTask, JobInfo, TaskAssembly
from headgate.core.task.deployment import DeployedTasks
from headgate.core.task.task import StepResult, Task, TaskServices
from headgate.functions.context import TaskInfo
from tests.core.operators.kit import ScriptedSource
from tests.core.task.kit import Lab, Shelf

HERE: Address = ("here", 7)
STEPS = 400
WAIT_MS = 30


@dataclass(frozen=True)
class PlannedVertex:
    """See ``Vertex``."""

    name: str
    chain: ChainSpec
    parallelism: int = 1
    max_parallelism: int = 8
    gate_inputs: tuple[int, ...] = ()
    is_source: bool = False
    gate_serializers: tuple[Serializer | None, ...] = ()


def vertex(
    name: str,
    make: Callable[[], Operator],
    *,
    outputs: int = 0,
    router: Callable[[int], Router] = RoundRobin,
    **fields: Any,
) -> PlannedVertex:
    """One operator that writes to all outputs, at once."""
    spec = OperatorSpec(5, name, f"uid {name}", make, tuple(map(ToNetwork, range(outputs))))
    partitions = tuple(PartitionSpec(router, timeout_ms=0) for _ in range(outputs))
    return PlannedVertex(name, ChainSpec((spec,), partitions), **fields)


def reads(*producers: str) -> tuple[tuple[str, ...], ...]:
    """One gate with these producers."""
    return (producers,)


def source(*answers: Any, **fields: Any) -> PlannedVertex:
    made = {"outputs": 1, **fields}
    return vertex(
        "source", lambda: SourceOperator(ScriptedSource(), (answers,)), is_source=True, **made
    )


def double(**fields: Any) -> PlannedVertex:
    made = {"outputs": 1, "gate_inputs": (0,), **fields}
    return vertex("double", lambda: MapOperator(lambda n: n * 2), **made)


def sink(got: list[Any], **fields: Any) -> PlannedVertex:
    made = {"gate_inputs": (0,), **fields}
    return vertex("sink", lambda: SinkFunctionOperator(got.append), **made)


def order(task: str, reads: "tuple[tuple[str, ...], ...]" = (), writes: int = 0) -> TaskOrder:
    """Task ``vertex.subtask``; ``reads``: for each gate the producers, of partition 0 each."""
    number, subtask = map(int, task.split("."))
    return TaskOrder(
        task,
        number,
        subtask,
        0,
        tuple(OutputOrder(f"{task}/{at}", "PIPELINED_BOUNDED", 1) for at in range(writes)),
        tuple(tuple(ChannelOrder(f"{name}/0", 0, name) for name in gate) for gate in reads),
    )


@dataclass
class SteppedThread:
    """See ``TaskThread``."""

    services: TaskServices
    task: Task | None = None
    cancelled: bool = False
    is_alive: bool = False
    cpu_ms: float = 0.0
    runnable_ms: float = 0.0

    def start(self, task: Task) -> None:
        self.task, self.is_alive = task, True

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class SteppedWorker:
    """See ``TaskWorker``."""

    lab: Lab
    address: Address = HERE
    flushed: list[str] = field(default_factory=list)
    made: list[TaskInfo] = field(default_factory=list)

    @property
    def environment(self) -> Any:
        return self.lab.environment

    def create_thread(self, order: TaskOrder, info: TaskInfo) -> SteppedThread:
        self.made.append(info)
        lab = self.lab
        return SteppedThread(TaskServices(lab.loan, lab.clock, lab.wake, self.wait))

    def wait(self, ready: Callable[[], bool]) -> None:
        """Somebody makes room after a while."""
        self.lab.timers.pass_ms(WAIT_MS)

    def flush_by_time(self, name: str, writer: RecordWriter) -> None:
        self.flushed.append(name)


class Hall:
    """Tasks of one run in one worker."""

    def __init__(self, lab: Lab, *vertices: PlannedVertex, **given: Any) -> None:
        self.lab = lab
        self.worker = SteppedWorker(lab)
        info = given.pop("info", JobInfo("job"))
        known = dict(enumerate(vertices))
        self.assembly = TaskAssembly(self.worker, known, info, lab, **given)
        self.tasks = DeployedTasks(self.assembly)

    def deploy(
        self, *orders: TaskOrder, places: Any = None, restored: Any = None
    ) -> list[AssembledTask[SteppedThread]]:
        """Producers are here unless ``places`` says otherwise."""
        if places is None:
            places = {producer: None for each in orders for producer in each.producers}
        ready = self.tasks.assemble(orders, places, restored or {})
        self.tasks.start(ready)
        return ready

    def finish(self) -> None:
        """Step all tasks, in turns, until each is done."""
        running = [each for each in self.tasks.tasks if each.thread.is_alive]
        for _ in range(STEPS):
            for each in list(running):
                if each.task.step() is StepResult.DONE:
                    each.task.close(None)
                    each.thread.is_alive = False
                    running.remove(each)
        assert not running, f"{[each.name for each in running]} do not come to an end"

    def end(self) -> None:
        """Close what runs, and drop what nobody reads."""
        for each in self.tasks.tasks:
            if each.thread.is_alive:
                each.task.cancel()
                each.task.close(None)
                each.thread.is_alive = False
        self.tasks.release_partitions()


class Writings:
    """See ``CheckpointWriting``."""

    def __init__(self, order: CheckpointOrder, shelf: Shelf) -> None:
        self.order = order
        self.tasks: list[SnapshotTask] = []
        self._shelf = shelf

    def start(
        self, task: SnapshotTask, snapshot: TaskSnapshot, done: Callable[[], None]
    ) -> SnapshotWriting:
        self.tasks.append(task)
        return self._shelf._start(snapshot, done)
