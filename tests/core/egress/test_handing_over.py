"""Records by reference: a writer, its partition and readers in the same process, as one path.

Bytes, bundles, events and flushes mix in one queue. Law: a reader gets what was emitted for it, in
order, and is told of it; one buffer for each channel and one more are enough to go on for ever.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.elements import Bundle, Watermark
from headgate.base.events import CheckpointBarrier
from headgate.base.ids import PartitionId
from headgate.core.egress.partition import PartitionKind, PipelinedSubpartition
from headgate.core.egress.router import Broadcast, CustomPartitioner, Router
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.environment import Here, Input
from headgate.core.task.inputs import ENDED, NOTHING, NetworkInput, TimeAdvanced
from tests.core.pair import SMALL
from tests.core.task.kit import Lab

NAME = PartitionId("out")


class Reader:
    """One channel's consumer; it looks only when it has been told, or had more."""

    def __init__(self, lab: Lab, channel: int) -> None:
        self.gate: Gate = lab.environment.create_gate("gate", [Input(NAME, channel, Here())])
        self.gate.notify = self._notified
        self.input = NetworkInput(0, self.gate, lab.environment.create_deserializers(self.gate))
        self.input.on_barrier = lambda channel, event: self.got.append(event)
        self.got: list[Any] = []
        self.came = False
        self.awake = False

    def come(self) -> None:
        self.came = True
        self.gate.request_partitions()

    def read(self, most: int = 1_000_000) -> None:
        """Read until there is nothing, or so much."""
        while self.awake and most and not self.input.ended:
            most -= 1
            self.awake = False
            taken = self.input.take(3)
            match taken:
                case Bundle(records, times):
                    self.got += zip(records, times or [None] * len(records), strict=True)
                case TimeAdvanced(outcome):
                    self.got += outcome
            self.awake = self.awake or (taken is not NOTHING and taken is not ENDED)

    def _notified(self) -> None:
        self.awake = True


class Path:
    """A writer with so many channels and as little memory as it may have."""

    def __init__(self, channels: int, spare: int, overdraft: int, timeout_ms: int) -> None:
        settings = replace(SMALL, overdraft_buffers=overdraft)
        self.lab = Lab(channels + 1 + spare, settings)
        self.sent: list[list[Any]] = [[] for _ in range(channels)]
        partition = self.lab.environment.create_partition(
            NAME, PartitionKind.PIPELINED_BOUNDED, channels, self._wait
        )
        self.writer = RecordWriter(partition, self.router(), timeout_ms=timeout_ms)
        self.writer.hands_over = True
        self.readers = [Reader(self.lab, channel) for channel in range(channels)]
        self.number = 0
        self.waits = 0

    def router(self) -> Router:
        return CustomPartitioner(lambda key, channels: key % channels, lambda record: record[0])

    def emit(self, keys: list[int], size: int, timed: bool) -> None:
        records: list[Any] = []
        times: list[int | None] = []
        for key in keys:
            self.number += 1
            records.append((key, self.number, "x" * size))
            times.append(self.number if timed else None)
            self.sent[key % len(self.sent)].append((records[-1], times[-1]))
        self.writer.emit_all(records, times if timed else None)

    def tell(self, element: Watermark | CheckpointBarrier) -> None:
        for lane in self.sent:
            lane.append(element)
        if isinstance(element, Watermark):
            self.writer.emit_element(element)
        else:
            self.writer.broadcast_event(element)

    def subpartitions(self) -> list[PipelinedSubpartition]:
        found = self.writer.partition.subpartitions
        return [
            subpartition
            for subpartition in found
            if isinstance(subpartition, PipelinedSubpartition)
        ]

    def end(self) -> None:
        self.writer.finish()
        for reader in self.readers:
            if not reader.came:
                reader.come()
            reader.read()
            assert reader.input.ended
        assert [reader.got for reader in self.readers] == self.sent
        for reader in self.readers:
            reader.input.close()
        self.writer.close()
        with self.lab:
            pass

    def _wait(self, ready: Callable[[], bool]) -> None:
        """No buffer: whoever has been told reads one element, and that must help in the end."""
        self.waits += 1
        while not ready():
            for reader in self.readers:
                if not reader.came:
                    reader.come()
            awake = [reader for reader in self.readers if reader.awake]
            assert awake, "no buffer is free, and no reader knows of one"
            awake[0].read(1)


class HandOverTwin(RuleBasedStateMachine):
    """Any mix of what a task and its consumers do."""

    @initialize(
        channels=st.integers(1, 3),
        spare=st.integers(0, 4),
        overdraft=st.integers(0, 2),
        timeout_ms=st.sampled_from((-1, 0)),
    )
    def begin(self, channels: int, spare: int, overdraft: int, timeout_ms: int) -> None:
        self.path = Path(channels, spare, overdraft, timeout_ms)

    @rule(
        keys=st.lists(st.integers(0, 2), min_size=1, max_size=12),
        size=st.sampled_from((0, 5, 90, 400)),
        timed=st.booleans(),
        sealed=st.booleans(),
    )
    def records_are_emitted(self, keys: list[int], size: int, timed: bool, sealed: bool) -> None:
        self.path.emit(keys, size, timed)
        if sealed:
            self.path.writer.seal()

    @rule()
    def a_watermark_is_emitted(self) -> None:
        self.path.number += 1
        self.path.tell(Watermark(self.path.number))

    @rule()
    def a_barrier_is_sent(self) -> None:
        self.path.number += 1
        self.path.tell(CheckpointBarrier(self.path.number, 0))

    @rule()
    def a_flush_comes(self) -> None:
        self.path.writer.flush_all()

    @precondition(lambda self: any(not reader.came for reader in self.path.readers))
    @rule(data=st.data())
    def a_reader_comes(self, data: st.DataObject) -> None:
        late = [reader for reader in self.path.readers if not reader.came]
        data.draw(st.sampled_from(late)).come()

    @precondition(lambda self: any(reader.awake for reader in self.path.readers))
    @rule(data=st.data(), most=st.integers(1, 9))
    def a_reader_reads(self, data: st.DataObject, most: int) -> None:
        awake = [reader for reader in self.path.readers if reader.awake]
        data.draw(st.sampled_from(awake)).read(most)

    @invariant()
    def what_was_read_is_what_was_sent(self) -> None:
        for reader, sent in zip(self.path.readers, self.path.sent, strict=True):
            assert sent[: len(reader.got)] == reader.got

    @invariant()
    def the_machines_keep_their_laws(self) -> None:
        self.path.lab.environment.pool.check()
        for subpartition, reader in zip(self.path.subpartitions(), self.path.readers, strict=True):
            subpartition.check()
            reader.gate.check()

    @invariant()
    def no_reader_sleeps_over_records(self) -> None:
        for subpartition, reader in zip(self.path.subpartitions(), self.path.readers, strict=True):
            queue = list(subpartition._queue)
            is_told = subpartition.flush_requested or len(queue) > 1
            is_told = is_told or any(consumer.ready is not None for consumer in queue)
            assert reader.awake or not reader.came or not is_told

    def teardown(self) -> None:
        self.path.end()


TestHandOverTwin = HandOverTwin.TestCase


def test_records_are_handed_over_once_their_reader_is_here() -> None:
    path = Path(1, 4, 0, -1)
    record = [0, "mine"]
    path.writer.emit_all([record])
    path.writer.seal()
    path.readers[0].come()
    path.writer.emit_all([record])
    path.writer.seal()
    path.readers[0].read()
    (first, _), (second, _) = path.readers[0].got
    assert first == second == record
    assert first is not record and second is record
    path.sent[0] = path.readers[0].got
    path.end()


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_one_buffer_for_each_channel_and_one_more_are_enough(channels: int) -> None:
    path = Path(channels, 0, 0, -1)
    for number in range(60):
        path.emit([0, 1, 2], 400 if number % 3 else 0, timed=number % 2 == 0)
        path.writer.seal()
        if number % 5 == 0:
            path.tell(Watermark(path.number))
    assert path.waits
    path.end()


def test_nothing_is_handed_over_that_others_keep_too() -> None:
    """By a broadcast, or by a writer that nobody has told that its records are free."""

    class Broadcasting(Path):
        def router(self) -> Router:
            return Broadcast()

    for make, is_free in ((Broadcasting, True), (Path, False)):
        path = make(1, 4, 0, -1)
        path.writer.hands_over = is_free
        path.readers[0].come()
        record = [0, "shared"]
        path.writer.emit_all([record])
        path.writer.flush_all()
        path.writer.seal()
        path.writer.flush_all()
        path.readers[0].read()
        assert path.readers[0].got[0][0] == record
        assert path.readers[0].got[0][0] is not record
        path.sent[0] = path.readers[0].got
        path.end()


def test_bundles_for_a_reader_that_has_gone_are_dropped() -> None:
    path = Path(2, 4, 0, -1)
    for reader in path.readers:
        reader.come()
    path.emit([0, 1], 0, timed=False)
    path.writer.seal()
    path.readers[0].input.close()
    path.emit([0, 1], 0, timed=False)
    path.writer.seal()
    path.writer.finish()
    path.readers[1].read()
    assert path.readers[1].got == path.sent[1]
    path.readers[1].input.close()
    path.writer.close()
    with path.lab:
        pass


def test_records_that_wait_are_joined_by_later_ones_up_to_a_buffer() -> None:
    path = Path(1, 9, 0, -1)
    reader = path.readers[0]
    reader.come()
    lent = path.writer.partition.pool.lent
    partition = path.writer.partition
    for buffers in (1, 1, 2):  # two records are as long as a segment
        path.emit([0], 0, timed=False)
        path.writer.seal()
        assert partition.pool.lent == lent + buffers
    path.emit([0], 0, timed=True)
    path.writer.seal()
    assert partition.pool.lent == lent + 3, "times are not mixed with none"
    path.tell(Watermark(5))
    path.emit([0], 0, timed=True)
    path.writer.seal()
    assert partition.pool.lent == lent + 5, "nothing goes before a watermark"
    path.end()


def test_records_that_were_taken_are_not_joined_by_later_ones() -> None:
    path = Path(1, 4, 0, -1)
    reader = path.readers[0]
    reader.come()
    path.emit([0, 0], 0, timed=False)
    path.writer.seal()
    taken = reader.input.take(9)
    assert isinstance(taken, Bundle) and len(taken.records) == 2
    path.sent[0].clear()
    path.emit([0], 0, timed=False)
    path.writer.seal()
    assert len(taken.records) == 2
    path.end()
