"""Asynchronous functions from end to end on a local Spark."""

import asyncio
from typing import Any

import pytest

from headgate.base.errors import HeadgateError
from headgate.common import Time, Types
from headgate.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy
from headgate.datastream.async_retry_predicates import has_exception_predicate
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")


class Enrich(AsyncFunction[int, Any]):
    """Fails at first for some records; sevens take too long."""

    def open(self, runtime_context: Any) -> None:
        self.failed: set[int] = set()

    async def async_invoke(self, value: int) -> list[Any]:
        if value % 10 == 7:
            await asyncio.sleep(60)
        await asyncio.sleep(0.001)
        if value % 5 == 0 and value not in self.failed:
            self.failed.add(value)
            raise ConnectionError("busy")
        return [(value, "found")]

    def timeout(self, value: int) -> list[Any]:
        return [(value, "late")]


class Bare(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return value  # type: ignore[return-value]


def test_calls_are_made_retried_and_timed_out() -> None:
    numbers = environment().from_collection(list(range(40)))
    retry = AsyncRetryStrategy.fixed_delay(2, 1, None, has_exception_predicate)
    results = AsyncDataStream.unordered_wait_with_retry(
        numbers, Enrich(), Time.milliseconds(300), retry, 10, Types.PICKLED_BYTE_ARRAY()
    )
    assert collected(results) == [(n, "late" if n % 10 == 7 else "found") for n in range(40)]


def test_a_wrong_result_is_told_to_the_driver_with_the_operator() -> None:
    env = environment(1)
    AsyncDataStream.ordered_wait(env.from_collection([1]), Bare(), Time.seconds(5)).print()
    with pytest.raises(HeadgateError) as caught:
        env.execute()
    assert "The result of AsyncFunction should be of list type" in str(caught.value)
    assert "Async Wait" in str(caught.value)
