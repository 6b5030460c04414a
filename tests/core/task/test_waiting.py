"""What waits in front of a task: seen at any moment, in order, without a trace."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, PickleSerializer, Watermark
from headgate.base.events import CheckpointBarrier
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.chain.operator import Operator
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.waiting import Place
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.two_inputs import CoMapOperator
from headgate.core.task.environment import Input, RemoteProducer
from headgate.core.task.inputs import ENDED, NOTHING, NetworkInput
from headgate.core.task.inspection import CopiedGate, CopyLimits, WaitingInputs
from tests.core.pair import ADDRESS, Pair, write
from tests.core.task.kit import Lab, take_all

ALL = CopyLimits(1 << 20)
Act = tuple[str, int, list[str]]

acts = st.lists(
    st.tuples(
        st.sampled_from(["emit", "emit", "emit", "time", "barrier", "take", "take"]),
        st.integers(0, 1),
        st.lists(st.text(max_size=30), min_size=1, max_size=5),
    ),
    max_size=14,
)


def seen(copied: CopiedGate) -> dict[int, list[Any]]:
    """Records by channel."""
    return {
        channel.index: [
            record
            for _, thing in copied.things(channel)
            if isinstance(thing, Bundle)
            for record in thing.records
        ]
        for channel in copied.copied
    }


def drain(source: NetworkInput, limit: int = 1 << 30) -> list[Any]:
    got: list[Any] = []
    while (taken := source.take(limit)) is not NOTHING and taken is not ENDED:
        got.append(taken)
    return got


def play(
    acts: list[Act],
    writers: list[RecordWriter],
    source: NetworkInput,
    moved: Callable[[], None],
    looks: bool,
) -> list[Any]:
    """Carry out the acts; with ``looks`` also look after each of them. All that was taken."""
    got: list[Any] = []
    source.on_barrier = lambda channel, event: got.append((channel, event))
    inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
    for number, (act, channel, texts) in enumerate(acts):
        if act == "emit":
            writers[channel].emit_all([(channel, number, text) for text in texts])
        elif act == "time":
            writers[channel].emit_element(Watermark(number))
        elif act == "barrier":
            writers[channel].broadcast_event(CheckpointBarrier(number, 0))
        elif (taken := source.take(len(texts))) is not NOTHING:
            got.append(taken)
        moved()
        if looks:
            inputs.copy(0, None, ALL)
    if looks:
        before = seen(inputs.copy(0, None, ALL))
        again = seen(inputs.copy(0, None, ALL))
        rest = drain(source)
        coming = [record for taken in rest if isinstance(taken, Bundle) for record in taken.records]
        by_channel = {
            channel: [record for record in coming if record[0] == channel] for channel in (0, 1)
        }
        assert before == again
        assert {channel: found for channel, found in before.items() if found} == {
            channel: found for channel, found in by_channel.items() if found
        }
        return got + rest
    return got + drain(source)


@given(acts, st.booleans())
def test_looking_shows_what_comes_next_and_never_changes_what_comes(
    acts: list[Act], hands_over: bool
) -> None:
    results = []
    for looks in (False, True):
        with Lab(400) as lab:
            writers = [lab.writer(name) for name in ("a", "b")]
            source = lab.open_input("a", "b")
            for writer in writers:
                writer.hands_over = hands_over
            results.append(play(acts, writers, source, lambda: None, looks))
            source.close()
    assert results[0] == results[1]


@given(acts)
def test_the_same_holds_for_what_has_come_from_another_process(acts: list[Act]) -> None:
    results = []
    for looks in (False, True):
        with Pair(segments=400) as pair:
            names = [PartitionId("a"), PartitionId("b")]
            writers = [
                RecordWriter(pair.partition(1, name), RoundRobin(), timeout_ms=0) for name in names
            ]
            gate = pair.consumer.create_gate(
                "g", [Input(name, 0, RemoteProducer(ADDRESS)) for name in names]
            )
            source = NetworkInput(0, gate, pair.consumer.create_deserializers(gate))
            gate.request_partitions()
            pair.settle()
            results.append(play(acts, writers, source, pair.settle, looks))
            source.close()
            for writer in writers:
                writer.close()
    assert results[0] == results[1]


def test_a_task_under_back_pressure_shows_the_place_of_each_record() -> None:
    with Lab(400) as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        writer.emit_all(["first", "second"])
        assert source.take(1) == Bundle(["first"])
        writer.emit_all(["third"])
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        copied = inputs.copy(0, 0, ALL)
        places = [(place, thing) for place, thing in copied.things(copied.copied[0])]
        assert places == [
            (Place.BEGUN, Bundle(["second"])),
            (Place.PRODUCER, Bundle(["third"])),
        ]
        assert copied.complete
        assert copied.channels == 1
        assert copied.key_of is None
        source.close()


def test_channels_are_numbered_by_gate_also_within_a_union() -> None:
    with Lab(400) as lab:
        names = ("a", "b", "c")
        writers = [lab.writer(name) for name in names]
        gates = [lab.gate("a"), lab.gate("b", "c")]
        source = lab.input(0, *gates)
        for gate in gates:
            gate.request_partitions()
        for name, writer in zip(names, writers, strict=True):
            writer.emit_all([name])
        inputs = WaitingInputs(Operator(), [source], gates)
        assert seen(inputs.copy(0, None, ALL)) == {0: ["a"]}
        assert seen(inputs.copy(1, None, ALL)) == {0: ["b"], 1: ["c"]}
        assert seen(inputs.copy(1, 1, ALL)) == {1: ["c"]}
        source.close()


def test_the_longest_queue_comes_first_and_the_bytes_are_bounded() -> None:
    with Lab(400) as lab:
        writers = [lab.writer("a"), lab.writer("b")]
        source = lab.open_input("a", "b")
        for writer in writers:
            writer.hands_over = False
        writers[0].emit_all(["short"])
        for _ in range(5):
            writers[1].emit_all(["long " * 20])
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        whole = inputs.copy(0, None, ALL)
        assert [channel.index for channel in whole.copied] == [1, 0]
        assert whole.complete
        cut = inputs.copy(0, None, CopyLimits(300))
        assert not cut.complete
        assert sum(len(piece.data) for channel in cut.copied for piece in channel.pieces) <= 300
        source.close()


def test_only_gates_of_keyed_inputs_have_keys() -> None:
    def first(record: Any) -> Any:
        return record[0]

    with Lab(400) as lab:
        gates = [lab.gate("a"), lab.gate("b")]
        inputs = [lab.input(number, gate) for number, gate in enumerate(gates)]
        two = WaitingInputs(CoMapOperator(None, (None, first)), inputs, gates)
        assert two.keyed_gates() == [1]
        assert two.copy(1, None, ALL).key_of is first
        plain = WaitingInputs(MapOperator(str), inputs[:1], gates)
        assert plain.keyed_gates() == []
        keyed = WaitingInputs(MapOperator(str, first), inputs[:1], gates)
        assert keyed.keyed_gates() == [0]
        for source in inputs:
            source.close()


def test_a_channel_that_has_ended_or_has_no_producer_yet_is_empty() -> None:
    with Lab(400) as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        writer.finish()
        (channel,) = inputs.copy(0, None, ALL).copied
        assert [piece.is_event for piece in channel.pieces] == [True]
        take_all(source)
        assert source.ended
        assert inputs.copy(0, None, ALL).copied == []
        source.close()
        assert inputs.copy(0, None, ALL).copied == []
    with Lab(400) as lab:
        source = lab.open_input("missing")
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        assert inputs.copy(0, None, ALL).copied == []
        source.close()


def test_a_barrier_that_has_overtaken_is_shown_in_the_middle_of_an_element() -> None:
    barrier = CheckpointBarrier(7, 1234, unaligned=True)
    first, second = Bundle(["an element that is cut"]), Bundle(["behind it"])
    data = bundle_bytes(first, PickleSerializer()) + bundle_bytes(second, PickleSerializer())
    with Lab(400) as lab:
        partition = lab.partition("p")
        source = lab.open_input("p")
        barriers: list[Any] = []
        source.on_barrier = lambda channel, event: barriers.append(event)
        write(partition, data[:20])
        assert source.take(9) is NOTHING
        write(partition, data[20:])
        assert partition.overtake(barrier, 0, PickleSerializer()) == [data[20:]]
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        copied = inputs.copy(0, 0, ALL)
        assert list(copied.things(copied.copied[0])) == [
            (Place.PRODUCER, barrier),
            (Place.BEGUN, first),
            (Place.PRODUCER, second),
        ]
        assert [taken for taken in drain(source) if isinstance(taken, Bundle)] == [first, second]
        assert barriers == [barrier]
        source.close()
        partition.release()


def test_what_was_restored_is_shown_before_what_comes_and_reassigned_records_are_not_made() -> None:
    def make() -> Any:
        made.append(1)
        yield Bundle(["reassigned"])

    made: list[int] = []
    with Lab(400) as lab:
        writer = lab.writer("p")
        source = lab.open_input("p")
        restored = bundle_bytes(Bundle(["restored"]), PickleSerializer())
        source.restore(0, [restored[:10], restored[10:]])
        writer.emit_all(["new"])
        inputs = WaitingInputs(Operator(), [source], [source.gate])  # type: ignore[list-item]
        copied = inputs.copy(0, 0, ALL)
        assert list(copied.things(copied.copied[0])) == [
            (Place.ARRIVED, Bundle(["restored"])),
            (Place.PRODUCER, Bundle(["new"])),
        ]
        assert copied.complete
        source.restore_reassigned(0, make())
        assert not inputs.copy(0, 0, ALL).complete
        assert made == []
        records = [taken.records for taken in drain(source) if isinstance(taken, Bundle)]
        assert records == [["reassigned"], ["restored"], ["new"]]
        source.close()
