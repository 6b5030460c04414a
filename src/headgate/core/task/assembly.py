"""Assembly: the one place that puts a task together, for workers and for the simulator.

Of an order of the driver and the vertex that it names come the task's partitions and writers, its
gates and inputs, its chain, and the task itself, which does not run yet. A ``TaskWorker`` brings
what differs: threads, time, network and files. Law: what a failed assembly has taken is given back;
tasks of the same vertex share no function.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from headgate.base.checkpoints import ReassignedStream
from headgate.base.elements import Bundle, Serializer
from headgate.base.ids import PartitionId
from headgate.base.messages import ChannelOrder, TaskOrder, TaskState
from headgate.core.chain.chain import Chain
from headgate.core.chain.spec import ChainSpec
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.restored import TaskRestored, kept_by, reassigned_bundles
from headgate.core.checkpoint.snapshot import CheckpointPlan, CheckpointWriting, SnapshotTask
from headgate.core.egress.partition import PartitionKind, Wait
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.link import Address
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate, InputGate, UnionGate
from headgate.core.task.debloating import sizes_for
from headgate.core.task.environment import (
    Environment,
    Here,
    Input,
    RemoteProducer,
    UnplacedProducer,
)
from headgate.core.task.idling import SourceIdling
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import Task, TaskListener, TaskParts, TaskServices
from headgate.functions.context import TaskInfo


class Vertex(Protocol):
    """A vertex of the plan, as far as its tasks need it."""

    @property
    def name(self) -> str: ...
    @property
    def chain(self) -> ChainSpec: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def max_parallelism(self) -> int: ...
    @property
    def gate_inputs(self) -> tuple[int, ...]: ...
    @property
    def is_source(self) -> bool: ...
    @property
    def gate_serializers(self) -> tuple[Serializer | None, ...]: ...


class ExecutionThread(Protocol):
    """The thread that steps one task."""

    @property
    def services(self) -> TaskServices: ...

    @property
    def is_alive(self) -> bool:
        """Whether it has been started and the task has not been closed."""

    @property
    def cpu_ms(self) -> float:
        """CPU time that it has used; 0: the platform does not tell."""

    @property
    def runnable_ms(self) -> float:
        """How long it has waited for a core; 0: the platform does not tell."""

    def start(self, task: Task) -> None:
        """Step the task from now on, until it ends; not called inside the baton."""

    def cancel(self) -> None:
        """Let the task end at its next wait or step; called inside the baton."""


Thread = TypeVar("Thread", bound=ExecutionThread)
Created = TypeVar("Created", bound=ExecutionThread, covariant=True)


class TaskWorker(Protocol[Created]):
    """The worker that tasks are assembled in."""

    @property
    def environment(self) -> Environment: ...

    @property
    def address(self) -> Address:
        """Where other workers reach this one."""

    def create_thread(self, order: TaskOrder, info: TaskInfo) -> Created:
        """For a task that is being assembled; it does not run yet."""

    def flush_by_time(self, name: str, writer: RecordWriter) -> object:
        """Flush a writer with its buffer timeout, as long as its partition lives."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What tasks know about their job."""

    job: str
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    latency_interval_ms: float = 0
    """How often sources send latency markers; 0: never."""


@dataclass(frozen=True, slots=True)
class AssembledTask(Generic[Thread]):
    """A task, its thread, and what it holds."""

    order: TaskOrder
    thread: Thread
    task: Task
    gates: Sequence[Gate]
    deserializers: Sequence[Deserializer]
    writers: Sequence[RecordWriter]

    @property
    def name(self) -> str:
        """Its id in the job."""
        return self.order.id

    @property
    def state(self) -> TaskState:
        return self.task.lifecycle.state


class TaskAssembly(Generic[Thread]):
    """Assembles tasks of one run in one worker; called inside the baton."""

    def __init__(
        self,
        worker: TaskWorker[Thread],
        vertices: Mapping[int, Vertex],
        info: JobInfo,
        listener: TaskListener,
        load_again: Callable[[], Mapping[int, Vertex]] | None = None,
        checkpoints: CheckpointWriting | None = None,
    ) -> None:
        """``load_again`` makes vertices anew, for further tasks of the same vertex; None: their
        operators make functions of their own. ``checkpoints``: None: none are taken.
        """
        self._worker = worker
        self._environment = worker.environment
        self._vertices = vertices
        self._info = info
        self._listener = listener
        self._load_again = load_again
        self._checkpoints = checkpoints
        self._used: set[int] = set()
        self._unplaced: dict[str, list[tuple[Gate, int]]] = {}  # by producer

    def assemble(
        self,
        order: TaskOrder,
        places: Mapping[str, Address | None],
        undo: ExitStack,
        restored: TaskRestored | None = None,
    ) -> AssembledTask[Thread]:
        """A task that does not run yet; ``undo`` gives back what it has taken."""
        vertex = self._vertex(order.vertex)
        info = self._task_info(order, vertex)
        thread = self._worker.create_thread(order, info)
        services = thread.services
        wait = _BufferWait(services.wait)
        writers = self._create_writers(order, vertex, info, services, wait, undo)
        gates = [self._create_gate(info.name, channels, places, undo) for channels in order.gates]
        chain = Chain(vertex.chain, writers, services.loan)
        environment = self._environment
        deserializers = [
            environment.create_deserializers(gate, _serializer(vertex, at))
            for at, gate in enumerate(gates)
        ]
        inputs = self._create_inputs(vertex, gates, deserializers, services)
        processor = self._create_processor(order, vertex, chain, inputs, services)
        sizes = sizes_for(processor, environment.settings, environment.later)
        task = Task(
            order.id,
            info,
            TaskParts(chain, processor, gates, writers, sizes),
            services,
            self._listener,
            self._checkpoint_plan(order, vertex),
            restored,
        )
        wait.task = task
        of_channels = [deserializer for of_gate in deserializers for deserializer in of_gate]
        return AssembledTask(order, thread, task, gates, of_channels, writers)

    def placed(self, producer: str, address: Address | None) -> None:
        """It is known now where a producer runs; None or our own address: here."""
        for gate, index in self._unplaced.pop(producer, ()):
            self._environment.place(gate, index, self._place(address))

    def reassigned_bundles(
        self, order: TaskOrder, stream: ReassignedStream, pieces: Sequence[bytes]
    ) -> Iterable[Bundle]:
        """Records that were on their way to tasks of this vertex in channels that are gone."""
        vertex = self._vertices[order.vertex]
        deserializer = self._environment.create_deserializer(_serializer(vertex, stream.gate))
        if not stream.routed:
            return reassigned_bundles(pieces, deserializer)
        vertices = self._vertices if self._load_again is None else self._load_again()
        router = vertices[stream.source].chain.partitions[stream.output].make_router(0)
        router.set_up(vertex.parallelism)
        return reassigned_bundles(pieces, deserializer, kept_by(router, order.subtask))

    def _vertex(self, number: int) -> Vertex:
        if number in self._used and self._load_again is not None:
            return self._load_again()[number]
        self._used.add(number)
        return self._vertices[number]

    def _task_info(self, order: TaskOrder, vertex: Vertex) -> TaskInfo:
        job = self._info
        checkpoints = None if self._checkpoints is None else self._checkpoints.order
        return TaskInfo(
            job.job,
            vertex.name,
            order.subtask,
            vertex.parallelism,
            vertex.max_parallelism,
            job.attempt,
            job.parameters,
            "" if checkpoints is None else checkpoints.job,
            "" if checkpoints is None else checkpoints.folder,
        )

    def _checkpoint_plan(self, order: TaskOrder, vertex: Vertex) -> CheckpointPlan | None:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return None
        snapshot_task = SnapshotTask(
            order.id,
            order.vertex,
            order.subtask,
            vertex.parallelism,
            vertex.max_parallelism,
            vertex.name,
        )
        how = checkpoints.order
        return CheckpointPlan(
            BarrierPolicy(how.exactly_once, how.overtake_after_ms),
            partial(checkpoints.start, snapshot_task),
            bool(how.folder),
            how.incremental,
        )

    def _create_writers(
        self,
        order: TaskOrder,
        vertex: Vertex,
        info: TaskInfo,
        services: TaskServices,
        wait: Wait,
        undo: ExitStack,
    ) -> list[RecordWriter]:
        writers = []
        for output, spec in zip(order.outputs, vertex.chain.partitions, strict=True):
            partition = self._environment.create_partition(
                PartitionId(output.partition),
                PartitionKind[output.kind],
                output.subpartitions,
                wait,
            )
            undo.callback(partition.release)
            partition.pool.notify = services.wake
            router = spec.make_router(order.subtask)
            writer = RecordWriter(partition, router, spec.serializer, spec.timeout_ms)
            self._worker.flush_by_time(info.name, writer)
            writers.append(writer)
        return writers

    def _create_gate(
        self,
        name: str,
        channels: Sequence[ChannelOrder],
        places: Mapping[str, Address | None],
        undo: ExitStack,
    ) -> Gate:
        inputs = [
            Input(
                PartitionId(channel.partition),
                channel.subpartition,
                self._place(places[channel.producer])
                if channel.producer in places
                else UnplacedProducer(),
            )
            for channel in channels
        ]
        gate = self._environment.create_gate(name, inputs)
        undo.callback(gate.close)
        for index, channel in enumerate(channels):
            if channel.producer not in places:
                self._unplaced.setdefault(channel.producer, []).append((gate, index))
        return gate

    def _create_inputs(
        self,
        vertex: Vertex,
        gates: Sequence[Gate],
        deserializers: Sequence[list[Deserializer]],
        services: TaskServices,
    ) -> list[NetworkInput]:
        inputs = []
        for number in sorted(set(vertex.gate_inputs)):
            own = [at for at, of in enumerate(vertex.gate_inputs) if of == number]
            gate: InputGate = UnionGate([gates[at] for at in own]) if own[1:] else gates[own[0]]
            gate.notify = services.wake
            # A union counts the channels of its gates through.
            of_channels = [deserializer for at in own for deserializer in deserializers[at]]
            inputs.append(NetworkInput(number, gate, of_channels))
        return inputs

    def _create_processor(
        self,
        order: TaskOrder,
        vertex: Vertex,
        chain: Chain,
        inputs: list[NetworkInput],
        services: TaskServices,
    ) -> Processor:
        loan, clock = services.loan, services.clock
        if not vertex.is_source:
            return InputProcessor(chain, inputs, loan, clock)
        interval_ms = self._info.latency_interval_ms
        head = vertex.chain.operators[0].id
        marker = (interval_ms, head, order.subtask) if interval_ms > 0 else None
        idling = SourceIdling(
            clock, services.wake, services.post, services.start_watch, services.linger_ms
        )
        return SourceProcessor(chain, loan, clock, idling, marker)

    def _place(self, address: Address | None) -> Here | RemoteProducer:
        if address is None or tuple(address) == tuple(self._worker.address):
            return Here()
        return RemoteProducer((address[0], address[1]))


class _BufferWait:
    """How the writers of a task wait for a buffer: the task learns that it is back-pressured."""

    def __init__(self, wait: Wait) -> None:
        self.task: Task | None = None
        self._wait = wait

    def __call__(self, ready: Callable[[], bool]) -> None:
        task = self.task
        assert task is not None, "a task that is not assembled writes nothing"
        task.waiting_for_buffer(True)
        try:
            self._wait(ready)
        finally:
            task.waiting_for_buffer(False)


def _serializer(vertex: Vertex, gate: int) -> Serializer | None:
    return vertex.gate_serializers[gate] if vertex.gate_serializers else None
