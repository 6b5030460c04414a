"""Asynchronous calls: a slow service is asked about many records at once.

Twenty questions of 20 ms each would take 0.4 s one after the other; side by side they take little
more than one. The order of the records stays. One question takes too long and gets another answer.
"""

import asyncio

from headgate import (
    AsyncDataStream,
    AsyncFunction,
    Duration,
    RuntimeContext,
    StreamExecutionEnvironment,
)

ASKED_S = 0.02


class Service:
    """Stands for a database or a web service."""

    async def capital(self, country: int) -> str:
        await asyncio.sleep(60 if country == 13 else ASKED_S)
        return f"capital {country}"


class Look(AsyncFunction):
    """All of it runs on one thread with an event loop, so that the client belongs to that loop."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.service = Service()

    async def async_invoke(self, value: int) -> list[tuple[int, str]]:
        return [(value, await self.service.capital(value))]

    def timeout(self, value: int) -> list[tuple[int, str]]:
        return [(value, "nobody knows")]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    countries = env.from_collection(range(1, 21))
    looked_up = AsyncDataStream.ordered_wait(
        countries, Look(), Duration.of_seconds(1), capacity=100
    )
    with looked_up.execute_and_collect("async lookup") as results:
        for number, capital in results:
            print(f"{number:2} {capital}")


if __name__ == "__main__":
    main()
