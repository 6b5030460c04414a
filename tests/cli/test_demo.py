"""The pipeline of the demonstration; tests/spark/test_demo.py runs it."""

from headgate.cli.demo import environment
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
