"""Two joins: orders and payments of the same customer, by window and by interval.

The window join pairs what is in the same ten minutes of the clock on the wall. The interval join
pairs an order with payments of the quarter of an hour after it, wherever the windows are cut.
"""

from collections.abc import Iterator

from headgate import (
    DataStream,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.datastream import ProcessJoinFunction

Event = tuple[str, int, str]  # customer, minute, what
ORDERS = [("Ada", 1, "bread"), ("Bert", 8, "tea"), ("Ada", 22, "jam"), ("Cleo", 25, "rice")]
PAYMENTS = [("Ada", 4, "card"), ("Bert", 12, "cash"), ("Ada", 36, "card"), ("Cleo", 55, "cash")]


class Match(ProcessJoinFunction):
    """Called for each pair; its time is the later of the two."""

    def process_element(
        self, left: Event, right: Event, ctx: ProcessJoinFunction.Context
    ) -> Iterator[str]:
        waited = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // 60_000
        yield f"interval: {left[0]} paid {left[2]} after {waited} minutes"


def timed(env: StreamExecutionEnvironment, events: list[Event]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda event, before: event[1] * 60_000
    )
    return env.from_collection(events).assign_timestamps_and_watermarks(strategy)


def customer(event: Event) -> str:
    return event[0]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    orders, payments = timed(env, ORDERS), timed(env, PAYMENTS)

    by_window = (
        orders.join(payments)
        .where(customer)
        .equal_to(customer)
        .window(TumblingEventTimeWindows.of(Time.minutes(10)))
        .apply(lambda order, payment: f"window: {order[0]} paid {order[2]} by {payment[2]}")
    )
    by_interval = (
        orders.key_by(customer)
        .interval_join(payments.key_by(customer))
        .between(Time.minutes(0), Time.minutes(15))
        .process(Match())
    )
    with by_window.union(by_interval).execute_and_collect("joins") as lines:
        for line in sorted(lines):
            print(line)


if __name__ == "__main__":
    main()
