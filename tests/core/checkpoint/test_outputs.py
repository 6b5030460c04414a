"""Barriers on their way out: sent when every reader has them, or when they have overtaken."""

from typing import Any

from headgate.base.events import CancelMarker, CheckpointBarrier
from headgate.core.checkpoint.alignment import BarrierPolicy
from headgate.core.checkpoint.outputs import CheckpointedOutputs
from headgate.core.task.inputs import NetworkInput
from tests.core.task.kit import WALL_MS, Lab, read_stream, take_all

ALIGNED = CheckpointBarrier(1, WALL_MS)
UNALIGNED = CheckpointBarrier(1, WALL_MS, unaligned=True)


class OutputsWithReaders:
    """Outputs under test: two partitions, three subpartitions in all, and a reader for each."""

    def __init__(self, lab: Lab, timeout_ms: int | None = 50) -> None:
        self.writers = [lab.writer("a", 2), lab.writer("b")]
        self.readers = [self._reader(lab, "a", 0), self._reader(lab, "a", 1)]
        self.readers += [self._reader(lab, "b", 0)]
        self.events: list[Any] = []
        self.sent: list[int] = []
        self.checkpointed = CheckpointedOutputs(self.writers, BarrierPolicy(timeout_ms=timeout_ms))
        self.checkpointed.on_sent = self.sent.append

    def _reader(self, lab: Lab, partition: str, subpartition: int) -> NetworkInput:
        gate = lab.gate(partition, subpartition=subpartition)
        reader = lab.input(0, gate)
        reader.on_barrier = lambda channel, event: self.events.append(event)
        gate.request_partitions()
        return reader

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


def test_an_aligned_barrier_is_sent_when_the_last_reader_has_it() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        for reader in outputs.readers:
            assert not outputs.checkpointed.is_sent(1) and outputs.sent == []
            take_all(reader)
        assert outputs.checkpointed.is_sent(1) and outputs.sent == [1]
        assert outputs.events == [ALIGNED] * 3
        assert outputs.checkpointed.completed(1) == []
        outputs.close()


def test_one_that_may_never_overtake_is_sent_at_once() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab, timeout_ms=None)
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        assert outputs.checkpointed.is_sent(1)
        assert outputs.checkpointed.next_deadline_ms is None
        outputs.close()


def test_a_reader_that_has_gone_is_awaited_by_none() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.readers[0].close()
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        take_all(outputs.readers[2])
        assert not outputs.checkpointed.is_sent(1)
        outputs.readers[1].close()
        assert outputs.sent == [1]
        outputs.close()


def test_an_unaligned_barrier_takes_along_what_waits() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.writers[0].emit_all(["x", "y"])
        outputs.checkpointed.send(UNALIGNED, WALL_MS)
        assert outputs.checkpointed.is_sent(1)
        found = outputs.checkpointed.completed(1)
        assert [(data.is_input, data.index, data.channel) for data in found] == [
            (False, 0, 0),
            (False, 0, 1),
        ]
        assert [read_stream(b"".join(data.parts))[0].records for data in found] == [["x"], ["y"]]
        outputs.close()


def test_an_aligned_barrier_turns_where_its_time_is_over() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.writers[0].emit_all(["x", "y"])
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        take_all(outputs.readers[0])
        assert outputs.checkpointed.next_deadline_ms == WALL_MS + 50
        outputs.checkpointed.tick(WALL_MS + 49)
        assert not outputs.checkpointed.is_sent(1)
        outputs.checkpointed.tick(WALL_MS + 50)
        assert outputs.checkpointed.is_sent(1)
        found = outputs.checkpointed.completed(1)
        assert [(data.index, data.channel) for data in found] == [(0, 1)]
        assert outputs.checkpointed.next_deadline_ms is None
        outputs.close()


def test_at_the_end_what_waits_turns_at_once() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.writers[1].emit_all(["z"])
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        outputs.checkpointed.ended()
        assert outputs.checkpointed.is_sent(1)
        assert [data.index for data in outputs.checkpointed.completed(1)] == [1]
        outputs.close()


def test_what_came_to_nothing_is_forgotten_though_its_barriers_go_on() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        outputs.checkpointed.dropped(1)
        outputs.checkpointed.dropped(1)
        assert outputs.checkpointed.next_deadline_ms is None
        for reader in outputs.readers:
            take_all(reader)
        assert outputs.sent == []
        outputs.close()


def test_a_cancel_marker_goes_to_all() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.checkpointed.cancel(4)
        for reader in outputs.readers:
            take_all(reader)
        assert outputs.events == [CancelMarker(4)] * 3
        outputs.close()


def test_after_the_end_partitions_tell_nobody() -> None:
    with Lab() as lab:
        outputs = OutputsWithReaders(lab)
        outputs.checkpointed.send(ALIGNED, WALL_MS)
        outputs.checkpointed.close()
        outputs.close()
        assert outputs.sent == []
