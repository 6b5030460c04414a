"""What users say about calls in batches, and what is refused."""

import pickle
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid
from headgate.functions.async_functions import (
    BatchAsyncFunction,
    Batching,
    CallCache,
    RateLimit,
    RateLimited,
)
from headgate.functions.time import Duration, Time


class Echo(BatchAsyncFunction[Any, Any]):
    async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
        return values


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Batching(0), r"Batching\(\): max_records is 0; give 1 or more"),
        (lambda: Batching(2.5), "max_records is 2.5; give 1 or more"),
        (lambda: Batching(True), "max_records is True; give 1 or more"),
        (lambda: Batching(max_calls=0), "max_calls is 0; give 1 or more"),
        (lambda: Batching(max_cost=0), "max_cost is 0; give a number greater than 0"),
        (lambda: Batching(max_cost=float("nan")), "max_cost is nan; give a number greater than 0"),
        (lambda: Batching(max_wait=10), "max_wait is 10; give a span of time"),
        (lambda: Batching(max_wait=Time.milliseconds(-1)), "max_wait is -1 ms; give 0 ms or more"),
        (lambda: Batching(split_failed=1), "split_failed is 1; give a bool"),
        (lambda: RateLimit(), "was given no limit; give requests_per_second, cost_per_second or"),
        (lambda: RateLimit(0), r"RateLimit\(\): requests_per_second is 0; give a number greater"),
        (lambda: RateLimit(-1), "requests_per_second is -1; give a number greater than 0"),
        (lambda: RateLimit("50"), "requests_per_second is '50'; give a number greater than 0"),
        (lambda: RateLimit(True), "requests_per_second is True; give a number greater than 0"),
        (lambda: RateLimit(cost_per_second=0), "cost_per_second is 0; give a number greater"),
        (lambda: RateLimit(cost_per_second=float("inf")), "cost_per_second is inf; give"),
        (lambda: RateLimit(5, burst=1), "burst is 1; give a span of time"),
        (lambda: CallCache(Time.seconds(0)), r"CallCache\(\): ttl is 0 ms; give 1 ms or more"),
        (lambda: CallCache(60), "ttl is 60; give a span of time"),
        (lambda: CallCache(Time.seconds(1), "id"), "key is 'id'; give a callable, or None"),
        (lambda: CallCache(Time.seconds(1), max_entries=0), "max_entries is 0; give 1 or more"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_give(make: Any, text: str) -> None:
    with pytest.raises(PlanInvalid, match=text):
        make()


def test_spans_may_be_times_or_durations() -> None:
    Batching(max_wait=Duration.of_millis(5))
    RateLimit(0.5, burst=Duration.of_seconds(1))
    CallCache(Duration.of_minutes(5))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, None),
        (2, 2.0),
        (0, 0.0),
        ("1.5", 1.5),
        ("120", 120.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        ([], None),
    ],
)
def test_a_refusal_knows_how_long_to_wait_if_it_was_a_number(said: Any, seconds: Any) -> None:
    assert RateLimited(said).retry_after == seconds


def test_a_refusal_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(RateLimited("2")))
    assert error.retry_after == 2.0
    assert "wants fewer calls" in str(error)


def test_each_record_costs_one_and_times_out_by_default() -> None:
    assert Echo().cost("anything") == 1
    with pytest.raises(TimeoutError, match="async_invoke_batch.. of Echo timed out for the record"):
        Echo().timeout(7)
