"""Two streams, one function: orders wait for the exchange rate of their currency.

Both streams have keys, so that an order and its rate meet in the same task. Which of the two comes
first does not matter: an order whose rate is not known yet is kept until it is.
"""

from collections.abc import Iterator

from headgate import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment

ORDERS = [("bread", "EUR", 4.0), ("tea", "GBP", 3.0), ("rice", "JPY", 500.0), ("jam", "EUR", 6.0)]
RATES = [("JPY", 0.0065), ("EUR", 1.1), ("GBP", 1.3)]


class Convert(KeyedCoProcessFunction):
    """Keeps what it knows in plain attributes; they belong to the task, so they are kept by key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rates: dict[str, float] = {}
        self.waiting: dict[str, list[tuple[str, float]]] = {}

    def process_element1(
        self, order: tuple[str, str, float], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, float]]:
        what, currency, amount = order
        if currency in self.rates:
            yield what, round(amount * self.rates[currency], 2)
        else:
            self.waiting.setdefault(currency, []).append((what, amount))

    def process_element2(
        self, rate: tuple[str, float], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, float]]:
        currency, self.rates[currency] = rate[0], rate[1]
        for what, amount in self.waiting.pop(currency, []):
            yield what, round(amount * self.rates[currency], 2)


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
