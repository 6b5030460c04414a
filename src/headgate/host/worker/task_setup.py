"""From the plan's description of a task to a task on an exchange that can run.

Law: what a failed set-up had taken is given back; tasks of the same vertex share no function.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from headgate.base.checkpoints import ReassignedStream
from headgate.base.elements import Bundle
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.outputs import Loan
from headgate.core.checkpoint.barrier_policy import BarrierPolicy
from headgate.core.checkpoint.restored import TaskRestored, kept_by, reassigned_bundles
from headgate.core.checkpoint.snapshot import CheckpointPlan
from headgate.core.egress.partition import Partition
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.ends import Address
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate, InputGate
from headgate.core.ingress.union import UnionGate
from headgate.core.state.backend import Backends
from headgate.core.task.debloating import sizes_for
from headgate.core.task.environment import (
    Environment,
    Here,
    Input,
    RemoteProducer,
    UnplacedProducer,
)
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import Task
from headgate.functions.context import TaskInfo
from headgate.host.checkpoints.restoring import BundlesOf
from headgate.host.checkpoints.snapshot_writer import SnapshotTask, SnapshotWriters
from headgate.host.net.exchange import Exchange
from headgate.host.net.loop import now_ms
from headgate.host.net.runner import BatonLoan, BufferWaits, Runner, TaskThread
from headgate.host.worker.async_calls import LoopCalls
from headgate.plan.execution_graph import ChannelSpec, OutputSpec, TaskSpec
from headgate.plan.job_graph import JobVertex


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What tasks know about their job."""

    job: str
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    latency_interval_ms: float = 0
    """How often sources send latency markers; 0: never."""


@dataclass(slots=True)
class Deployed:
    """A task that is set up, and its thread as soon as it runs."""

    spec: TaskSpec
    seat: TaskThread
    task: Task
    partitions: list[Partition]
    runner: Runner | None = None


class TaskSetup:
    """Sets up tasks of one job; called inside the baton."""

    def __init__(
        self,
        exchange: Exchange,
        vertices: Mapping[int, JobVertex],
        info: JobInfo,
        again: Callable[[], Mapping[int, JobVertex]] | None,
        backends: Backends | None,
        writing: SnapshotWriters | None = None,
    ) -> None:
        """``writing``: where checkpoints go; None: none are taken."""
        self._exchange = exchange
        self._vertices = vertices
        self._info = info
        self._again = again
        self._backends = backends
        self._writing = writing
        self._used: set[int] = set()
        self.unplaced: dict[str, list[tuple[Gate, int]]] = {}
        """By producer, the channels that wait for its place."""

    def set_up(
        self,
        environment: Environment,
        spec: TaskSpec,
        places: Mapping[str, Address | None],
        undo: ExitStack,
        restored: TaskRestored | None = None,
    ) -> Deployed:
        """A task that does not run yet; ``undo`` gives back what it has taken."""
        vertex = self._vertex(spec.vertex)
        info = self._task_info(spec, vertex)
        seat = self._exchange.seat(f"{vertex.name[:80]} ({spec.subtask + 1}/{vertex.parallelism})")
        loan = BatonLoan(self._exchange.baton, seat.turn)
        waits = BufferWaits(seat)
        writers = [
            self._create_writer(environment, vertex, number, output, waits, spec.subtask, undo)
            for number, output in enumerate(spec.outputs)
        ]
        gates = [
            self._create_gate(environment, info.name, channels, places, undo)
            for channels in spec.gates
        ]
        chain = Chain(vertex.chain, writers, loan)
        clock = Clock(now_ms, _wall_ms, self._exchange.loop.later)
        processor = self._create_processor(
            environment, vertex, spec, chain, gates, loan, clock, seat
        )
        task = Task(
            info,
            chain,
            processor,
            gates,
            writers,
            loan,
            clock,
            seat.wake,
            self._backends,
            async_calls=partial(LoopCalls, self._exchange.loop.post, seat.turn.name),
            wait=seat.wait,
            spills=self._exchange.files,
            sizes=sizes_for(processor, environment.settings, self._exchange.loop.later),
            checkpoints=self._checkpoint_plan(spec, vertex),
            restored=restored,
        )
        waits.task = task
        return Deployed(spec, seat, task, [writer.partition for writer in writers])

    def bundles_of(self, spec: TaskSpec) -> BundlesOf:
        """How a task makes records of bytes that were on their way to tasks of its vertex."""
        return partial(self._stray_bundles, spec)

    def _stray_bundles(
        self, spec: TaskSpec, stray: ReassignedStream, pieces: Sequence[bytes]
    ) -> Iterable[Bundle]:
        vertex, settings = self._vertices[spec.vertex], self._exchange.settings
        serializers = vertex.gate_serializers or (None,) * len(spec.gates)
        deserializer = Deserializer(
            serializers[stray.gate],
            self._exchange.files,
            settings.spill_bytes,
            settings.max_element_bytes,
        )
        if not stray.routed:
            return reassigned_bundles(pieces, deserializer)
        vertices = self._vertices if self._again is None else self._again()
        router = vertices[stray.source].chain.partitions[stray.output].make_router(0)
        router.set_up(vertex.parallelism)
        return reassigned_bundles(pieces, deserializer, kept_by(router, spec.subtask))

    def _checkpoint_plan(self, spec: TaskSpec, vertex: JobVertex) -> CheckpointPlan | None:
        writing = self._writing
        if writing is None:
            return None
        author = SnapshotTask(
            spec.id, spec.vertex, spec.subtask, vertex.parallelism, vertex.max_parallelism
        )
        order = writing.order
        policy = BarrierPolicy(order.exactly_once, order.overtake_after_ms)
        return CheckpointPlan(
            policy, writing.starter(author), bool(order.folder), order.incremental
        )

    def _task_info(self, spec: TaskSpec, vertex: JobVertex) -> TaskInfo:
        return TaskInfo(
            self._info.job,
            vertex.name,
            spec.subtask,
            vertex.parallelism,
            vertex.max_parallelism,
            self._info.attempt,
            self._info.parameters,
            "" if self._writing is None else self._writing.order.job,
            "" if self._writing is None else self._writing.order.folder,
        )

    def _vertex(self, number: int) -> JobVertex:
        if number in self._used and self._again is not None:
            return self._again()[number]
        self._used.add(number)
        return self._vertices[number]

    def _create_writer(
        self,
        environment: Environment,
        vertex: JobVertex,
        number: int,
        output: OutputSpec,
        waits: BufferWaits,
        subtask: int,
        undo: ExitStack,
    ) -> RecordWriter:
        partition = environment.create_partition(
            output.partition, output.kind, output.subpartitions, waits.wait
        )
        undo.callback(partition.release)
        partition.pool.notify = waits.seat.wake
        how = vertex.chain.partitions[number]
        writer = RecordWriter(partition, how.make_router(subtask), how.serializer, how.timeout_ms)
        self._exchange.flush_by_time(waits.seat.turn.name, writer)
        return writer

    def _create_gate(
        self,
        environment: Environment,
        name: str,
        channels: tuple[ChannelSpec, ...],
        places: Mapping[str, Address | None],
        undo: ExitStack,
    ) -> Gate:
        inputs = [
            Input(
                channel.partition,
                channel.subpartition,
                self.place(places[channel.producer])
                if channel.producer in places
                else UnplacedProducer(),
            )
            for channel in channels
        ]
        gate = environment.create_gate(name, inputs)
        undo.callback(gate.close)
        for index, channel in enumerate(channels):
            if channel.producer not in places:
                self.unplaced.setdefault(channel.producer, []).append((gate, index))
        return gate

    def _create_processor(
        self,
        environment: Environment,
        vertex: JobVertex,
        spec: TaskSpec,
        chain: Chain,
        gates: list[Gate],
        loan: Loan,
        clock: Clock,
        seat: TaskThread,
    ) -> Processor:
        if vertex.is_source:
            interval_ms = self._info.latency_interval_ms
            head = vertex.chain.operators[0].id
            marker = (interval_ms, head, spec.subtask) if interval_ms > 0 else None
            return SourceProcessor(chain, loan, clock, seat.wake, marker)
        serializers = vertex.gate_serializers or (None,) * len(gates)
        inputs = []
        for number in sorted(set(vertex.gate_inputs)):
            own = [at for at, of in enumerate(vertex.gate_inputs) if of == number]
            gate: InputGate = UnionGate([gates[at] for at in own]) if own[1:] else gates[own[0]]
            gate.notify = seat.wake
            deserializers = [
                deserializer
                for at in own  # a union counts the channels of its gates through
                for deserializer in environment.create_deserializers(gates[at], serializers[at])
            ]
            inputs.append(NetworkInput(number, gate, deserializers))
        return InputProcessor(chain, inputs, loan, clock)

    def place(self, address: Address | None) -> Here | RemoteProducer:
        """Where a producer runs; None or our own address: here."""
        if address is None or tuple(address) == tuple(self._exchange.address):
            return Here()
        return RemoteProducer((address[0], address[1]))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
