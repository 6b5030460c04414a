"""State and timers: who logs in and does nothing for ten minutes is logged out.

Each user has a value in the state, when they were last seen, and a timer in event time that looks
whether that is long ago. The state is one for each user; the function never sees another's.
"""

from collections.abc import Iterator

from headgate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

TEN_MINUTES_MS = 10 * 60_000
EVENTS = [
    ("Ada", 0, "login"),
    ("Bert", 1, "login"),
    ("Ada", 8, "click"),
    ("Bert", 10, "click"),
    ("Ada", 15, "logout"),
    ("Bert", 40, "login"),
]


class LogOut(KeyedProcessFunction):
    """Follows one user at a time, whoever the record or the timer is about."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(
        self, event: tuple[str, int, str], ctx: KeyedProcessFunction.Context
    ) -> Iterator[str]:
        name, minute, what = event
        before = self.seen.value()
        if before is not None and ctx.timestamp() > before + TEN_MINUTES_MS:
            yield logged_out(name, before)  # the timer is due, but event time is not there yet
        if what == "logout":
            self.seen.clear()
            yield f"minute {minute:2}: {name} has left"
        else:
            self.seen.update(ctx.timestamp())
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + TEN_MINUTES_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        before = self.seen.value()
        if before is not None and before + TEN_MINUTES_MS == timestamp:  # not seen since
            self.seen.clear()
            yield logged_out(ctx.get_current_key(), before)


def logged_out(name: str, seen_ms: int) -> str:
    return f"minute {(seen_ms + TEN_MINUTES_MS) // 60_000:2}: {name} was logged out"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda event, before: event[1] * 60_000
    )
    events = env.from_collection(EVENTS).assign_timestamps_and_watermarks(strategy)
    events.set_parallelism(1)  # two tasks would change the order
    results = events.key_by(lambda event: event[0]).process(LogOut()).name("log out")
    with results.execute_and_collect("state and timers") as lines:
        for line in sorted(lines):
            print(line)


if __name__ == "__main__":
    main()
