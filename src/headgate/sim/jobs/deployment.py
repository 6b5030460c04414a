"""A job's tasks in one simulated worker: set up on its environment as the real host does it.

All tasks of an order are set up before the first one runs; producers without a place get one later.
A new attempt begins where the last one was, when all its tasks are over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headgate.base.messages import TaskState
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.checkpoint.barrier_policy import BarrierPolicy
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.checkpoint.snapshot import CheckpointPlan
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.ends import Address
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate, InputGate
from headgate.core.ingress.union import UnionGate
from headgate.core.task.debloating import sizes_for
from headgate.core.task.environment import Here, Input, RemoteProducer, UnplacedProducer
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import Task
from headgate.functions.context import TaskInfo
from headgate.plan.execution_graph import ChannelSpec, OutputSpec, TaskSpec
from headgate.plan.job_graph import JobVertex
from headgate.sim.jobs.calls import SimCalls
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.seats import Seat
from headgate.sim.jobs.writing import Desk
from headgate.sim.ledger import CheckFailed
from headgate.sim.worker import SimWorker


@dataclass(slots=True)
class Deployed:
    """One task and what it holds."""

    spec: TaskSpec
    seat: Seat
    born_ms: float
    gates: list[Gate] = field(default_factory=list)
    deserializers: list[Deserializer] = field(default_factory=list)
    writers: list[RecordWriter] = field(default_factory=list)
    task: Task | None = None

    @property
    def name(self) -> str:
        return self.spec.id

    @property
    def is_over(self) -> bool:
        return self.seat.is_over

    @property
    def state(self) -> TaskState:
        return TaskState.CREATED if self.task is None else self.task.lifecycle.state

    def wait(self, ready: Callable[[], bool]) -> None:
        """How its writers wait for a buffer."""
        assert self.task is not None
        self.task.waiting_for_buffer(True)
        try:
            self.seat.wait(ready)
        finally:
            self.task.waiting_for_buffer(False)


class Deployment:
    """The tasks of one worker."""

    def __init__(self, worker: SimWorker, scenario: JobScenario) -> None:
        self.worker = worker
        self.deployed: list[Deployed] = []
        self.on_set_up: Callable[[Deployed], None] = lambda one: None
        """Told of every task before it runs."""
        self._scenario = scenario
        self._unplaced: dict[str, list[tuple[Gate, int]]] = {}
        self._attempt = 0
        self._policy = BarrierPolicy()
        self._desk: Desk | None = None

    def begin(self, attempt: int, policy: BarrierPolicy, desk: Desk) -> None:
        """Tasks of another attempt are to come, which take checkpoints; all others are over."""
        self.release_partitions()
        self.deployed.clear()
        self._unplaced.clear()
        self._attempt, self._policy, self._desk = attempt, policy, desk

    def deploy(
        self,
        tasks: Sequence[TaskSpec],
        places: Mapping[str, Address | None],
        restored: Mapping[str, TaskRestored] | None = None,
    ) -> list[Deployed]:
        """Set up and start tasks."""
        ready = [self._set_up(spec, places, (restored or {}).get(spec.id)) for spec in tasks]
        for one in ready:
            self.on_set_up(one)
        for one in ready:
            assert one.task is not None
            one.seat.start(one.task)
        return ready

    def living(self, slot: int) -> list[Task]:
        """The tasks of a slot that are not over."""
        here = [one for one in self.deployed if one.spec.slot == slot and not one.is_over]
        return [one.task for one in here if one.task is not None]

    def placed(self, producer: str, address: Address | None) -> None:
        """It is known now where a producer runs."""
        for gate, index in self._unplaced.pop(producer, ()):
            self.worker.environment.place(gate, index, self._place(address))

    def cancel(self) -> None:
        for one in self.deployed:
            if one.task is not None and not one.is_over:
                one.task.cancel()
                one.seat.cancel()

    def release_partitions(self) -> None:
        """All tasks have ended: drop what nobody has read."""
        for one in self.deployed:
            for writer in one.writers:
                writer.partition.release()

    def _set_up(
        self, spec: TaskSpec, places: Mapping[str, Address | None], restored: TaskRestored | None
    ) -> Deployed:
        scenario, vertex = self._scenario, self._scenario.job_graph.vertices[spec.vertex]
        info = TaskInfo("sim", vertex.name, spec.subtask, vertex.parallelism)
        again = f" {self._attempt}" if self._attempt else ""
        random = Random(f"seat {spec.id} {scenario.seed}{again}")
        seat = Seat(info.name, self.worker, random, scenario.called_in)
        one = Deployed(spec, seat, self.worker.clock.now_ms)
        self.deployed.append(one)
        one.writers += [
            self._create_writer(one, vertex, number, output)
            for number, output in enumerate(spec.outputs)
        ]
        one.gates += [self._create_gate(info.name, gate, places) for gate in spec.gates]
        chain = Chain(vertex.chain, one.writers, seat.loan)
        clock = self._clock_of(seat)
        processor = self._create_processor(one, vertex, chain, clock)
        one.task = Task(
            info,
            chain,
            processor,
            one.gates,
            one.writers,
            seat.loan,
            clock,
            seat.wake,
            async_calls=partial(SimCalls, self.worker, info.name, random),
            wait=seat.wait,
            spills=self.worker.spills,
            sizes=sizes_for(processor, self.worker.environment.settings, self._look_of(seat)),
            checkpoints=self._checkpoint_plan(spec, vertex),
            restored=restored,
        )
        return one

    def _checkpoint_plan(self, spec: TaskSpec, vertex: JobVertex) -> CheckpointPlan | None:
        if self._desk is None:
            return None
        return CheckpointPlan(self._policy, partial(self._desk.start, self.worker, spec, vertex))

    def _look_of(self, seat: Seat) -> Callable[[float, Callable[[], None]], None]:
        """Timers of looks, which come whether the task's baton is lent or not."""
        return lambda delay_ms, call: self.worker.later(delay_ms, f"look of {seat.name}", call)

    def _clock_of(self, seat: Seat) -> Clock:
        worker = self.worker

        def later(delay_ms: float, call: Callable[[], None]) -> None:
            if seat.loan.is_lent:
                raise CheckFailed(f"{seat.name} sets a timer while its baton is lent")
            worker.later(delay_ms, f"timer of {seat.name}", call)

        return Clock(lambda: worker.clock.now_ms, lambda: int(worker.clock.now_ms), later)

    def _create_writer(
        self, one: Deployed, vertex: JobVertex, number: int, output: OutputSpec
    ) -> RecordWriter:
        partition = self.worker.environment.create_partition(
            output.partition, output.kind, output.subpartitions, one.wait
        )
        partition.pool.notify = one.seat.wake
        how = vertex.chain.partitions[number]
        router = how.make_router(one.spec.subtask)
        writer = RecordWriter(partition, router, how.serializer, how.timeout_ms)
        self.worker.flush_by_time(one.name, writer)
        return writer

    def _create_gate(
        self, name: str, channels: Sequence[ChannelSpec], places: Mapping[str, Address | None]
    ) -> Gate:
        inputs = [
            Input(
                channel.partition,
                channel.subpartition,
                self._place(places[channel.producer])
                if channel.producer in places
                else UnplacedProducer(),
            )
            for channel in channels
        ]
        gate = self.worker.environment.create_gate(name, inputs)
        for index, channel in enumerate(channels):
            if channel.producer not in places:
                self._unplaced.setdefault(channel.producer, []).append((gate, index))
        return gate

    def _create_processor(
        self, one: Deployed, vertex: JobVertex, chain: Chain, clock: Clock
    ) -> Processor:
        seat = one.seat
        if vertex.is_source:
            interval_ms = self._scenario.marker_ms
            head = vertex.chain.operators[0].id
            marker = (interval_ms, head, one.spec.subtask) if interval_ms > 0 else None
            return SourceProcessor(chain, seat.loan, clock, seat.wake, marker)
        environment, inputs = self.worker.environment, []
        for number in sorted(set(vertex.gate_inputs)):
            own = [one.gates[at] for at, of in enumerate(vertex.gate_inputs) if of == number]
            gate: InputGate = UnionGate(list(own)) if own[1:] else own[0]
            gate.notify = seat.wake
            deserializers = [
                deserializer
                for single in own
                for deserializer in environment.create_deserializers(single)
            ]
            one.deserializers += deserializers
            inputs.append(NetworkInput(number, gate, deserializers))
        return InputProcessor(chain, inputs, seat.loan, clock)

    def _place(self, address: Address | None) -> Here | RemoteProducer:
        if address is None or tuple(address) == self.worker.address:
            return Here()
        return RemoteProducer((address[0], address[1]))
