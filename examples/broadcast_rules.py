"""Rules for everyone: a small stream of rules is broadcast, so that every task knows all of them.

The payments are spread over the tasks. Each task checks its share against the rules. Payments that
come before the rules are complete are kept until they are.
"""

from collections.abc import Iterator

from headgate import CoProcessFunction, RuntimeContext, StreamExecutionEnvironment

COMPLETE = ("complete", "", 0)
RULES = [("large", "", 900), ("coffee", "cafe", 20), COMPLETE]
PAYMENTS = [(number, ["shop", "cafe", "train"][number % 3], number * 50) for number in range(1, 21)]


class Check(CoProcessFunction):
    """The first input are payments, the second one rules."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rules: list[tuple[str, str, int]] = []
        self.waiting: list[tuple[int, str, int]] | None = []

    def process_element1(
        self, payment: tuple[int, str, int], ctx: CoProcessFunction.Context
    ) -> Iterator[tuple[int, str]]:
        if self.waiting is not None:
            self.waiting.append(payment)
            return
        number, place, amount = payment
        for name, where, limit in self.rules:
            if where in ("", place) and amount > limit:
                yield number, name

    def process_element2(
        self, rule: tuple[str, str, int], ctx: CoProcessFunction.Context
    ) -> Iterator[tuple[int, str]]:
        if rule != COMPLETE:
            self.rules.append(rule)
        elif self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            for payment in waiting:
                yield from self.process_element1(payment, ctx)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    payments = env.from_collection(PAYMENTS).rebalance()
    rules = env.from_collection(RULES).broadcast()

    alarms = payments.connect(rules).process(Check()).name("check")
    with alarms.execute_and_collect("rules") as results:
        for number, rule in sorted(results):
            print(f"payment {number}: {rule}")


if __name__ == "__main__":
    main()
