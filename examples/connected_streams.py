"""Two streams, one function: orders wait for the exchange rate of their currency.

Both streams have keys, so that an order and its rate meet in the same task. Which of the two comes
first does not matter: an order whose rate is not known yet is kept until it is.
"""

from collections.abc import Iterator

from headgate import (
    KeyedCoProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)

ORDERS = [("bread", "EUR", 4.0), ("tea", "GBP", 3.0), ("rice", "JPY", 500.0), ("jam", "EUR", 6.0)]
RATES = [("JPY", 0.0065), ("EUR", 1.1), ("GBP", 1.3)]


class Convert(KeyedCoProcessFunction):
    """The key is the currency: its rate, and the orders that wait for it, are in the state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rate = runtime_context.get_state(ValueStateDescriptor("rate"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(
        self, order: tuple[str, str, float], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, float]]:
        what, _, amount = order
        rate = self.rate.value()
        if rate is None:
            self.waiting.add((what, amount))
        else:
            yield what, round(amount * rate, 2)

    def process_element2(
        self, rate: tuple[str, float], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, float]]:
        self.rate.update(rate[1])
        for what, amount in self.waiting.get():
            yield what, round(amount * rate[1], 2)
        self.waiting.clear()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    orders = env.from_collection(ORDERS)
    rates = env.from_collection(RATES)

    connected = orders.connect(rates).key_by(lambda order: order[1], lambda rate: rate[0])
    dollars = connected.process(Convert()).name("convert")

    with dollars.execute_and_collect("orders in dollars") as results:
        for what, amount in sorted(results):
            print(f"{what:6} {amount:6.2f} USD")


if __name__ == "__main__":
    main()
