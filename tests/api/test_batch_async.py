"""Calls in batches as a user writes them: what is refused, and what runs."""

from typing import Any

import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.errors import PlanInvalid
from headgate.common import Time, Types
from headgate.datastream import (
    AsyncDataStream,
    AsyncRetryStrategy,
    Batching,
    CallCache,
    RateLimit,
)
from headgate.datastream.async_retry_predicates import has_exception_predicate
from tests.core.chain.batch_kit import Negate

SECOND = Time.seconds(1)
WAITS = pytest.mark.parametrize("wait", ["ordered_wait_batch", "unordered_wait_batch"])


class Blocking(Negate):
    def async_invoke_batch(self, values: list[int]) -> list[int]:  # type: ignore[override]
        return values


class AsyncTimeout(Negate):
    async def timeout(self, value: int) -> int:
        return value


class AsyncCost(Negate):
    async def cost(self, value: int) -> float:  # type: ignore[override]
        return value


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@WAITS
def test_a_stream_goes_through_a_batch_function(env: Any, wait: str) -> None:
    stream = env.from_collection([1, 2, 3])
    negated = getattr(AsyncDataStream, wait)(
        stream,
        Negate(),
        SECOND,
        Batching(2),
        10,
        Types.INT(),
        rate_limit=RateLimit(5, 1000),
        cache=CallCache(SECOND),
        async_retry_strategy=AsyncRetryStrategy.fixed_delay(1, 1, None, has_exception_predicate),
    )
    assert negated.get_name() == "Async Batch Wait"
    assert negated.get_type() == Types.INT()
    assert sorted(negated.execute_and_collect()) == [-3, -2, -1]


@WAITS
def test_a_keyed_stream_goes_through_it_as_well(env: Any, wait: str) -> None:
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: n % 2)
    negated = getattr(AsyncDataStream, wait)(keyed, Negate(), SECOND)
    assert sorted(negated.execute_and_collect()) == [-3, -2, -1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"data_stream": [1]}, r"stream \[1\]; give a DataStream"),
        ({"async_function": Negate}, "was given the class Negate; give an object of it: Negate"),
        ({"async_function": print}, "give a BatchAsyncFunction, which has async_invoke_batch"),
        ({"async_function": Blocking()}, "async_invoke_batch.. of Blocking must be written as"),
        ({"async_function": AsyncTimeout()}, "timeout.. of AsyncTimeout is async; write it as a"),
        ({"async_function": AsyncCost()}, "cost.. of AsyncCost is async; write it as a plain def"),
        ({"timeout": Time.seconds(0)}, "the timeout is 0 ms; give 1 ms or more"),
        ({"capacity": 0}, "the capacity is 0; give 1 or more"),
        ({"capacity": 99}, "the capacity is 99, so that no batch can have its 100 records; give"),
        ({"batching": 64}, "batching is 64; give one like Batching"),
        ({"batching": None}, "batching is None; give one like Batching"),
        ({"rate_limit": 50}, "rate_limit is 50; give one like RateLimit"),
        ({"cache": Time.seconds(5)}, "cache is .*; give one like CallCache"),
        ({"async_retry_strategy": 3}, "ordered_wait_batch.. was given the strategy 3; give one"),
        ({"output_type": int}, "give one such as Types.INT"),
    ],
)
@WAITS
def test_bad_use_is_refused_where_it_is_written(
    env: Any, wait: str, arguments: dict[str, Any], text: str
) -> None:
    good = {
        "data_stream": env.from_collection([1]),
        "async_function": Negate(),
        "timeout": SECOND,
    }
    with pytest.raises(PlanInvalid, match=text):
        getattr(AsyncDataStream, wait)(**{**good, **arguments})
