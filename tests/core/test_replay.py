"""The exchange under checkpoints and failures: real writers, wires, gates and inputs.

Producers of both kinds, here and elsewhere, write numbered records to one reader through a union of
gates. Barriers block and overtake, the whole breaks down at any moment, and a new run begins with
what the newest complete checkpoint holds: state of the reader, positions of the producers, bytes on
their way at both ends. Law: in the end every record was counted once, in the order of its channel.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

import pytest

from headgate.base.elements import Bundle
from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer
from headgate.core.checkpoint.alignment import (
    AlignmentComplete,
    BarrierHandler,
    BarrierPolicy,
    Block,
    ChannelDone,
    DeclineCheckpoint,
    Effects,
    Persist,
    TakeSnapshot,
    UnblockChannels,
)
from headgate.core.checkpoint.inputs import InFlightRecorder
from headgate.core.checkpoint.outputs import Effect, OutputBarriers, Overtake, Sent
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import Broadcast, Forward
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import UnionGate
from headgate.core.task.environment import Here, Input, RemoteProducer
from headgate.core.task.inputs import ENDED, NetworkInput
from tests.core.exchange.kit import Deflate
from tests.core.ingress.kit import CountingSpillRoom
from tests.core.pair import ADDRESS, Pair, remote, with_settings

CHANNELS = 4
RECORDS = 40
STEPS = 900
SIZES = [0, 0, 5, 30, 100, 250]
"""Of what a record carries: a segment has 64 bytes, and 120 are gathered on disk."""


@dataclass
class Cut:
    """A checkpoint: what a new run begins with."""

    number: int = 0
    read: list[list[int]] = field(default_factory=lambda: [[] for _ in range(CHANNELS)])
    sent: list[int] = field(default_factory=lambda: [0] * CHANNELS)
    at_input: dict[int, list[bytes]] = field(default_factory=dict)
    at_output: dict[int, list[bytes]] = field(default_factory=dict)


class Producer:
    """Writes the records of one channel, from a position on."""

    def __init__(self, run: "Run", channel: int, local: bool, r: Random) -> None:
        environment = run.pair.consumer if local else run.pair.producer
        self.run, self.channel, self.sent = run, channel, run.cut.sent[channel]
        partition = environment.create_partition(
            PartitionId(f"p{channel}"), PartitionKind.PIPELINED_BOUNDED, 1
        )
        router = Broadcast() if r.random() < 0.3 else Forward()
        self.writer = RecordWriter(partition, router, timeout_ms=r.choice([-1, 0]))
        self.writer.hands_over = r.random() < 0.5
        self.writer.restore(0, run.cut.at_output.get(channel, []))
        self.barriers = OutputBarriers(run.policy)
        partition.on_barrier_left = lambda index, barrier: self.carry_out(
            self.barriers.left(index, barrier.checkpoint)
        )
        partition.on_reader_gone = lambda index: self.carry_out(self.barriers.reader_gone(index))
        self.finished = False
        self.trigger: CheckpointBarrier | None = None
        self.sent_before: dict[int, int] = {}
        self.overtaken: dict[int, list[bytes]] = {}
        self.through: set[int] = set()

    def step(self, r: Random) -> None:
        if self.finished or not self.writer.available():
            return
        if self.sent == RECORDS:
            self.finish()
            return
        count = min(RECORDS - self.sent, r.choice([1, 1, 3]))
        records = [
            (number, b"x" * r.choice(SIZES)) for number in range(self.sent, self.sent + count)
        ]
        self.writer.emit_all(records)
        self.writer.seal()
        self.sent += count

    def take(self) -> None:
        barrier, self.trigger = self.trigger, None
        if barrier is None or self.finished:
            return
        self.sent_before[barrier.checkpoint] = self.sent
        if self.run.policy.overtakes_at_ms(barrier, self.run.now_ms) == float("-inf"):
            late = CheckpointBarrier(barrier.checkpoint, barrier.timestamp_ms, unaligned=True)
            self.carry_out([Overtake(late, (0,)), Sent(barrier.checkpoint)])
        else:
            self.writer.send_barrier(barrier)
            self.carry_out(self.barriers.added(barrier, [0], self.run.now_ms))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Overtake(barrier, subpartitions):
                    overtaken = self.writer.overtake(barrier, subpartitions)
                    self.overtaken[barrier.checkpoint] = overtaken[0]
                case Sent(checkpoint):
                    self.through.add(checkpoint)

    def finish(self) -> None:
        self.finished = True
        self.carry_out(self.barriers.ended())
        self.writer.finish()


class Run:
    """One attempt, from a checkpoint to its end or its breakdown."""

    def __init__(self, policy: BarrierPolicy, cut: Cut, r: Random, seen: Counter[str]) -> None:
        self.policy, self.cut, self.random, self.seen = policy, cut, r, seen
        settings = with_settings(
            overdraft_buffers=20,
            buffers_per_channel=r.choice([0, 1, 2]),
            floating_per_gate=r.choice([1, 4]),
        )
        self.pair = Pair(settings, segments=150, codec=Deflate() if r.random() < 0.3 else None)
        self.speed = r.choice([0.5, 4])  # of the reader
        self.now_ms = 0.0
        self.checkpoint = cut.number
        self.active = False
        self.ended = False
        self.producers = [
            Producer(self, channel, channel % 2 == 1, r) for channel in range(CHANNELS)
        ]
        self.room = CountingSpillRoom()
        self.input = self._open_input()
        self.handler = BarrierHandler(CHANNELS, policy)
        serializers = [self.input.serializer_of(channel) for channel in range(CHANNELS)]
        self.in_flight = InFlightRecorder(serializers, self.input.gate.expand)
        self.mail: deque[tuple[int, CheckpointBarrier]] = deque()
        self.blocked: set[int] = set()
        self.read = [list(read) for read in cut.read]
        self.taken: dict[int, list[list[int]]] = {}
        self.completed: dict[int, dict[int, list[bytes]]] = {}

    def _open_input(self) -> NetworkInput:
        places = [Here() if channel % 2 else RemoteProducer(ADDRESS) for channel in range(CHANNELS)]
        inputs = [Input(PartitionId(f"p{n}"), 0, place) for n, place in enumerate(places)]
        create = self.pair.consumer.create_gate
        self.gates = [create("left", inputs[:2]), create("right", inputs[2:])]
        union = UnionGate(list(self.gates))
        deserializers = [Deserializer(None, self.room, 120) for _ in range(CHANNELS)]
        made = NetworkInput(0, union, deserializers)
        for channel, parts in self.cut.at_input.items():
            made.restore(channel, parts)
        made.on_barrier = self.barrier_read
        made.on_channel_ended = self.channel_ended
        union.on_announced = lambda channel, barrier: self.mail.append((channel, barrier))
        for gate in self.gates:
            gate.request_partitions()
        return made

    # The reader.

    def step(self) -> None:
        if self.ended:
            return
        taken = self.input.take(self.random.choice([1, 2, 100]))
        if isinstance(taken, Bundle):
            channel = self.input._channel
            assert channel not in self.blocked
            self.read[channel] += [number for number, _ in taken.records]
        self.ended = taken is ENDED

    def barrier_read(self, channel: int, event: CheckpointBarrier | CancelMarker) -> None:
        assert isinstance(event, CheckpointBarrier) and channel not in self.blocked
        self.carry_out(self.handler.barrier_received(channel, event, self.now_ms))

    def channel_ended(self, channel: int) -> None:
        self.carry_out(self.handler.channel_ended(channel, self.now_ms))

    def read_mail(self) -> None:
        if self.mail and not self.ended:
            channel, barrier = self.mail.popleft()
            self.carry_out(self.handler.barrier_announced(channel, barrier, self.now_ms))

    def buffer_arrived(self, channel: int, buffer: Buffer) -> None:
        assert self.in_flight.arrived(channel, buffer) == []

    def carry_out(self, effects: Effects) -> None:
        gate = self.input.gate
        for effect in effects:
            match effect:
                case Block(channel):
                    self.blocked.add(channel)
                    gate.block(channel)
                    self.seen["blocked"] += 1
                case UnblockChannels(channels):
                    for channel in channels:
                        self.blocked.discard(channel)
                        gate.unblock(channel)
                case TakeSnapshot(barrier):
                    self.taken[barrier.checkpoint] = [list(read) for read in self.read]
                    if barrier.unaligned:
                        self.seen["overtook"] += 1
                        self.keep_begun(barrier.checkpoint, effects)
                case Persist(checkpoint, channels):
                    for channel in channels:
                        unread, queued = self.input.unread(channel), gate.queued(channel)
                        assert self.in_flight.started(checkpoint, channel, unread, queued)
                        self.seen["unread"] += bool(unread)
                        self.seen["restored and unread"] += self.input._restored.waits
                case ChannelDone(checkpoint, channel):
                    self.in_flight.channel_done(checkpoint, channel)
                case AlignmentComplete(checkpoint, _):
                    self.completed[checkpoint] = self.in_flight.completed(checkpoint)
                case DeclineCheckpoint(checkpoint):
                    self.in_flight.dropped(checkpoint)
        gate.on_arrived = self.buffer_arrived if any(self.in_flight.recording) else None

    def keep_begun(self, checkpoint: int, effects: Effects) -> None:
        """A barrier that was read may stand in the middle of an element: its beginning is here."""
        persisted = [effect.channels for effect in effects if isinstance(effect, Persist)]
        for channel in set(range(CHANNELS)).difference(*persisted):
            unread = self.input.unread(channel)
            if unread:
                assert self.in_flight.started(checkpoint, channel, unread, ())
                self.in_flight.channel_done(checkpoint, channel)
                self.seen["begun"] += 1

    # The world around.

    def act(self) -> None:
        r = self.random
        producer = r.choice(self.producers)
        match r.choices(range(7), [5, self.speed, 3, 3, 3, 1, 0.05])[0]:
            case 0:
                producer.step(r)
            case 1:
                self.step()
            case 2:
                self.move()
            case 3:
                self.read_mail()
            case 4:
                producer.take()
            case 5:
                self.pass_ms(5)
                if not self.active:
                    self.begin()
            case 6 if self.active:
                self.give_up()
        self.look_for_completion()

    def move(self) -> None:
        for wire in self.pair.wires:
            pipe = self.random.choice([wire.up, wire.down])
            pipe.take(self.random.choice([50, 5_000]))
            pipe.deliver(self.random.choice([50, 5_000]))

    def pass_ms(self, pause_ms: float) -> None:
        self.now_ms += pause_ms
        self.carry_out(self.handler.tick(self.now_ms))
        for producer in self.producers:
            producer.carry_out(producer.barriers.tick(self.now_ms))

    def begin(self) -> None:
        if all(producer.finished for producer in self.producers):
            return
        self.checkpoint += 1
        self.active = True
        for producer in self.producers:
            producer.trigger = CheckpointBarrier(self.checkpoint, int(self.now_ms))

    def give_up(self) -> None:
        self.active = False
        self.carry_out(self.handler.given_up(self.checkpoint, "too slow"))
        for producer in self.producers:
            producer.trigger = None
            producer.barriers.given_up(self.checkpoint)

    def look_for_completion(self) -> None:
        n = self.checkpoint
        if not self.active or n not in self.completed:
            return
        for producer in self.producers:
            if n not in producer.through and (n in producer.sent_before or not producer.finished):
                return
        self.active = False
        self.seen["complete"] += 1
        self.cut = Cut(
            n,
            self.taken[n],
            [producer.sent_before.get(n, producer.sent) for producer in self.producers],
            self.completed[n],
            {producer.channel: producer.overtaken.get(n, []) for producer in self.producers},
        )
        self.seen["kept at the input"] += bool(self.cut.at_input)
        self.seen["kept at the output"] += any(self.cut.at_output.values())

    def check(self) -> None:
        self.handler.check()
        self.in_flight.check()
        for gate in self.gates:
            gate.check()
            remote(gate).check()
        self.pair.producer.pool.check()
        self.pair.consumer.pool.check()

    def drain(self) -> None:
        for _ in range(4_000):
            if self.ended:
                return
            self.pair.settle()
            for producer in self.producers:
                producer.take()
                producer.step(self.random)
            self.pass_ms(1)
            while self.mail:
                self.read_mail()
            self.step()
        raise AssertionError("somebody is blocked for ever")

    def close(self) -> None:
        self.input.close()
        for producer in self.producers:
            producer.writer.close()
            producer.writer.partition.release()
        self.pair.close()
        assert self.room.open_files == 0


def play(policy: BarrierPolicy, seed: int, seen: Counter[str]) -> None:
    r = Random(seed)
    run = Run(policy, Cut(), r, seen)
    for step in range(STEPS):
        if r.random() < 0.004:
            run.close()
            seen["again"] += 1
            seen["again from a checkpoint"] += run.cut.number > 0
            run = Run(policy, run.cut, r, seen)
        run.act()
        if step % 8 == 0:
            run.check()
    run.drain()
    run.check()
    run.close()
    for read in run.read:
        if policy.exactly_once:
            assert read == list(range(RECORDS))
        else:
            assert set(read) == set(range(RECORDS))


@pytest.mark.parametrize(
    ("policy", "overtakes"),
    [
        (BarrierPolicy(), False),
        (BarrierPolicy(exactly_once=False), False),
        (BarrierPolicy(timeout_ms=0), True),
        (BarrierPolicy(timeout_ms=15), True),
    ],
    ids=["aligned", "at least once", "unaligned", "aligned, then unaligned"],
)
def test_nothing_is_lost_and_nothing_comes_twice(policy: BarrierPolicy, overtakes: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(25):
        play(policy, seed, seen)
    assert seen["complete"] > 15, seen
    assert seen["again from a checkpoint"] > 15, seen
    assert bool(seen["blocked"]) == (policy.exactly_once and policy.timeout_ms != 0), seen
    kinds = ("overtook", "begun", "unread", "kept at the input", "kept at the output")
    assert all((seen[kind] > 5) == overtakes for kind in kinds), seen
    assert (seen["restored and unread"] > 5) == overtakes, seen
