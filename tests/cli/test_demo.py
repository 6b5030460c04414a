"""The pipeline of the demonstration; tests/spark/test_demo.py runs it."""

import pytest

from headgate.cli.demo import environment, size_of
from headgate.cli.demo_pipeline import Size, make_order


def test_the_slow_operator_has_tasks_of_its_own() -> None:
    graph = environment(Size(100, 2, 1.0), "unused").get_job_graph()
    names = [vertex.name for vertex in graph.vertices]
    assert names == ["Source: orders -> price", "running totals", "slow look-up -> Sink: files"]


def test_orders_are_the_same_each_time_and_spread_over_customers() -> None:
    orders = [make_order(index) for index in range(2000)]
    assert orders == [make_order(index) for index in range(2000)]
    assert len({order["customer"] for order in orders}) > 400
    assert {order["quantity"] for order in orders} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("orders", "seconds", "stays", "expected"),
    [
        (None, None, False, (20_000, 6.0)),
        (None, None, True, (2_000_000, 600.0)),
        (10_000, None, True, (10_000, 3.0)),
        (None, 30.0, False, (100_000, 30.0)),
        (None, 0.0, False, (20_000, 0.0)),
        (500, 1.0, True, (500, 1.0)),
    ],
)
def test_orders_and_seconds_follow_from_each_other(
    orders: int | None, seconds: float | None, stays: bool, expected: tuple[int, float]
) -> None:
    size = size_of(orders, seconds, None, stays=stays)
    assert (size.orders, size.seconds) == expected
