"""A job's tasks in one task manager: set up on its exchange, run, told about, ended.

All tasks of a call are set up before the first one runs, so that each finds the partitions of its
neighbours. What a failed set-up had taken is given back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from headgate.base.errors import TaskCancelled
from headgate.base.messages import TaskFigures
from headgate.base.states import TaskState
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import TaskInfo
from headgate.core.chain.outputs import Loan
from headgate.core.egress.partition import Partition
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.directory import Address
from headgate.core.ingress.gate import Gate, InputGate
from headgate.core.ingress.union import UnionGate
from headgate.core.state.backend import Backends
from headgate.core.task.environment import Environment, Here, Input, There, Unplaced
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import Clock, InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import Task
from headgate.host.async_calls import LoopCalls
from headgate.host.baton import Baton, Turn
from headgate.host.exchange import Exchange
from headgate.host.loop import now_ms
from headgate.host.runner import Runner, Seat
from headgate.plan.execution_graph import ChannelSpec, OutputSpec, TaskSpec
from headgate.plan.job_graph import JobVertex

Report = Callable[[str, TaskState, BaseException | None], None]
OnTime = Callable[[str, str, int | None], None]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What tasks know about their job."""

    job: str
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    latency_interval_ms: float = 0
    """How often sources send latency markers; 0: never."""


@dataclass(slots=True)
class _Deployed:
    spec: TaskSpec
    seat: Seat
    task: Task
    partitions: list[Partition]
    runner: Runner | None = None


class Deployment:
    """Runs tasks of one job. ``report`` is called from their threads, outside the baton."""

    def __init__(
        self,
        exchange: Exchange,
        vertices: Mapping[int, JobVertex],
        info: JobInfo,
        report: Report,
        again: Callable[[], Mapping[int, JobVertex]] | None = None,
        backends: Backends | None = None,
    ) -> None:
        """``again`` makes the vertices anew: tasks of the same vertex share no function."""
        self._exchange = exchange
        self._again = again
        self._backends = backends
        self._used: set[int] = set()
        self._vertices = vertices
        self._info = info
        self._report = report
        self.on_time: OnTime = lambda task, group, watermark_ms: None
        """Told by source tasks that are aligned with a group; from their threads."""
        self._deployed: list[_Deployed] = []
        self._unplaced: dict[str, list[tuple[Gate, int]]] = {}
        self._cancelled = False

    def deploy(self, tasks: Sequence[TaskSpec], places: Mapping[str, Address | None]) -> None:
        """Set up and start tasks; producers that ``places`` does not name come with ``placed``."""
        ready: list[_Deployed] = []
        with self._exchange.inside() as environment:
            if self._cancelled:
                raise TaskCancelled("the job was cancelled before its tasks were set up")
            with ExitStack() as undo:
                for spec in tasks:
                    ready += [self._set_up(environment, spec, places, undo)]
                undo.pop_all()
            self._deployed += ready
        for one in ready:
            one.runner = self._exchange.run(one.task, one.seat)
        if self._cancelled:
            self.cancel()

    def placed(self, producer: str, address: Address | None) -> None:
        """It is known now where a producer runs; None or our own address: here."""
        with self._exchange.inside() as environment:
            place = self._place(address)
            for gate, index in self._unplaced.pop(producer, ()):
                environment.place(gate, index, place)

    def announce(self, group: str, watermark_ms: int | None) -> None:
        """The slowest source of a group is this far; None: there is nobody to wait for."""
        with self._exchange.inside():
            for one in self._deployed:
                one.task.time_announced(group, watermark_ms)

    def cancel(self) -> None:
        """End all tasks; ``report`` tells when they have ended."""
        self._cancelled = True
        with self._exchange.inside():
            for one in self._deployed:
                one.task.cancel()
                one.seat.cancel()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for all tasks to end, however; says whether they did."""
        deadline = time.monotonic() + timeout_s
        return all(
            one.runner is None or one.runner.ends_within(max(0.0, deadline - time.monotonic()))
            for one in self._deployed
        )

    def statistics(self) -> list[TaskFigures]:
        """What each task has done so far."""
        with self._exchange.inside():
            return [_figures(one) for one in self._deployed]

    def close(self, timeout_s: float = 30.0) -> bool:
        """The job is over: cancel what still runs, wait for it, drop what nobody has read.

        Says whether everything has ended; what a task that hangs has written is left alone.
        """
        if not self.ends_within(0):
            self.cancel()
        ended = self.ends_within(timeout_s)
        if not self._exchange.closed:
            self._release_partitions()
        return ended

    def _release_partitions(self) -> None:
        """Of tasks that have ended: stored ones, and those whose readers never came."""
        with self._exchange.inside(), ExitStack() as last:
            for one in self._deployed:
                if one.runner is None or not one.runner.is_alive:
                    for partition in one.partitions:
                        last.callback(partition.release)

    # One task.

    def _set_up(
        self,
        environment: Environment,
        spec: TaskSpec,
        places: Mapping[str, Address | None],
        undo: ExitStack,
    ) -> _Deployed:
        vertex = self._vertex(spec.vertex)
        info = self._task_info(spec, vertex)
        seat = self._exchange.seat(f"{vertex.name[:80]} ({spec.subtask + 1}/{vertex.parallelism})")
        loan = BatonLoan(self._exchange.baton, seat.turn)
        waits = _Waits(seat)
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
        )
        task.on_state = lambda state, error: self._report(spec.id, state, error)
        task.on_time = lambda group, watermark_ms: self.on_time(spec.id, group, watermark_ms)
        waits.task = task
        return _Deployed(spec, seat, task, [writer.partition for writer in writers])

    def _task_info(self, spec: TaskSpec, vertex: JobVertex) -> TaskInfo:
        return TaskInfo(
            self._info.job,
            vertex.name,
            spec.subtask,
            vertex.parallelism,
            vertex.max_parallelism,
            self._info.attempt,
            self._info.parameters,
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
        waits: "_Waits",
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
                self._place(places[channel.producer]) if channel.producer in places else Unplaced(),
            )
            for channel in channels
        ]
        gate = environment.create_gate(name, inputs)
        undo.callback(gate.close)
        for index, channel in enumerate(channels):
            if channel.producer not in places:
                self._unplaced.setdefault(channel.producer, []).append((gate, index))
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
        seat: Seat,
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

    def _place(self, address: Address | None) -> Here | There:
        if address is None or tuple(address) == tuple(self._exchange.address):
            return Here()
        return There((address[0], address[1]))


class BatonLoan:
    """Lends the baton of a task's thread while its user's code runs."""

    __slots__ = ("_baton", "_lent", "_turn")

    def __init__(self, baton: Baton, turn: Turn) -> None:
        self._baton = baton
        self._turn = turn
        self._lent = False

    def lend(self) -> None:
        self._baton.lend(self._turn)
        self._lent = True

    def regain(self) -> None:
        if self._lent:
            self._lent = False
            self._baton.regain(self._turn)


class _Waits:
    """How a task's writers wait for a buffer, with the task told that it is back-pressured."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.task: Task | None = None

    def wait(self, ready: Callable[[], bool]) -> None:
        task = self.task
        if task is None:
            self.seat.wait(ready)
            return
        task.waiting_for_buffer(True)
        try:
            self.seat.wait(ready)
        finally:
            task.waiting_for_buffer(False)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _figures(one: _Deployed) -> TaskFigures:
    seen = one.task.statistics()
    return TaskFigures(
        task=one.spec.id,
        vertex=one.spec.vertex,
        subtask=one.spec.subtask,
        state=seen.state,
        records_in=seen.records_in,
        records_out=seen.records_out,
        bytes_in=seen.bytes_in,
        bytes_out=seen.bytes_out,
        buffers_in=seen.buffers_in,
        buffers_out=seen.buffers_out,
        busy_ms=seen.spent.busy_ms,
        backpressured_ms=seen.spent.backpressured_ms,
        idle_ms=seen.spent.idle_ms,
        queued_in=seen.queued_in,
        queued_out=seen.queued_out,
        latency_p50_ms=seen.latency.p50_ms if seen.latency else 0.0,
        latency_p99_ms=seen.latency.p99_ms if seen.latency else 0.0,
        input_watermarks_ms=(seen.watermark_in_ms,),
        output_watermark_ms=seen.watermark_out_ms,
        records_made=sum(o.records_out for o in seen.operators[:1]) if not one.spec.gates else 0,
        user=seen.user,
    )
