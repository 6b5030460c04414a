"""Whole jobs in one thread that take checkpoints, fail and go on, with a real coordinator.

Two sources, two counters that have both of them as input, and a sink that commits in two phases
are spread over two task managers, which are joined by byte pipes. Chance picks who goes on: a task,
bytes, messages, the storage or the clock. `Town` outlives the runs: what was committed stays.
"""

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from headgate.base.checkpoints import CheckpointFigures, OperatorState, Stop, SubtaskState
from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import TaskCancelled
from headgate.base.ids import PartitionId
from headgate.base.messages import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from headgate.base.messages import TaskState as Life
from headgate.base.recovery_settings import CheckpointSettings, Consistency
from headgate.control.checkpoint_coordinator import CheckpointCoordinator
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import (
    CheckpointEffect,
    FailRun,
    SavepointDone,
    Send,
    StoreCheckpoint,
)
from headgate.control.pending_checkpoint import CheckpointedJob, CheckpointedTask
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock, OperatorContext
from headgate.core.chain.operator import Operator, PollResult
from headgate.core.chain.snapshots import OperatorRestored, OperatorSnapshot
from headgate.core.chain.spec import ChainSpec, OperatorSpec, ToNetwork
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.checkpoint.snapshot import ChannelData, CheckpointPlan, TaskSnapshot
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import CustomPartitioner
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate, InputGate, UnionGate
from headgate.core.operators.source import SourceOperator
from headgate.core.task.environment import Environment, Here, Input, RemoteProducer
from headgate.core.task.idling import SourceIdling
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor, SourceProcessor
from headgate.core.task.task import StepResult, Task, TaskParts, TaskServices
from headgate.functions.context import SnapshotMoment, TaskInfo
from tests.core.chain.kit import StrictLoan
from tests.core.exchange.kit import Deflate
from tests.core.pair import ADDRESS, Pair, with_settings

WALL_MS = 1_700_000_000_000
SOURCES, COUNTERS, SINK = ("s0", "s1"), ("c0", "c1"), "k"
PRODUCERS = {"s0": (), "s1": (), "c0": SOURCES, "c1": SOURCES, "k": COUNTERS}
END = (-9, 0)


@dataclass(frozen=True)
class Plan:
    """How a town's job runs."""

    records: int = 40
    keys: int = 5
    counters_in: tuple[int, int] = (0, 1)
    """The task manager of each: the sources are in 0, the sink is in 1."""
    sink_in: int = 1
    shape: str = "union"
    """How a counter has its sources: ``one`` gate, a ``union`` of two, or ``two`` inputs."""
    exactly_once: bool = True
    timeout_ms: int | None = None
    interval_ms: int = 10
    concurrent: int = 1
    size: int = 30
    """Of a record in bytes, about."""
    packed: bool = False
    """Whether bytes are compressed on their way."""
    troubles: float = 0.0
    """How often the storage, or an operator's snapshot, fails."""

    @property
    def policy(self) -> BarrierPolicy:
        return BarrierPolicy(self.exactly_once, self.timeout_ms)

    @property
    def expected(self) -> list[Any]:
        """What is committed in the end, sorted."""
        found: list[Any] = []
        for key in range(self.keys):
            found += [(key, count) for count in range(1, 2 * len(self.of_key(key)) + 1)]
        return sorted([*found, *self.totals(), END])

    def of_key(self, key: int) -> list[int]:
        return [number for number in range(self.records) if number % self.keys == key]

    def totals(self) -> list[tuple[int, int]]:
        """What the counters say at the very end."""
        sums = [0, 0]
        for number in range(self.records):
            sums[number % self.keys % 2] += 2
        return [(-1 - subtask, total) for subtask, total in enumerate(sums)]


class Numbers(SourceOperator):
    """Gives numbers, with a pause now and then; its position is its state."""

    before_barrier = Operator.before_barrier
    checkpoint_completed = Operator.checkpoint_completed
    checkpoint_aborted = Operator.checkpoint_aborted

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._at = 0
        self.wait_ms = 3.0
        self.descriptors = []

    def open(self, context: OperatorContext) -> None:
        self.context = context
        if context.restored is not None:
            self._at = pickle.loads(_only(context.restored.source))

    def poll(self, limit: int = 1) -> PollResult:
        plan = self._plan
        if self._at == plan.records:
            return PollResult.ENDED
        end = min(self._at + min(limit, 7), plan.records)
        records = [(number % plan.keys, "x" * plan.size) for number in range(self._at, end)]
        pauses = self._at < plan.records // 2 <= end
        self._at = end
        self.output.collect(Bundle(records))
        self.output.emit_watermark(Watermark(end))
        return PollResult.NOTHING if pauses else PollResult.RECORDS

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        return OperatorSnapshot(source=pickle.dumps(self._at))

    def finish(self) -> None:
        self.output.emit_watermark(Watermark(MAX_WATERMARK_MS))

    def close(self) -> None:
        pass


class Counts(Operator):
    """Counts by key. What it sends it keeps back for a timer, a barrier or the end."""

    def __init__(self, plan: Plan, random: Random) -> None:
        self.inputs = 2 if plan.shape == "two" else 1
        self._fails = lambda: random.random() < plan.troubles
        self._counts: dict[int, int] = {}
        self._back: list[Any] = []
        self._size = plan.size

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if context.restored is not None:
            self._counts = pickle.loads(_only(context.restored.plain))
        context.later(4, self._tick)

    def process(self, bundle: Bundle, number: int) -> None:
        for key, payload in bundle.records:
            assert payload == "x" * self._size, "a record is not as it was sent"
            self._counts[key] = self._counts.get(key, 0) + 1
            self._back.append((key, self._counts[key]))
        if len(self._back) > 3:
            self._send()

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self._send()

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        assert not self._back
        if self._fails():
            raise ValueError("no state today")
        return OperatorSnapshot(plain=pickle.dumps(self._counts))

    def finish(self) -> None:
        self._back.append((-1 - self.context.task.subtask, sum(self._counts.values())))
        self._send()

    def _tick(self) -> None:
        self._send()
        self.context.later(4, self._tick)

    def _send(self) -> None:
        back, self._back = self._back, []
        if back:
            self.output.collect(Bundle(back))


class Commits(Operator):
    """Commits in two phases, to the town."""

    def __init__(self, town: "Town") -> None:
        self._town = town
        self._prepared: dict[tuple[int, int], list[Any]] = {}
        self._current: list[Any] = []
        self._over = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for blob in context.restored.sinks if context.restored is not None else ():
            for transaction, records in pickle.loads(blob).items():
                self._town.commit(transaction, records)

    def process(self, bundle: Bundle, number: int) -> None:
        self._current += bundle.records

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        current, self._current = self._current, []
        if current:
            self._prepared[self._town.runs, moment.checkpoint] = current
        return OperatorSnapshot(sink=pickle.dumps(self._prepared))

    def checkpoint_completed(self, checkpoint: int) -> None:
        for transaction in [prepared for prepared in self._prepared if prepared[1] <= checkpoint]:
            self._town.commit(transaction, self._prepared.pop(transaction))

    def finish(self) -> None:
        self._over = True
        self._current.append(END)

    @property
    def awaits_checkpoint(self) -> bool:
        return self._over and bool(self._current or self._prepared)


def _only(pieces: tuple[bytes | None, ...]) -> bytes:
    (piece,) = pieces
    assert piece is not None
    return piece


@dataclass
class Part:
    """What a task has written for a checkpoint."""

    snapshot: TaskSnapshot
    in_flight: list[ChannelData]


@dataclass
class StoredWriting:
    """One snapshot on its way to the town's storage; chance lets it go on."""

    run: "Run"
    name: str
    snapshot: TaskSnapshot
    done: Callable[[], None]
    in_flight: list[ChannelData] | None = None
    given_up: bool = False
    over: bool = False
    state_bytes: int | None = None

    def complete(self, in_flight: Any, align_ms: float) -> None:
        assert self.in_flight is None and not self.given_up, "a writing is ended once"
        self.in_flight = list(in_flight)

    def abort(self) -> None:
        self.given_up = True

    @property
    def can_go_on(self) -> bool:
        return not self.over and (self.given_up or self.in_flight is not None)

    def go_on(self) -> None:
        self.over = True
        run, checkpoint = self.run, self.snapshot.barrier.checkpoint
        if not self.given_up and run.town.random.random() < run.plan.troubles:
            run.tell(self.name, partial(run.declined, self.name, checkpoint, "disk full", False))
        elif not self.given_up:
            assert self.in_flight is not None
            self.run.town.parts[checkpoint, self.name] = Part(self.snapshot, self.in_flight)
            self.run.tell(self.name, partial(self.run.acked, self.name, self.snapshot))
        self.done()


@dataclass
class Seat:
    """A task and its thread, as far as wakes go."""

    name: str
    worker: int
    loan: StrictLoan = field(default_factory=StrictLoan)
    woken: bool = True
    within: bool = False
    ended: bool = False
    task: Task | None = None

    def wake(self) -> None:
        self.woken = True

    @property
    def can_go_on(self) -> bool:
        return self.woken and not self.ended and not self.within


class Run:
    """One attempt of the job."""

    def __init__(self, town: "Town", restored: StoreCheckpoint | None) -> None:
        self.town = town
        self.plan = town.plan
        segment_bytes = 160 if self.plan.packed else 64  # small ones are not compressed
        self.pair = Pair(
            with_settings(max_event_bytes=128, segment_bytes=segment_bytes),
            segments=60,
            codec=Deflate() if self.plan.packed else None,
        )
        self.up: list[deque[Callable[[], None]]] = [deque(), deque()]
        self.down: list[deque[Callable[[], None]]] = [deque(), deque()]
        self.writings: list[StoredWriting] = []
        self.stores: list[StoreCheckpoint] = []
        self.failed = ""
        self.finished: list[str] = []
        places = {"s0": 0, "s1": 0, "k": self.plan.sink_in}
        places |= dict(zip(COUNTERS, self.plan.counters_in, strict=True))
        self.seats = {name: Seat(name, places[name]) for name in PRODUCERS}
        self.coordinator = CheckpointCoordinator(
            "run", _job(), _settings(self.plan), town.history, self.wall_ms
        )
        for seat in self.seats.values():
            seat.task = self._task(seat, restored)
        self.follow(self.coordinator.started(self.now_ms))

    @property
    def now_ms(self) -> float:
        return self.pair.timers.now_ms

    def wall_ms(self) -> int:
        return self.town.wall_ms + int(self.now_ms)

    # Chance.

    def choices(self) -> list[Callable[[], None]]:
        """All that can happen next, but that time passes."""
        found: list[Callable[[], None]] = []
        found += [partial(self.step, seat) for seat in self.seats.values() if seat.can_go_on]
        found += [partial(_first, line) for line in (*self.up, *self.down) if line]
        found += [writing.go_on for writing in self.writings if writing.can_go_on]
        found += [partial(self._stored, store) for store in self.stores]
        for wire in self.pair.wires:
            for pipe in (wire.up, wire.down):
                found += [partial(self._move, pipe)] * 2
        return found

    def step(self, seat: Seat) -> None:
        assert seat.task is not None
        seat.woken = False
        seat.loan.regain()
        match seat.task.step():
            case StepResult.MORE:
                seat.woken = True
            case StepResult.DONE:
                seat.task.close(None)
                seat.ended = True

    def _move(self, pipe: Any) -> None:
        pipe.take(self.town.random.randint(1, 400))
        pipe.deliver(self.town.random.randint(1, 400))

    def pass_time(self) -> None:
        self.pair.timers.pass_ms(1)
        self.follow(self.coordinator.tick(self.now_ms))

    def wait(self, seat: Seat, ready: Callable[[], bool]) -> None:
        """In the middle of a step: others go on until there is a buffer."""
        seat.within = True
        while not ready():
            self.town.chance(self)
        seat.within = False

    # The control lines.

    def tell(self, name: str, message: Callable[[], None]) -> None:
        """A task manager tells the coordinator, in order."""
        self.up[self.seats[name].worker].append(message)

    def acked(self, name: str, snapshot: TaskSnapshot) -> None:
        state = _state(name, snapshot.finished)
        checkpoint = snapshot.barrier.checkpoint
        self.follow(self.coordinator.acked(checkpoint, state, CheckpointFigures(), self.now_ms))

    def declined(self, name: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        now_ms = self.now_ms
        self.follow(self.coordinator.declined(checkpoint, name, reason, now_ms, subsumed=subsumed))

    def follow(self, effects: list[CheckpointEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(_, CheckpointTriggered() as order):
                    task = self.seats[order.task].task
                    assert task is not None
                    self.down[self.seats[order.task].worker].append(partial(task.obey, order))
                case Send(_, CheckpointCompleted() | CheckpointAborted() as order):
                    if isinstance(order, CheckpointAborted):
                        self.town.aborted.append(order.reason)
                    self._tell_all(order)
                case StoreCheckpoint():
                    self.stores.append(effect)
                case SavepointDone():
                    self.town.savepoints.append(effect)
                case FailRun(reason):
                    self.failed = reason
                case _:
                    pass

    def _tell_all(self, order: CheckpointCompleted | CheckpointAborted) -> None:
        for worker in (0, 1):
            for seat in self.seats.values():
                if seat.worker == worker and seat.task is not None:
                    self.down[worker].append(partial(seat.task.obey, order))

    def _stored(self, store: StoreCheckpoint) -> None:
        self.stores.remove(store)
        self.follow(self.coordinator.stored(store.metadata.checkpoint, self.now_ms))

    # Set up and end.

    def fail(self) -> None:
        """Everything ends where it stands."""
        self.follow(self.coordinator.run_ending("a test wants it", self.now_ms))
        for seat in self.seats.values():
            if not seat.ended:
                assert seat.task is not None
                seat.task.cancel()
                seat.loan.regain()
                seat.task.close(TaskCancelled("the run has failed"))
                seat.ended = True
        for store in list(self.stores):
            self._stored(store)
        self.close()

    def close(self) -> None:
        self.pair.close()

    def _environment(self, seat: Seat) -> Environment:
        return self.pair.consumer if seat.worker else self.pair.producer

    def _task(self, seat: Seat, restored: StoreCheckpoint | None) -> Task:
        name, plan = seat.name, self.plan
        writers = self._writers(seat)
        gates = self._gates(seat)
        parallelism = 1 if name == SINK else 2
        info = TaskInfo("job", name, int(name[1:] or 0), parallelism)
        makers: dict[str, Callable[[], Operator]] = {
            "s": lambda: Numbers(plan),
            "c": lambda: Counts(plan, self.town.random),
            "k": lambda: self.town.make_sink(),
        }
        outputs = tuple(ToNetwork(number) for number in range(len(writers)))
        spec = OperatorSpec(0, name, f"uid {name}", makers[name[0]], outputs)
        chain = Chain(ChainSpec((spec,)), writers, seat.loan)
        timers = self.pair.timers
        clock = Clock(lambda: timers.now_ms, self.wall_ms, timers.later)
        processor: Processor
        if name in SOURCES:
            processor = SourceProcessor(chain, seat.loan, clock, SourceIdling(clock, seat.wake))
        else:
            inputs = self._inputs(seat, gates)
            processor = InputProcessor(chain, inputs, seat.loan, clock)
        return Task(
            name,
            info,
            TaskParts(chain, processor, gates, writers),
            TaskServices(seat.loan, clock, seat.wake),
            self,
            CheckpointPlan(plan.policy, partial(self._start_writing, name)),
            None if restored is None else self._restored(name, restored),
        )

    # What tasks report (``TaskListener``).

    def state_changed(self, task: str, state: Life, error: BaseException | None) -> None:
        if state is Life.FINISHED:
            self.finished.append(task)
            self.tell(task, lambda: self.follow(self.coordinator.task_finished(task, self.now_ms)))

    def time_reported(self, task: str, group: str, watermark_ms: int | None) -> None:
        raise AssertionError("no source is aligned with others")

    def splits_wanted(self, task: str, count: int, held: int) -> None:
        raise AssertionError("the splits of all sources are dealt out")

    def source_time_reported(
        self, task: str, received: int, watermark_ms: int, rests: bool
    ) -> None:
        raise AssertionError("the splits of all sources are dealt out")

    def checkpoint_declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        self.tell(task, partial(self.declined, task, checkpoint, reason, subsumed))

    def checkpoint_wanted(self, task: str) -> None:
        self.tell(task, lambda: self.follow(self.coordinator.checkpoint_wanted(self.now_ms)))

    def _writers(self, seat: Seat) -> tuple[RecordWriter, ...]:
        if seat.name == SINK:
            return ()
        channels = 2 if seat.name in SOURCES else 1
        partition = self._environment(seat).create_partition(
            PartitionId(seat.name),
            PartitionKind.PIPELINED_BOUNDED,
            channels,
            partial(self.wait, seat),
        )
        partition.pool.notify = seat.wake
        timeout_ms = self.town.random.choice((0, -1))
        router = CustomPartitioner(lambda key, channels: key % channels, lambda record: record[0])
        writer = RecordWriter(partition, router, timeout_ms=timeout_ms)
        self.town.writers.append(writer)
        return (writer,)

    def _gates(self, seat: Seat) -> list[Gate]:
        if seat.name in SOURCES:
            return []
        inputs = [
            Input(
                PartitionId(producer),
                0 if seat.name == SINK else int(seat.name[1]),
                Here() if self.seats[producer].worker == seat.worker else RemoteProducer(ADDRESS),
            )
            for producer in PRODUCERS[seat.name]
        ]
        each = [inputs] if seat.name == SINK or self.plan.shape == "one" else [[i] for i in inputs]
        environment = self._environment(seat)
        return [environment.create_gate(seat.name, inputs) for inputs in each]

    def _inputs(self, seat: Seat, gates: list[Gate]) -> list[NetworkInput]:
        environment = self._environment(seat)
        read: list[InputGate] = list(gates)
        if self.plan.shape == "union" and len(gates) > 1:
            read = [UnionGate(list(gates))]
        inputs = []
        for number, gate in enumerate(read):
            gate.notify = seat.wake
            deserializers = environment.create_deserializers(gate)
            inputs.append(NetworkInput(number, gate, deserializers))
        return inputs

    def _start_writing(self, name: str, snapshot: TaskSnapshot, done: Any) -> StoredWriting:
        writing = StoredWriting(self, name, snapshot, done)
        self.writings.append(writing)
        return writing

    def _restored(self, name: str, store: StoreCheckpoint) -> TaskRestored:
        metadata = store.metadata
        finished = {state.task: state.finished for state in metadata.tasks}[name]
        part = self.town.parts.get((metadata.checkpoint, name))
        if part is None:
            assert finished, f"{name} had not finished, and has left nothing"
            return TaskRestored(finished=True)
        taken = part.snapshot.operators[0].taken
        operator = OperatorRestored(
            metadata.checkpoint,
            plain=(taken.plain,),
            source=(taken.source,),
            sinks=() if taken.sink is None else (taken.sink,),
        )
        channels = [
            (data.is_input, (data.index, data.channel, data.parts)) for data in part.in_flight
        ]
        return TaskRestored(
            {f"uid {name}": operator},
            inputs=[place for is_input, place in channels if is_input],
            outputs=[place for is_input, place in channels if not is_input],
            finished=finished,
        )


class Town:
    """The world of a job: what is stored and committed, over all runs."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.random = Random(seed)
        self.history = CheckpointHistory()
        self.parts: dict[tuple[int, str], Part] = {}
        self.committed: dict[tuple[int, int], list[Any]] = {}
        self.savepoints: list[SavepointDone] = []
        self.aborted: list[str] = []
        self.writers: list[RecordWriter] = []
        self.wall_ms = WALL_MS
        self.runs = self.restored = 0
        self.run: Run | None = None
        self.make_sink: Callable[[], Operator] = lambda: Commits(self)

    @property
    def output(self) -> list[Any]:
        return sorted(record for records in self.committed.values() for record in records)

    @property
    def in_flight(self) -> int:
        """Pieces of channels that any checkpoint holds."""
        return sum(len(part.in_flight) for part in self.parts.values())

    def commit(self, transaction: tuple[int, int], records: list[Any]) -> None:
        known = self.committed.setdefault(transaction, records)
        assert known == records, "a transaction is committed again, with other records"

    def start(self) -> Run:
        """A new run, from the newest complete checkpoint."""
        self.runs += 1
        self.restored += self.history.latest is not None
        self.run = Run(self, self.history.latest)
        return self.run

    def chance(self, run: Run) -> None:
        """One thing happens."""
        choices = run.choices()
        if choices and self.random.random() > 0.1:
            self.random.choice(choices)()
        else:
            run.pass_time()

    def live(self, run: Run, happenings: int) -> bool:
        """Let so many things happen; says whether the job came to its end."""
        for _ in range(happenings):
            if run.failed:
                break
            if all(seat.ended for seat in run.seats.values()):
                run.close()
                self.wall_ms += int(run.now_ms)
                return True
            self.chance(run)
        self.wall_ms += int(run.now_ms)
        run.fail()
        return False


def _first(line: deque[Callable[[], None]]) -> None:
    line.popleft()()


def _state(name: str, finished: bool) -> SubtaskState:
    vertex, subtask = "sck".index(name[0]), int(name[1:] or 0)
    operators = (OperatorState(f"uid {name}", name),)
    parallelism = 1 if name == SINK else 2
    return SubtaskState(name, vertex, subtask, parallelism, 128, operators, finished=finished)


def _job() -> CheckpointedJob:
    members = [
        CheckpointedTask(_state(name, True), 0, before) for name, before in PRODUCERS.items()
    ]
    return CheckpointedJob("job", "counts", tuple(members))


def _settings(plan: Plan) -> CheckpointSettings:
    mode = Consistency.EXACTLY_ONCE if plan.exactly_once else Consistency.AT_LEAST_ONCE
    return CheckpointSettings(
        interval_ms=plan.interval_ms,
        mode=mode,
        max_concurrent=plan.concurrent,
        tolerable_failures=1000,
        unaligned=plan.timeout_ms is not None,
        aligned_timeout_ms=plan.timeout_ms or 0,
    )


def stop(run: Run, how: Stop) -> None:
    """Somebody wants the job to end with a savepoint."""
    run.follow(run.coordinator.savepoint_wanted("there", how, run.now_ms))
