"""Rules for everyone: a small stream of rules is broadcast, so that every task knows all of them.

The payments are spread over the tasks. Each task checks its share against the rules, which it keeps
as broadcast state. Payments that come before the rules are complete are kept until they are.
"""

from collections.abc import Iterator

from headgate import (
    BroadcastProcessFunction,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
)
from headgate.datastream.state import ReadOnlyBroadcastState

Payment = tuple[int, str, int]  # number, place, amount
Rule = tuple[str, str, int]  # name, place or any, limit

COMPLETE = ("complete", "", 0)
RULES = [("large", "", 900), ("coffee", "cafe", 20), COMPLETE]
PAYMENTS = [(number, ["shop", "cafe", "train"][number % 3], number * 50) for number in range(1, 21)]
BY_NAME = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())


class Check(BroadcastProcessFunction):
    """Payments read the state, rules write it: in every task the same."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting: list[Payment] = []  # belongs to the task; a stream without keys has no state

    def process_element(
        self, value: Payment, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[tuple[int, str]]:
        rules = ctx.get_broadcast_state(BY_NAME)
        if "complete" in rules:
            yield from alarms(value, rules)
        else:
            self.waiting.append(value)

    def process_broadcast_element(
        self, value: Rule, ctx: BroadcastProcessFunction.Context
    ) -> Iterator[tuple[int, str]]:
        rules = ctx.get_broadcast_state(BY_NAME)
        rules.put(value[0], value)
        if value == COMPLETE:
            for payment in self.waiting:
                yield from alarms(payment, rules)
            self.waiting.clear()


def alarms(payment: Payment, rules: ReadOnlyBroadcastState[str, Rule]) -> Iterator[tuple[int, str]]:
    number, place, amount = payment
    for rule in rules.values():
        name, where, limit = rule
        if rule != COMPLETE and where in ("", place) and amount > limit:
            yield number, name


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    payments = env.from_collection(PAYMENTS).rebalance()
    rules = env.from_collection(RULES).broadcast(BY_NAME)

    checked = payments.connect(rules).process(Check()).name("check")
    with checked.execute_and_collect("rules") as results:
        for number, rule in sorted(results):
            print(f"payment {number}: {rule}")


if __name__ == "__main__":
    main()
