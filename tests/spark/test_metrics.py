"""Figures of user's functions appear with the job's metrics."""

from typing import Any

from headgate.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


class Counting(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("mine")
        self.count = group.counter("seen")
        self.last = 0
        group.gauge("last", lambda: self.last)
        self.rate = group.meter("rate")
        self.sizes = group.distribution("sizes")

    def map(self, value: int) -> int:
        self.count.inc()
        self.last = value
        self.rate.mark_event()
        self.sizes.update(value)
        return value


def test_counter_gauge_meter_and_distribution_reach_the_driver(spark: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(range(10)).map(Counting()).name("count").map(lambda n: n).print()
    client = env.execute_async("metrics")
    client.get_job_execution_result().result()
    found = client.get_metrics()
    mine = {name.partition(".mine.")[2]: value for name, value in found.items() if ".mine." in name}
    assert mine.pop("rate.rate") >= 0  # type: ignore[operator]
    assert mine == {
        "seen.count": 10,
        "last.value": 9,
        "rate.count": 10,
        "sizes.count": 10,
        "sizes.sum": 45,
        "sizes.min": 0,
        "sizes.max": 9,
    }
    assert all(".0.count.mine." in name for name in found if ".mine." in name)
