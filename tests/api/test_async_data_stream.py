"""Asynchronous functions as a user writes them: what is refused, what runs, when it is retried."""

import asyncio
import functools
from typing import Any

import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.errors import PlanInvalid
from headgate.common import Time, Types
from headgate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    async_retry_predicates,
)
from headgate.datastream.async_retry_strategies import NO_RETRY_STRATEGY

SECOND = Time.seconds(1)


class Double(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value * 2]


class Blocking:
    """Not async at all."""

    def async_invoke(self, value: int) -> list[int]:
        return [value]

    def timeout(self, value: int) -> list[int]:
        return []


class AsyncTimeout(Double):
    async def timeout(self, value: int) -> list[int]:  # type: ignore[override]
        return []


class NoPredicate(AsyncRetryStrategy[Any]):
    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return 0

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return None  # type: ignore[return-value]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


WAITS = pytest.mark.parametrize("wait", ["ordered_wait", "unordered_wait"])


@WAITS
def test_a_stream_goes_through_an_async_function(env: Any, wait: str) -> None:
    stream = env.from_collection([1, 2, 3])
    doubled = getattr(AsyncDataStream, wait)(stream, Double(), SECOND, 2, Types.INT())
    assert doubled.get_name() == "Async Wait"
    assert doubled.get_type() == Types.INT()
    assert sorted(doubled.execute_and_collect()) == [2, 4, 6]


@WAITS
def test_calls_are_made_again_by_the_strategy(env: Any, wait: str) -> None:
    tried: dict[int, int] = {}

    class Flaky(Double):
        async def async_invoke(self, value: int) -> list[int]:
            tried[value] = tried.get(value, 0) + 1
            return [tried[value]] if tried[value] > value else []

    strategy = AsyncRetryStrategy.fixed_delay(
        2, 1, async_retry_predicates.empty_result_predicate, None
    )
    stream = env.from_collection([0, 1, 2, 3])
    again = getattr(AsyncDataStream, f"{wait}_with_retry")(stream, Flaky(), SECOND, strategy)
    assert sorted(again.execute_and_collect()) == [1, 2, 3]  # the fourth was empty to the last
    assert tried == {0: 1, 1: 2, 2: 3, 3: 3}


def test_a_keyed_stream_keeps_its_keys_together(env: Any) -> None:
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: n % 2)
    stream = AsyncDataStream.unordered_wait(keyed, Double(), SECOND)
    assert sorted(stream.execute_and_collect()) == [2, 4, 6]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"data_stream": [1, 2]}, r"stream \[1, 2\]; give a DataStream"),
        ({"async_function": Double}, r"was given the class Double; give an object of it: Double"),
        ({"async_function": print}, "give an AsyncFunction, which has async_invoke and timeout"),
        ({"async_function": Blocking()}, "async_invoke.. of Blocking must be written as async def"),
        ({"async_function": AsyncTimeout()}, "timeout.. of AsyncTimeout is async; write it as a"),
        ({"timeout": Time.seconds(0)}, "the timeout is 0 ms; give 1 ms or more"),
        ({"timeout": Time.milliseconds(-5)}, "the timeout is -5 ms; give 1 ms or more"),
        ({"timeout": 5}, "the timeout is 5; give a span of time, for instance Time.seconds"),
        ({"capacity": 0}, "the capacity is 0; give 1 or more"),
        ({"capacity": 2.5}, "the capacity is 2.5; give 1 or more"),
        ({"capacity": True}, "the capacity is True; give 1 or more"),
        ({"output_type": int}, "give one such as Types.INT"),
    ],
)
@WAITS
def test_bad_use_is_refused_where_it_is_written(
    env: Any, wait: str, arguments: dict[str, Any], text: str
) -> None:
    good = {
        "data_stream": env.from_collection([1]),
        "async_function": Double(),
        "timeout": SECOND,
    }
    with pytest.raises(PlanInvalid, match=text):
        getattr(AsyncDataStream, wait)(**{**good, **arguments})


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (None, "ordered_wait_with_retry.. was given the strategy None"),
        (NoPredicate(), "get_retry_predicate.. of NoPredicate must return an AsyncRetryPredicate"),
    ],
)
def test_a_bad_strategy_is_refused(env: Any, strategy: Any, text: str) -> None:
    stream = env.from_collection([1])
    with pytest.raises(PlanInvalid, match=text):
        AsyncDataStream.ordered_wait_with_retry(stream, Double(), SECOND, strategy)


# Strategies and predicates.


def test_a_fixed_delay_counts_retries_not_calls() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(2, 50)
    assert [strategy.can_retry(attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert strategy.get_backoff_time_millis(2) == 50
    assert strategy.get_retry_predicate().result_predicate() is None


def test_exponential_pauses_grow_up_to_the_largest() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(10, 10, 75, 2.0)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 5)] == [10, 20, 40, 75, 75]
    assert strategy.get_backoff_time_millis(10**6) == 75
    assert strategy.get_backoff_time_millis(1) == 10, "records share a strategy, not its state"
    shrinking = AsyncRetryStrategy.exponential_backoff(10, 40, 75, 0.5)
    assert [shrinking.get_backoff_time_millis(n) for n in (1, 2, 3)] == [40, 20, 10]


def test_no_restart_lets_every_answer_stand() -> None:
    for strategy in (AsyncRetryStrategy.no_restart(), NO_RETRY_STRATEGY):
        assert not strategy.can_retry(1)
        assert strategy.get_retry_predicate().exception_predicate() is None


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AsyncRetryStrategy.fixed_delay(0, 1), "max_attempts is 0"),
        (lambda: AsyncRetryStrategy.fixed_delay(1, -1), "backoff_time_millis is -1"),
        (lambda: AsyncRetryStrategy.fixed_delay(1, 1, "empty"), "predicate 'empty'"),
        (lambda: AsyncRetryStrategy.exponential_backoff(1, 0, 1, 1), "initial_delay is 0"),
        (lambda: AsyncRetryStrategy.exponential_backoff(1, 1, 0, 1), "max_retry_delay is 0"),
        (lambda: AsyncRetryStrategy.exponential_backoff(1, 1, 1, 0), "multiplier is 0"),
    ],
)
def test_impossible_numbers_of_a_strategy_are_refused(make: Any, text: str) -> None:
    with pytest.raises(PlanInvalid, match=text):
        make()


def test_predicates_tell_what_they_are_named_for() -> None:
    timed_out = functools.partial(
        async_retry_predicates.exception_type_predicate, expected_error_type=TimeoutError
    )
    assert timed_out(TimeoutError()) and not timed_out(ValueError())
    assert async_retry_predicates.has_exception_predicate(ValueError())
    assert not async_retry_predicates.has_exception_predicate(None)
    assert async_retry_predicates.empty_result_predicate([])
    assert not async_retry_predicates.empty_result_predicate([0])


def test_timeout_fails_by_default_and_names_function_and_record() -> None:
    with pytest.raises(TimeoutError, match="async_invoke.. of Double timed out for the record 7"):
        Double().timeout(7)
