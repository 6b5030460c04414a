"""Ships: names, routers, pickling, and what is settled when parallelism is known."""

import pickle

import pytest

from headgate.base.errors import PlanInvalid, UserFunctionFailed
from headgate.core.state.keys import key_group
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import ShipStrategy
from tests.plan.programs import SHIPS, Program, key_of, reads, to_last

ALL = (*SHIPS, ships.forward(), ships.default_strategy())


def picks(ship: ShipStrategy, subtask: int, channels: int, records: str = "abcdef") -> list[int]:
    router = ship.make_router(subtask)
    router.set_up(channels)
    return [router.pick(record) for record in records]


def test_ships_have_the_names_that_users_know() -> None:
    assert [ship.name for ship in ALL] == [
        "REBALANCE",
        "RESCALE",
        "SHUFFLE",
        "BROADCAST",
        "GLOBAL",
        "HASH",
        "CUSTOM",
        "FORWARD",
        "FORWARD",
    ]
    assert [ship.name for ship in ALL if ship.pointwise] == ["RESCALE", "FORWARD", "FORWARD"]
    assert [ship.name for ship in ALL if not ship.chosen] == ["FORWARD"]


@pytest.mark.parametrize("ship", ALL, ids=lambda ship: ship.name)
def test_a_ship_can_be_sent_to_another_process(ship: ShipStrategy) -> None:
    again = pickle.loads(pickle.dumps(ship))
    assert (again.name, again.pointwise, again.chosen) == (ship.name, ship.pointwise, ship.chosen)
    channels = 1 if ship.name == "FORWARD" else 3
    if ship.name != "BROADCAST":
        assert picks(again, 1, channels) == picks(ship, 1, channels)


def test_routers_do_what_the_name_says() -> None:
    assert picks(ships.rebalance(), 1, 3) == [1, 2, 0, 1, 2, 0]
    assert picks(ships.rescale(), 1, 2) == [0, 1, 0, 1, 0, 1]
    assert picks(ships.global_(), 1, 3) == [0] * 6
    assert picks(ships.custom(to_last, key_of), 1, 3) == [2] * 6
    assert picks(ships.hash_by(key_of, 64), 0, 3) == [key_group(k, 64) * 3 // 64 for k in "abcdef"]
    assert picks(ships.shuffle(), 0, 9, "x" * 50) != picks(ships.shuffle(), 1, 9, "x" * 50)
    assert ships.broadcast().make_router(0).is_broadcast


@pytest.mark.parametrize(("parallelism", "name"), [(2, "FORWARD"), (3, "REBALANCE")])
def test_what_nobody_chose_goes_straight_on_or_round_robin(parallelism: int, name: str) -> None:
    program = Program()
    program.sink("sink", program.source(), parallelism=parallelism)
    ship = ships.resolve_strategy(program.graph, program.graph.edges[0])
    assert ship.name == name == program.graph.ship_name(program.graph.edges[0])
    assert ship.pointwise == (name == "FORWARD")


def test_keys_go_by_the_key_groups_of_the_consumer() -> None:
    program = Program()
    program.sink("sink", reads(program.source(), ships.hash_by(key_of, 7)), max_parallelism=32)
    settled = ships.resolve_strategy(program.graph, program.graph.edges[0])
    assert picks(settled, 0, 16) == [key_group(key, 32) * 16 // 32 for key in "abcdef"]


def test_a_key_selector_that_fails_is_an_error_of_the_consumer() -> None:
    program = Program()
    program.sink("count", reads(program.source(), ships.hash_by(lambda record: record["id"])))
    router = ships.resolve_strategy(program.graph, program.graph.edges[0]).make_router(0)
    router.set_up(2)
    with pytest.raises(UserFunctionFailed, match="operator 'count' failed when the key"):
        router.split([{}], None)


def test_forward_to_another_parallelism_names_both() -> None:
    program = Program()
    source = program.source("words")
    program.operator("map", reads(source, ships.forward()), parallelism=3)
    with pytest.raises(PlanInvalid) as caught:
        ships.resolve_strategy(program.graph, program.graph.edges[0])
    assert str(caught.value) == (
        "operator 'map' has parallelism 3, but 'words', which forwards to it, has 2; use "
        "rebalance() or rescale() instead of forward(), or give both the same parallelism"
    )
    assert caught.value.operator == "map"
