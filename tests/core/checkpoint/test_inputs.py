"""The inputs of a task as checkpoints see them: counted through, blocked, recorded, given back."""

from typing import Any

from headgate.base.elements import Bundle, PickleSerializer
from headgate.base.events import CancelMarker, CheckpointBarrier, encode_event
from headgate.core.buffers.buffer import Buffer, bundle_bytes
from headgate.core.checkpoint.inputs import (
    CheckpointedInputs,
    give_back,
    number_channels,
    single_gates,
)
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import NetworkInput
from tests.core.task.kit import WALL_MS, Lab, read_stream, take_all

BARRIER = CheckpointBarrier(1, WALL_MS, unaligned=True)


class Table:
    """Gates of 2, 1 and 2 channels: input 0 is a union of the third and the first, input 1 the
    second."""

    def __init__(self, lab: Lab, limit_bytes: int = 1000) -> None:
        self.writers = {name: lab.writer(name) for name in "abcde"}
        self.gates: list[Gate] = [lab.gate("a", "b"), lab.gate("c"), lab.gate("d", "e")]
        self.inputs: list[NetworkInput] = [
            lab.input(0, self.gates[2], self.gates[0]),
            lab.input(1, self.gates[1]),
        ]
        for gate in self.gates:
            gate.request_partitions()
        self.seen: list[Any] = []
        self.incoming = CheckpointedInputs(self.inputs, self.gates, limit_bytes)
        self.incoming.listener = self

    def barrier_read(self, channel: int, event: CheckpointBarrier | CancelMarker) -> None:
        self.seen.append((channel, event))

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        self.seen.append(("soon", channel))

    def channel_ended(self, channel: int) -> None:
        self.seen.append(("ended", channel))

    def too_much_in_flight(self, checkpoint: int) -> None:
        self.seen.append(("dropped", checkpoint))

    def close(self) -> None:
        for source in self.inputs:
            source.close()


def test_channels_count_through_over_inputs_and_unions() -> None:
    with Lab() as lab:
        table = Table(lab)
        numbered = number_channels(table.inputs, table.gates)
        assert [(place.gate, place.channel) for place in numbered] == [
            (2, 0),
            (2, 1),
            (0, 0),
            (0, 1),
            (1, 0),
        ]
        assert [place.index for place in numbered] == [0, 1, 2, 3, 0]
        assert single_gates(table.inputs[1].gate) == [table.gates[1]]
        table.close()


def test_what_happens_in_a_channel_is_told_with_its_number() -> None:
    with Lab() as lab:
        table = Table(lab)
        table.writers["b"].send_barrier(CheckpointBarrier(1, WALL_MS))
        table.writers["c"].broadcast_event(CancelMarker(2))
        table.writers["d"].finish()
        for source in table.inputs:
            take_all(source)
        assert sorted(map(str, table.seen)) == sorted(
            map(
                str,
                [
                    ("soon", 3),
                    (3, CheckpointBarrier(1, WALL_MS)),
                    (4, CancelMarker(2)),
                    ("ended", 0),
                ],
            )
        )
        table.close()


def test_a_channel_is_blocked_by_its_number() -> None:
    with Lab() as lab:
        table = Table(lab)
        table.incoming.block(1)
        table.incoming.block(4)
        table.writers["e"].emit_all([1])
        table.writers["c"].emit_all([2])
        table.writers["d"].emit_all([3])
        assert take_all(table.inputs[0]) == [Bundle([3])]
        assert take_all(table.inputs[1]) == []
        table.incoming.unblock((1, 4))
        assert take_all(table.inputs[0]) == [Bundle([1])]
        assert take_all(table.inputs[1]) == [Bundle([2])]
        table.close()


def test_what_comes_while_a_channel_is_recorded_is_found_under_its_gate() -> None:
    with Lab() as lab:
        table = Table(lab)
        assert all(source.gate.on_arrived is None for source in table.inputs)
        table.incoming.record(1, (2, 4))
        assert all(source.gate.on_arrived is not None for source in table.inputs)
        for name in "abc":
            table.writers[name].emit_all([name])
        for source in table.inputs:
            take_all(source)
        table.incoming.channel_done(1, 4)
        assert table.inputs[1].gate.on_arrived is None, "who is through tells no more"
        table.incoming.channel_done(1, 2)
        table.incoming.check()
        found = table.incoming.completed(1)
        assert found is not None
        assert [(data.is_input, data.index, data.channel) for data in found] == [
            (True, 0, 0),
            (True, 1, 0),
        ]
        assert [read_stream(b"".join(data.parts)) for data in found] == [
            [Bundle(["a"])],
            [Bundle(["c"])],
        ]
        table.close()


def test_more_than_the_limit_is_dropped_and_never_taken_for_complete() -> None:
    with Lab() as lab:
        table = Table(lab, limit_bytes=40)
        assert table.incoming.record(1, (0,))
        arrived = table.inputs[0].gate.on_arrived
        assert arrived is not None
        arrived(0, Buffer(bytes(41)))
        assert table.seen == [("dropped", 1)]
        table.incoming.channel_done(1, 0)
        assert table.incoming.completed(1) is None
        assert table.inputs[0].gate.on_arrived is None
        assert table.incoming.record(2, (0,))
        table.incoming.dropped(2)
        assert table.inputs[0].gate.on_arrived is None
        table.close()


def test_an_event_ends_the_record_of_a_channel() -> None:
    with Lab() as lab:
        table = Table(lab)
        table.incoming.record(1, (0,))
        arrived = table.inputs[0].gate.on_arrived
        assert arrived is not None
        arrived(0, Buffer(b"before"))
        arrived(0, Buffer(encode_event(BARRIER), is_event=True))
        arrived(0, Buffer(b"behind"))
        found = table.incoming.completed(1)
        assert found is not None
        assert found[0].parts == [b"before"]
        table.close()


def test_channels_begin_with_what_was_on_its_way_in_them() -> None:
    serializer = PickleSerializer()
    with Lab() as lab:
        table = Table(lab)
        restored = TaskRestored(
            inputs=[
                (0, 1, [bundle_bytes(Bundle(["old"]), serializer)]),
                (1, 0, [bundle_bytes(Bundle(["c"]), serializer)]),
            ],
            reassigned=[(0, [Bundle(["reassigned"])])],
        )
        give_back(restored, table.inputs, table.gates)
        table.writers["b"].emit_all(["new"])
        assert take_all(table.inputs[1]) == [Bundle(["c"])]
        records = [bundle.records[0] for bundle in take_all(table.inputs[0])]
        assert records == ["reassigned", "old", "new"]
        table.close()


def test_after_the_end_gates_tell_nobody() -> None:
    with Lab() as lab:
        table = Table(lab)
        table.incoming.record(1, (0,))
        table.incoming.close()
        table.writers["a"].emit_all([1])
        table.writers["a"].overtake(BARRIER)
        assert table.seen == []
        table.close()
