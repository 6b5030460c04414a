"""Programs that call a function for batches of records, and records that fail in them."""

import asyncio
from typing import Any

import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Time
from headgate.datastream import (
    AsyncDataStream,
    AsyncRetryStrategy,
    BatchAsyncFunction,
    Batching,
    CallCache,
    DataStream,
    ErrorPolicy,
    OutputTag,
    RateLimit,
    RateLimited,
    async_retry_predicates,
)
from tests.semantics.lab import Lab

DEAD = OutputTag("dead")
LETTERS = ErrorPolicy.dead_letters(DEAD)
BOTH = pytest.mark.parametrize("ordered", [True, False])
SECONDS = Time.seconds(20)


def called(
    stream: DataStream, function: Any, ordered: bool, size: int = 4, **more: Any
) -> DataStream:
    wait = AsyncDataStream.ordered_wait_batch if ordered else AsyncDataStream.unordered_wait_batch
    batching = more.pop("batching", Batching(size, Time.milliseconds(20)))
    timeout = more.pop("timeout", SECONDS)
    return wait(stream, function, timeout, batching, **more).set_parallelism(1).name("calls")


class Divides(BatchAsyncFunction[int, int]):
    """Fails for a batch with a zero in it."""

    async def async_invoke_batch(self, values: list[int]) -> list[int]:
        await asyncio.sleep(0.001)
        return [12 // value for value in values]


class Wrong(BatchAsyncFunction[int, Any]):
    """Returns what it is made of."""

    def __init__(self, found: Any) -> None:
        self.found = found

    async def async_invoke_batch(self, values: list[int]) -> list[int]:
        return self.found  # type: ignore[no-any-return]


@BOTH
def test_bad_records_of_a_batch_become_dead_letters_and_the_others_go_on(
    lab: Lab, ordered: bool
) -> None:
    numbers = lab.read(1, 2, 0, 3, 4, 0, 6)
    stream = called(numbers, Divides(), ordered, 5).on_error(LETTERS)
    records, letters = lab.run(stream, stream.get_side_output(DEAD))
    assert (records if ordered else sorted(records, reverse=True)) == [12, 6, 4, 3, 2]
    assert [(letter.operator, letter.record, letter.error_class) for letter in letters] == [
        ("calls", 0, "ZeroDivisionError")
    ] * 2


def test_without_halving_a_failed_batch_is_left_out_as_a_whole(lab: Lab) -> None:
    batching = Batching(2, Time.seconds(5), split_failed=False)
    stream = called(lab.read(1, 0, 2, 3), Divides(), True, batching=batching)
    assert lab.run(stream.on_error(ErrorPolicy.SKIP)) == [6, 4]


def test_without_a_policy_a_failed_batch_fails_the_job(lab: Lab) -> None:
    with pytest.raises(UserFunctionFailed, match="operator 'calls' failed: ZeroDivisionError"):
        lab.run(called(lab.read(1, 0), Divides(), True))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (Wrong(None), "TypeError: async_invoke_batch() of Wrong returned None; return a list with"),
        (Wrong(7), "of Wrong returned a value of type int; return a list with one result for each"),
        (Wrong([1]), "of Wrong returned 1 results; return a list with one result for each of the"),
    ],
)
def test_a_wrong_answer_names_operator_function_and_what_to_return(
    lab: Lab, function: Any, text: str
) -> None:
    with pytest.raises(UserFunctionFailed) as caught:
        lab.run(called(lab.read(1, 2), function, True, 2))
    assert str(caught.value).startswith("operator 'calls' failed: ")
    assert text in str(caught.value)


def test_an_exit_in_a_call_fails_the_job_whatever_the_policy(lab: Lab) -> None:
    class Exits(BatchAsyncFunction[int, int]):
        async def async_invoke_batch(self, values: list[int]) -> list[int]:
            raise SystemExit(3)

    with pytest.raises(UserFunctionFailed, match="operator 'calls' failed: SystemExit: 3"):
        lab.run(called(lab.read(1, 2), Exits(), True).on_error(ErrorPolicy.SKIP))


def test_a_record_whose_cost_is_wrong_is_left_out(lab: Lab) -> None:
    class Priced(Divides):
        def cost(self, value: int) -> float:
            return 5 - value

    limit = RateLimit(cost_per_second=1e6)
    stream = called(lab.read(1, 12, 2), Priced(), True, rate_limit=limit).on_error(LETTERS)
    records, letters = lab.run(stream, stream.get_side_output(DEAD))
    assert records == [12, 6]
    assert letters[0].reason == (
        "cost() of Priced returned -7 for the record 12; it must return a number of 0 or more"
    )


@BOTH
def test_a_slow_batch_is_answered_by_timeout_record_by_record(lab: Lab, ordered: bool) -> None:
    class Slow(Divides):
        async def async_invoke_batch(self, values: list[int]) -> list[int]:
            if 7 in values:
                await asyncio.sleep(60)
            return await super().async_invoke_batch(values)

        def timeout(self, value: int) -> int:
            return -value

    numbers = lab.read(6, 7, 3, 4)
    stream = called(numbers, Slow(), ordered, 2, timeout=Time.milliseconds(800))
    found = lab.run(stream)
    assert (found if ordered else sorted(found)) == ([-6, -7, 4, 3] if ordered else [-7, -6, 3, 4])


class Refuses(BatchAsyncFunction[int, int]):
    """A server that refuses every other call, and is busy now and then."""

    def open(self, runtime_context: Any) -> None:
        self.calls = 0

    async def async_invoke_batch(self, values: list[int]) -> list[int]:
        self.calls += 1
        if self.calls % 2 == 0:
            raise RateLimited(0.02)
        if self.calls % 5 == 0:
            raise ConnectionError("busy")
        return [-value for value in values]


@BOTH
def test_refused_and_busy_calls_are_made_again_and_nothing_is_lost(lab: Lab, ordered: bool) -> None:
    retry = AsyncRetryStrategy.fixed_delay(
        9, 1, exception_predicate=async_retry_predicates.has_exception_predicate
    )
    stream = called(
        lab.read(*range(100)).set_parallelism(1),
        Refuses(),
        ordered,
        async_retry_strategy=retry,
        timeout=Time.seconds(5),
        capacity=12,
    )
    found = lab.run(stream)
    assert (found if ordered else sorted(found, reverse=True)) == [-n for n in range(100)]


def test_a_key_is_called_for_once(lab: Lab) -> None:
    class Counts(BatchAsyncFunction[int, Any]):
        def open(self, runtime_context: Any) -> None:
            self.calls = 0

        async def async_invoke_batch(self, values: list[int]) -> list[Any]:
            self.calls += len(values)
            return [(value % 5, self.calls) for value in values]

    numbers = lab.read(*range(50)).set_parallelism(1)
    cache = CallCache(Time.hours(1), key=lambda n: n % 5)
    found = lab.run(called(numbers, Counts(), True, 5, cache=cache))
    assert found == [(n % 5, 5) for n in range(50)]
