"""Records in flight: every one of them comes once to the task that the edge sends it to now."""

import pickle
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import ChannelState, EdgeShape, Piece, TaskRestore
from headgate.base.errors import ChannelsDiffer, CheckpointUnsound
from headgate.core.state.keys import groups_of, key_group
from headgate.plan import ship_strategies as ships
from headgate.plan.execution_graph import Wiring
from headgate.plan.job_graph import JobGraph
from headgate.plan.state_assignment import restore
from headgate.plan.stream_graph import Chaining, ShipStrategy
from tests.plan.programs import Program, key_of, reads, to_last
from tests.plan.recording import planned, recording

Streams = dict[tuple[int, int], list[str]]
GROUPS = 16


def job(producers: int, consumers: int, ship: ShipStrategy, **reader: Any) -> JobGraph:
    program = Program()
    source = program.source(uid="write", parallelism=producers)
    fields = {
        "uid": "read",
        "parallelism": consumers,
        "max_parallelism": GROUPS,
        "chaining": Chaining.NEVER,
        **reader,
    }
    program.operator("reader", reads(source, ship), **fields)
    return planned(program.graph)


def routed(graph: JobGraph, records: list[list[str]]) -> Streams:
    """What each producer has written to each consumer."""
    [edge] = graph.edges
    source, target = graph.vertices
    wiring = Wiring(source.parallelism, target.parallelism, edge.pointwise)
    streams: Streams = {}
    for producer in range(source.parallelism):
        consumers = wiring.consumers_of(producer)
        router = source.chain.partitions[0].make_router(producer)
        router.set_up(len(consumers))
        if router.is_broadcast:
            split = [(at, records[producer]) for at in range(len(consumers))]
        else:
            split = [(at, part) for at, part, _ in router.split(records[producer], None)]
        for at, part in split:
            streams[producer, consumers[at]] = list(part)
    return streams


def in_flight(graph: JobGraph, streams: Streams, cut: int) -> dict[str, tuple[ChannelState, ...]]:
    """The first ``cut`` records of each stream have arrived, the others are still to be sent."""
    [edge] = graph.edges
    source, target = graph.vertices
    wiring = Wiring(source.parallelism, target.parallelism, edge.pointwise)
    channels: dict[str, tuple[ChannelState, ...]] = {}
    for (producer, consumer), records in streams.items():
        channel = producer - wiring.producers_of(consumer).start
        subpartition = wiring.subpartition(producer, consumer)
        for task, state in (
            (f"1.{consumer}", ChannelState(True, 0, channel, packed(records[:cut]))),
            (f"0.{producer}", ChannelState(False, 0, subpartition, packed(records[cut:]))),
        ):
            channels[task] = (*channels.get(task, ()), state)
    return channels


def packed(records: list[str]) -> tuple[Piece, ...]:
    return tuple(Piece("", 0, 0, 0, pickle.dumps(record)) for record in records)


def unpacked(pieces: tuple[Piece, ...]) -> list[str]:
    return [pickle.loads(piece.inline) for piece in pieces]


def received(graph: JobGraph, restores: dict[str, TaskRestore]) -> list[list[list[str]]]:
    """The streams that each consumer reads, with what it keeps of them."""
    consumers = graph.vertices[1].parallelism
    found: list[list[list[str]]] = []
    for consumer in range(consumers):
        streams = []
        for stream in restores[f"1.{consumer}"].reassigned:
            assert stream.gate == 0
            records = unpacked(stream.pieces)
            if stream.routed:
                router = (
                    graph.vertices[stream.source].chain.partitions[stream.output].make_router(0)
                )
                router.set_up(consumers)
                records = [record for record in records if router.pick(record) == consumer]
            streams.append(records)
        found.append(streams)
    return found


SHIPS = (
    ships.rebalance(),
    ships.rescale(),
    ships.shuffle(),
    ships.global_(),
    ships.hash_by(key_of),
    ships.custom(to_last, key_of),
)
texts = st.text("abcdefghij", min_size=1, max_size=3)
sides = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(st.sampled_from(SHIPS), sides, sides, st.data(), st.integers(0, 3))
def test_every_record_comes_once_and_where_it_belongs(
    ship: ShipStrategy,
    old: tuple[int, int],
    new: tuple[int, int],
    data: st.DataObject,
    cut: int,
) -> None:
    records = [data.draw(st.lists(texts, max_size=6)) for _ in range(old[0])]
    before, after = job(*old, ship), job(*new, ship)
    streams = routed(before, records)
    metadata = recording(before, channels=in_flight(before, streams, cut))
    restores = restore(metadata, after)
    if old == new:
        assert not any(restored.reassigned for restored in restores.values())
        for task in metadata.tasks:
            kept = tuple(channel for channel in task.channels if channel.pieces)
            assert restores[task.task].channels == kept
        return
    assert not any(restored.channels for restored in restores.values())
    got = received(after, restores)
    everything = [record for of_one in got for stream in of_one for record in stream]
    assert Counter(everything) == Counter(record for part in records for record in part)
    for consumer, of_one in enumerate(got):
        for stream in of_one:
            assert any(is_within(stream, whole) for whole in streams.values())
            for record in stream:
                check_place(ship, new[1], consumer, record)


def is_within(part: list[str], whole: list[str]) -> bool:
    """In the same order, perhaps with gaps."""
    rest = iter(whole)
    return all(record in rest for record in part)


def check_place(ship: ShipStrategy, consumers: int, consumer: int, record: str) -> None:
    if ship.name == "HASH":
        assert key_group(key_of(record), GROUPS) in groups_of(consumer, consumers, GROUPS)
    elif ship.name == "CUSTOM":
        assert consumer == consumers - 1
    elif ship.name == "GLOBAL":
        assert consumer == 0


@given(sides, sides, st.data())
def test_a_new_reader_of_a_broadcast_goes_on_as_one_of_the_old(
    old: tuple[int, int], new: tuple[int, int], data: st.DataObject
) -> None:
    before, after = job(*old, ships.broadcast()), job(*new, ships.broadcast())
    streams = {  # each reader has come another way
        (producer, consumer): data.draw(st.lists(texts, min_size=1, max_size=3))
        for producer in range(old[0])
        for consumer in range(old[1])
    }
    metadata = recording(before, channels=in_flight(before, streams, 1))
    restores = restore(metadata, after)
    if old != new:
        for consumer, got in enumerate(received(after, restores)):
            same = consumer % old[1]
            assert got == [streams[producer, same] for producer in range(old[0])]


def test_records_go_to_the_tasks_that_may_own_their_keys_and_to_no_other() -> None:
    ship = ships.hash_by(key_of)
    before, after = job(1, 4, ship), job(1, 2, ship)
    streams = {(0, consumer): ["x"] for consumer in range(4)}
    restores = restore(recording(before, channels=in_flight(before, streams, 0)), after)
    assert [len(restores[f"1.{consumer}"].reassigned) for consumer in range(2)] == [2, 2]


def flying(graph: JobGraph, **more: Any) -> Any:
    streams = {(0, 0): ["a", "b"]}
    return recording(graph, channels=in_flight(graph, streams, 1), **more)


def test_what_is_forwarded_has_no_way_when_the_parallelism_changes() -> None:
    before = job(2, 2, ships.forward())
    with pytest.raises(ChannelsDiffer, match="forwards to the one with its own index") as error:
        restore(flying(before), job(3, 3, ships.forward()))
    assert "from 'source' to 'reader'" in str(error.value)
    assert "take a savepoint" in str(error.value)
    restore(flying(before), job(2, 2, ships.forward()))
    restore(flying(before), job(3, 3, ships.forward()), without_in_flight=True)


def test_what_is_forwarded_may_be_rebalanced_where_nobody_chose() -> None:
    before, after = job(2, 2, ships.default_strategy()), job(2, 3, ships.default_strategy())
    assert [edge.ship for edge in after.edges] == ["REBALANCE"]
    assert received(after, restore(flying(before), after)) == [[["a", "b"]], [], []]


def test_a_broadcast_does_not_become_anything_else() -> None:
    with pytest.raises(ChannelsDiffer, match="they go by REBALANCE now, and went by BROADCAST"):
        restore(flying(job(2, 2, ships.broadcast())), job(2, 2, ships.rebalance()))
    with pytest.raises(ChannelsDiffer, match="they go by BROADCAST now"):
        restore(flying(job(2, 2, ships.rebalance())), job(2, 2, ships.broadcast()))


def test_another_way_with_the_same_parallelism_shares_records_out_anew() -> None:
    before, after = job(2, 2, ships.rebalance()), job(2, 2, ships.hash_by(key_of))
    got = received(after, restore(flying(before), after))
    assert sorted(record for streams in got for stream in streams for record in stream) == [
        "a",
        "b",
    ]


def test_other_key_groups_share_records_out_anew() -> None:
    ship = ships.hash_by(key_of)
    before, after = job(1, 2, ship), job(1, 2, ship, max_parallelism=32)
    got = received(after, restore(flying(before, blank=True), after))
    assert sorted(record for streams in got for stream in streams for record in stream) == [
        "a",
        "b",
    ]


def test_a_chain_that_is_not_as_it_was_is_refused() -> None:
    before = job(2, 2, ships.rebalance())
    program = Program()
    source = program.source(uid="write")
    reader = program.operator(
        "reader", reads(source, ships.rebalance()), uid="read", max_parallelism=GROUPS
    )
    program.sink("sink", reader, uid="new", max_parallelism=GROUPS)
    with pytest.raises(ChannelsDiffer, match="the chain 'reader' is not there any more"):
        restore(flying(before), planned(program.graph))


def test_chains_that_are_not_connected_as_they_were_are_refused() -> None:
    before, after = job(2, 2, ships.rebalance()), job(2, 2, ships.rebalance())
    metadata = flying(before)
    tagged = msgspec.structs.replace(metadata.edges[0], tag="late")
    with pytest.raises(ChannelsDiffer, match="they are not connected as they were"):
        restore(msgspec.structs.replace(metadata, edges=(tagged,)), after)


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        ((), "of an edge that is missing in it"),
        ((EdgeShape(0, 0, 9, 0, "REBALANCE", False),), "of an edge that is missing in it"),
        (
            (
                EdgeShape(0, 0, 9, 0, "REBALANCE", False),
                EdgeShape(9, 0, 1, 0, "REBALANCE", False),
            ),
            "one of its edges joins vertices that are missing in it",
        ),
    ],
)
def test_edges_that_cannot_be_are_refused(edges: tuple[EdgeShape, ...], problem: str) -> None:
    graph = job(2, 2, ships.rebalance())
    metadata = msgspec.structs.replace(flying(graph), edges=edges)
    with pytest.raises(CheckpointUnsound, match=problem):
        restore(metadata, graph)


def test_channels_that_cannot_be_are_refused() -> None:
    graph = job(2, 2, ships.rebalance())
    channels = {"1.0": (ChannelState(True, 0, 5, packed(["a"])),)}
    with pytest.raises(CheckpointUnsound, match="of a channel that does not exist"):
        restore(recording(graph, channels=channels), job(2, 3, ships.rebalance()))
