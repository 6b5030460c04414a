"""Which tasks go where and when: streaming at once, batch one vertex after the other."""

from dataclasses import replace

import pytest

from headgate.base.messages import CheckpointOrder, Deploy, Placed
from headgate.control.deployment import TaskPlacement
from tests.control.kit import address, plan


def deployed(orders: list[tuple[int, Deploy | Placed]]) -> list[tuple[int, list[str]]]:
    return [(s, [t.id for t in o.tasks]) for s, o in orders if isinstance(o, Deploy)]


def test_streaming_tasks_are_deployed_when_their_task_manager_comes() -> None:
    placement = TaskPlacement(plan())
    ((slot, deploy),) = placement.arrived(1, address(1))
    assert isinstance(deploy, Deploy)
    assert (slot, [task.id for task in deploy.tasks]) == (1, ["0.1", "1.1"])
    assert deploy.places == {"0.1": None}
    assert (deploy.job, deploy.attempt, deploy.parameters) == ("orders", 3, {"k": "v"})
    assert deploy.code == b"code"
    assert not placement.is_complete
    assert placement.missing() == [0]


def test_a_producer_that_comes_later_is_told_to_those_who_wait() -> None:
    placement = TaskPlacement(plan(parallelism=3))
    placement.arrived(1, address(1))
    placement.arrived(2, address(2))
    orders = placement.arrived(0, address(0))
    assert orders[:2] == [
        (1, Placed("job/0/0", {"0.0": address(0)})),
        (2, Placed("job/0/0", {"0.0": address(0)})),
    ]
    last = orders[2][1]
    assert isinstance(last, Deploy)
    assert last.places == {"0.0": None, "0.1": address(1), "0.2": address(2)}
    assert placement.is_complete


def test_batch_tasks_wait_for_all_tasks_of_the_vertex_before() -> None:
    placement = TaskPlacement(plan(vertices=3, batch=True))
    assert deployed(placement.arrived(0, address(0))) == [(0, ["0.0"])]
    assert deployed(placement.arrived(1, address(1))) == [(1, ["0.1"])]
    assert placement.finished(0) == []
    second = placement.finished(0)
    assert deployed(second) == [(0, ["1.0"]), (1, ["1.1"])]
    assert all(isinstance(o, Deploy) and o.code is None for _, o in second)
    assert isinstance(second[0][1], Deploy)
    assert second[0][1].places == {"0.0": None, "0.1": address(1)}
    placement.finished(1)
    assert deployed(placement.finished(1)) == [(0, ["2.0"]), (1, ["2.1"])]
    placement.finished(2)
    assert placement.finished(2) == []


def test_in_batch_a_late_task_manager_gets_its_first_tasks_alone() -> None:
    placement = TaskPlacement(plan(batch=True))
    placement.arrived(0, address(0))
    placement.finished(0)
    assert deployed(placement.arrived(1, address(1))) == [(1, ["0.1"])]
    assert deployed(placement.finished(0)) == [(0, ["1.0"]), (1, ["1.1"])]


def test_those_that_are_all_there_get_their_tasks_with_all_places() -> None:
    order = CheckpointOrder("/checkpoints", "x")
    placement = TaskPlacement(replace(plan(), checkpoints=order))
    orders = placement.all_arrived({1: address(1), 0: address(0)})
    assert deployed(orders) == [(0, ["0.0", "1.0"]), (1, ["0.1", "1.1"])]
    for slot, deploy in orders:
        assert isinstance(deploy, Deploy)
        assert deploy.checkpoints == order
        other = 1 - slot
        assert deploy.places == {f"0.{slot}": None, f"0.{other}": address(other)}
    assert placement.is_complete


def test_a_task_that_needs_no_other_is_a_run_of_its_own() -> None:
    whole = plan(vertices=1, parallelism=3)
    alone = whole.of_task(2)
    assert (alone.slots, [task.id for task in alone.tasks]) == (1, ["0.2"])
    placement = TaskPlacement(alone)
    assert deployed(placement.arrived(0, address(0))) == [(0, ["0.2"])]
    assert placement.is_complete
    with pytest.raises(AssertionError, match="needs others"):
        plan(vertices=2).of_task(0)
