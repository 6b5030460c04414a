"""Barriers that overtake in the outputs: in a queue, behind a writer, on a wire without credit."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import CheckpointKind
from headgate.base.elements import Bundle, PickleSerializer
from headgate.base.events import (
    CancelMarker,
    CheckpointBarrier,
    Event,
    decode_event,
    encode_event,
)
from headgate.core.buffers.buffer import Buffer, BufferConsumer, begun_bytes
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.outputs import OutputBarriers, Overtake, Sent
from headgate.core.egress.partition import (
    Partition,
    PipelinedSubpartition,
    event_of,
    overtake,
    restored_consumers,
)
from headgate.core.egress.router import Forward
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from tests.arena import assert_all_home, plain_pool
from tests.core.egress.kit import make_partition
from tests.core.pair import Pair, read_all, remote, with_settings, write

PICKLE = PickleSerializer()


def overtaking(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint, 0, unaligned=True)


def event(event: Event) -> BufferConsumer:
    return BufferConsumer.of(Buffer(encode_event(event), is_event=True))


def data(*parts: bytes) -> list[BufferConsumer]:
    return [BufferConsumer.of(Buffer(part)) for part in parts]


def shown(queue: deque[BufferConsumer]) -> list[object]:
    return [
        event_of(consumer) or (consumer.ready and bytes(consumer.ready.view)) for consumer in queue
    ]


# In a queue.


def test_barrier_goes_before_all_data_and_tells_what_it_has_overtaken() -> None:
    queue = deque(data(b"a", b"b"))
    assert overtake(queue, overtaking(1), PICKLE) == [b"a", b"b"]
    assert shown(queue) == [overtaking(1), b"a", b"b"]


def test_barrier_that_waits_is_moved_and_leaves_behind_what_follows_it() -> None:
    aligned = event(CheckpointBarrier(1, 0))
    queue = deque([*data(b"a"), aligned, *data(b"b")])
    assert overtake(queue, overtaking(1), PICKLE) == [b"a"]
    assert shown(queue) == [overtaking(1), b"a", b"b"]


def test_barriers_that_have_overtaken_keep_their_order() -> None:
    queue = deque(data(b"a"))
    overtake(queue, overtaking(1), PICKLE)
    queue.extend(data(b"b"))
    assert overtake(queue, overtaking(2), PICKLE) == [b"a", b"b"]
    assert shown(queue) == [overtaking(1), overtaking(2), b"a", b"b"]


def test_other_events_are_overtaken_and_not_kept() -> None:
    queue = deque([event(CancelMarker(1)), *data(b"a"), event(CheckpointBarrier(1, 0))])
    assert overtake(queue, overtaking(2), PICKLE) == [b"a"]
    assert shown(queue) == [overtaking(2), CancelMarker(1), b"a", CheckpointBarrier(1, 0)]


# In a partition that is written and read.


def subpartition_of(partition: Partition) -> PipelinedSubpartition:
    (subpartition,) = partition.subpartitions
    assert isinstance(subpartition, PipelinedSubpartition)
    return subpartition


def overtake_in(partition: Partition, barrier: CheckpointBarrier) -> list[bytes]:
    subpartition = subpartition_of(partition)
    overtaken = overtake(subpartition._queue, barrier, PICKLE)
    subpartition._tell_reader()
    return overtaken


class Reader:
    """Reads records up to where it is; an event may stand in the middle of an element."""

    def __init__(self, partition: Partition) -> None:
        self.records: list[bytes] = []
        self.events: list[Event] = []
        self.view = partition.create_view(0, lambda: None)
        self.deserializer = Deserializer(PICKLE)

    def step(self) -> bool:
        polled = self.view.poll()
        if polled is None:
            return False
        if polled.buffer.is_event:
            self.events.append(decode_event(polled.buffer.view))
        else:
            self.feed(polled.buffer)
        return True

    def feed(self, buffer: Buffer) -> None:
        self.deserializer.feed(buffer)
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = self.deserializer.next()
            if isinstance(element, Bundle):
                self.records += element.records

    def begun(self) -> bytes:
        deserializer = self.deserializer
        return begun_bytes(deserializer._length, deserializer._gathered, deserializer._missing)


def read_again(parts: list[bytes]) -> list[bytes]:
    """What comes out of a subpartition that begins with these."""
    shelf = plain_pool(4)
    partition = make_partition(shelf)
    for consumer in restored_consumers(parts, 64):
        partition.add(consumer, 0)
    reader = Reader(partition)
    while reader.step():
        pass
    assert reader.deserializer.is_between_elements
    reader.view.release()
    assert_all_home(shelf)
    return reader.records


def test_barrier_overtakes_records_that_were_emitted_and_not_yet_written() -> None:
    shelf = plain_pool(4)
    partition = make_partition(shelf)
    writer = RecordWriter(partition, Forward())
    writer.emit(b"staged")
    assert subpartition_of(partition).queued == 0
    overtaken = writer.overtake(overtaking(1))
    writer.emit(b"later")
    assert read_again(overtaken[0]) == [b"staged"]
    writer.finish()
    partition.release()
    assert_all_home(shelf)


RECORDS = st.lists(st.binary(max_size=150), max_size=5)


@given(before=RECORDS, after=RECORDS, steps=st.integers(0, 12), waits=st.booleans())
def test_what_was_read_and_what_was_overtaken_is_what_was_sent_before_the_barrier(
    before: list[bytes], after: list[bytes], steps: int, waits: bool
) -> None:
    """With ``waits`` the barrier has stood behind the data first, and other data behind it."""
    shelf = plain_pool(60)
    partition = make_partition(shelf)
    writer = RecordWriter(partition, Forward(), timeout_ms=0)
    reader = Reader(partition)
    for record in before:
        writer.emit(record)
    if waits:
        writer.broadcast_event(CheckpointBarrier(1, 0))
        for record in after:
            writer.emit(record)
    for _ in range(steps):
        reader.step()
    overtaken = [] if reader.events else overtake_in(partition, overtaking(1))
    if not waits:
        for record in after:
            writer.emit(record)
    if not reader.events:
        state = list(reader.records)
        assert reader.step() and reader.events == [overtaking(1)], "the barrier comes first"
        assert state + read_again([reader.begun(), *overtaken]) == before
    writer.finish()
    while reader.step():
        pass
    assert reader.records == before + after, "the consumer goes on as if nothing had overtaken"
    reader.view.release()
    assert_all_home(shelf)


def test_barrier_in_front_needs_no_credit_and_gets_the_next_sequence_number() -> None:
    with Pair(with_settings(floating_per_gate=1)) as pair:
        partition, gate = pair.open()
        for number in range(6):
            write(partition, b"%d" % number)
            pair.settle()
        assert remote(gate).statistics().queued == 3, "the rest waits at the sender"
        assert pair.wire.producer.session.readers[remote(gate).id].credit == 0
        assert overtake_in(partition, overtaking(1)) == [b"3", b"4", b"5"]
        pair.settle()
        assert remote(gate).statistics().queued == 4, "the barrier has come without credit"
        got: list[object] = []
        while more := read_all(gate):
            got += [content for _, content in more]
            pair.settle()
        assert got == [b"0", b"1", b"2", overtaking(1), b"3", b"4", b"5"]


def test_restored_buffers_are_no_longer_than_a_segment() -> None:
    sizes = [
        consumer.ready.size
        for consumer in restored_consumers([b"x" * 100, b"y" * 60], 64)
        if consumer.ready
    ]
    assert sizes == [64, 64, 32]
    assert list(restored_consumers([], 64)) == []


# In time.

PATIENT = BarrierPolicy(timeout_ms=100)
BARRIER = CheckpointBarrier(1, 1_000)


def test_checkpoint_is_sent_when_its_barrier_has_left_every_subpartition() -> None:
    outputs = OutputBarriers(PATIENT)
    assert outputs.added(BARRIER, [0, 1], 1_010) == []
    assert outputs.left(1, 1) == []
    assert outputs.left(1, 1) == []
    assert outputs.left(0, 1) == [Sent(1)]
    assert outputs.left(0, 1) == []
    assert outputs.next_deadline_ms is None


def test_barriers_that_wait_too_long_overtake() -> None:
    outputs = OutputBarriers(PATIENT)
    outputs.added(BARRIER, [0, 1, 2], 1_010)
    outputs.left(1, 1)
    assert outputs.next_deadline_ms == 1_100
    assert outputs.tick(1_099) == []
    late = CheckpointBarrier(1, 1_000, unaligned=True)
    assert outputs.tick(1_100) == [Overtake(late, (0, 2)), Sent(1)]
    assert outputs.left(0, 1) == []
    assert outputs.tick(1_200) == []


def test_nobody_waits_for_barriers_that_never_overtake() -> None:
    assert OutputBarriers(BarrierPolicy()).added(BARRIER, [0], 1_010) == [Sent(1)]
    savepoint = CheckpointBarrier(1, 1_000, kind=CheckpointKind.SAVEPOINT)
    assert OutputBarriers(PATIENT).added(savepoint, [0], 9_999) == [Sent(1)]


def test_barrier_whose_time_is_over_when_it_is_added_overtakes_at_once() -> None:
    late = CheckpointBarrier(1, 1_000, unaligned=True)
    assert OutputBarriers(PATIENT).added(BARRIER, [0], 1_100) == [Overtake(late, (0,)), Sent(1)]


def test_task_without_consumers_has_sent_at_once() -> None:
    assert OutputBarriers(PATIENT).added(BARRIER, [], 1_010) == [Sent(1)]


def test_readers_that_have_gone_hold_nothing_up() -> None:
    outputs = OutputBarriers(PATIENT)
    outputs.added(BARRIER, [0, 1], 1_010)
    outputs.added(CheckpointBarrier(2, 1_010), [0, 1], 1_020)
    assert outputs.reader_gone(0) == []
    assert outputs.reader_gone(1) == [Sent(1), Sent(2)]


def test_what_was_given_up_is_neither_sent_nor_overtakes() -> None:
    outputs = OutputBarriers(PATIENT)
    outputs.added(BARRIER, [0], 1_010)
    outputs.given_up(1)
    outputs.given_up(1)
    assert outputs.tick(9_999) == []
    assert outputs.left(0, 1) == []


def test_task_that_ends_does_not_wait_for_its_barriers() -> None:
    outputs = OutputBarriers(PATIENT)
    outputs.added(BARRIER, [0, 1], 1_010)
    outputs.left(0, 1)
    late = CheckpointBarrier(1, 1_000, unaligned=True)
    assert outputs.ended() == [Overtake(late, (1,)), Sent(1)]
    assert outputs.ended() == []
