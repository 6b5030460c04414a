"""Asynchronous functions for single records and for batches, their retries and their limits.

A function is copied to every task. There all of it runs in one thread with an event loop of its
own: ``open``, every ``async_invoke`` or ``async_invoke_batch``, ``cost``, ``timeout`` and
``close``. A retry strategy says how often and after which pause a call is made again.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from headgate.base.errors import PlanInvalid
from headgate.functions.function import Function
from headgate.functions.time import Duration, Time, whole_ms
from headgate.functions.type_variables import IN, OUT

ResultTest: TypeAlias = Callable[[list[Any]], object]


ExceptionTest: TypeAlias = Callable[[Exception], object]


class AsyncFunction(Function, Generic[IN, OUT]):
    """A coroutine for each record; many of them run at once.

    ::

        class Look(AsyncFunction):
            async def async_invoke(self, value):
                return [await self.client.get(value)]
    """

    @abstractmethod
    async def async_invoke(self, value: IN, /) -> list[OUT]:
        """The records that come of this one; an empty list drops it. It must not block."""

    def timeout(self, value: IN, /) -> list[OUT]:
        """Called when ``async_invoke`` takes too long; what it returns takes the place."""
        raise TimeoutError(
            f"async_invoke() of {type(self).__name__} timed out for the record {value!r}; "
            f"give it more time, or override timeout() to return records instead"
        )


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which answers of a call are worth another one."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], object] | None:
        """Says yes for results that are not good enough; None: all are."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionTest | None:
        """Says yes for errors that may go away; None: none may."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often, and after which pause, a call is made again. Retries count into the timeout.

    When no attempt is left, the last answer stands: its result is sent on, its error fails the job.
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether another attempt may follow; the first call is attempt 1."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The pause before the next attempt."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Which answers are worth it."""

    @staticmethod
    def no_restart() -> "AsyncRetryStrategy[Any]":
        """Every answer stands."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultTest | None = None,
        exception_predicate: ExceptionTest | None = None,
    ) -> "AsyncRetryStrategy[Any]":
        """Up to ``max_attempts`` times more, always after the same pause."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultTest | None = None,
        exception_predicate: ExceptionTest | None = None,
    ) -> "AsyncRetryStrategy[Any]":
        """Up to ``max_attempts`` times more; each pause is ``multiplier`` times the one before."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[Any]):
    """Two plain callables."""

    def __init__(
        self, result_predicate: ResultTest | None, exception_predicate: ExceptionTest | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultTest | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionTest | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[Any]):
    """Never again."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(None, None)


@dataclass(frozen=True)
class FixedDelayRetryStrategy(AsyncRetryStrategy[Any]):
    """Calls again after the same pause; made by ``AsyncRetryStrategy.fixed_delay``."""

    max_attempts: int
    backoff_time_millis: int
    result_predicate: ResultTest | None = None
    exception_predicate: ExceptionTest | None = None

    def __post_init__(self) -> None:
        _check_positive("fixed_delay", max_attempts=self.max_attempts)
        _check_positive("fixed_delay", backoff_time_millis=self.backoff_time_millis)
        _check_tests("fixed_delay", self.result_predicate, self.exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self.backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(self.result_predicate, self.exception_predicate)


@dataclass(frozen=True)
class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[Any]):
    """Calls again after growing pauses; one object serves all records."""

    max_attempts: int
    initial_delay: int
    max_retry_delay: int
    multiplier: float
    result_predicate: ResultTest | None = None
    exception_predicate: ExceptionTest | None = None

    def __post_init__(self) -> None:
        caller = "exponential_backoff"
        _check_positive(caller, max_attempts=self.max_attempts, initial_delay=self.initial_delay)
        _check_positive(caller, max_retry_delay=self.max_retry_delay, multiplier=self.multiplier)
        _check_tests(caller, self.result_predicate, self.exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self.max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay: float = self.initial_delay
        for _ in range(current_attempts - 1):
            if self.multiplier >= 1 and delay >= self.max_retry_delay:
                break
            delay *= self.multiplier
        return int(min(delay, self.max_retry_delay))

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(self.result_predicate, self.exception_predicate)


NO_RETRY_STRATEGY: AsyncRetryStrategy[Any] = NoRetryStrategy()


def empty_result_predicate(result: list[object] | None) -> bool:
    """The call has found nothing."""
    return not result


def has_exception_predicate(error: BaseException | None) -> bool:
    """The call has failed, however."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None, expected_error_type: type[BaseException]
) -> bool:
    """The call has failed with an error of this type."""
    return isinstance(error, expected_error_type)


class BatchAsyncFunction(Function, Generic[IN, OUT]):
    """A coroutine for each batch of records; several of them run at once.

    ::

        class Embed(BatchAsyncFunction):
            async def async_invoke_batch(self, values):
                return await self.client.embed(values)
    """

    @abstractmethod
    async def async_invoke_batch(self, values: list[IN], /) -> list[OUT]:
        """One result for each value, in their order. It must not block.

        An exception in the place of a result fails only that record. ``RateLimited`` says that the
        server wants fewer calls; any other exception fails the batch.
        """

    def cost(self, value: IN, /) -> float:
        """What a record counts against ``max_cost`` and ``cost_per_second``: tokens, bytes …"""
        return 1

    def timeout(self, value: IN, /) -> OUT:
        """The result of a record whose call has taken too long."""
        raise TimeoutError(
            f"async_invoke_batch() of {type(self).__name__} timed out for the record {value!r}; "
            f"give it more time, or override timeout() to return a result instead"
        )


class RateLimited(Exception):
    """Raised by ``async_invoke_batch`` when the server refuses a call because there are too many.

    ::

        if response.status == 429:
            raise RateLimited(response.headers.get("Retry-After"))

    No call begins for ``retry_after`` seconds; then the batch is called again. This is no retry of
    the retry strategy, and the time does not count towards the timeout. Without a number of seconds
    the pause is 1 second, and doubles up to 1 minute until a call succeeds.
    """

    def __init__(self, retry_after: float | str | None = None) -> None:
        super().__init__(
            "the server wants fewer calls"
            if retry_after is None
            else f"the server wants fewer calls: Retry-After {retry_after}"
        )
        self.retry_after = _seconds(retry_after)
        """None: the server did not say, or said it by a date."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.retry_after,)


@dataclass(frozen=True)
class Batching:
    """When a batch is complete, and how many calls run at once; for each task."""

    max_records: int = 100
    max_wait: Time | Duration = Time.milliseconds(10)
    """The call begins when its first record has waited so long, however few records there are."""
    max_cost: float | None = None
    """The most that ``cost`` of its records may add up to; a record that costs more goes alone."""
    max_calls: int | None = None
    """Calls at the same time; None: as many as ``capacity`` allows. Meanwhile batches grow."""
    split_failed: bool = True
    """Halve a failed batch until the records that fail are found. Only with an error policy."""

    def __post_init__(self) -> None:
        _check_count("Batching", "max_records", self.max_records)
        if self.max_calls is not None:
            _check_count("Batching", "max_calls", self.max_calls)
        if self.max_cost is not None:
            _check_rate("Batching", "max_cost", self.max_cost)
        whole_ms(self.max_wait, "Batching(): max_wait is", 0)
        if type(self.split_failed) is not bool:
            raise PlanInvalid(f"Batching(): split_failed is {self.split_failed!r}; give a bool")


@dataclass(frozen=True)
class RateLimit:
    """How many calls may begin, and what they may cost: of all tasks of the operator together.

    Each task gets an equal share. Calls that have to wait slow the source down; the wait does not
    count towards the timeout of their records.
    """

    requests_per_second: float | None = None
    cost_per_second: float | None = None
    """See ``BatchAsyncFunction.cost``."""
    burst: Time | Duration = Time.milliseconds(100)
    """Calls saved up while there is nothing to call: this much time at the full rate."""

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "cost_per_second"):
            if getattr(self, name) is not None:
                _check_rate("RateLimit", name, getattr(self, name))
        if self.requests_per_second is None and self.cost_per_second is None:
            raise PlanInvalid(
                "RateLimit() was given no limit; give requests_per_second, cost_per_second or both"
            )
        whole_ms(self.burst, "RateLimit(): burst is", 0)


@dataclass(frozen=True)
class CallCache:
    """Results that are used again for records of the same key; each task has a cache of its own.

    Records whose key is being called for wait for that call. Errors are not kept. A cache is not
    part of checkpoints: after a restart it is empty.
    """

    ttl: Time | Duration
    key: Callable[[Any], Hashable] | None = None
    """Gives the key of a record; None: the record is its own key."""
    max_entries: int = 10_000
    """The result that was not used for the longest time gives way."""

    def __post_init__(self) -> None:
        whole_ms(self.ttl, "CallCache(): ttl is", 1)
        if self.key is not None and not callable(self.key):
            raise PlanInvalid(f"CallCache(): key is {self.key!r}; give a callable, or None")
        _check_count("CallCache", "max_entries", self.max_entries)


def _seconds(retry_after: float | str | None) -> float | None:
    """What a header says; a date needs a clock, which is not here."""
    try:
        seconds = math.nan if retry_after is None else float(retry_after)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def _check_count(caller: str, name: str, count: object) -> None:
    if type(count) is not int or count < 1:
        raise PlanInvalid(f"{caller}(): {name} is {count!r}; give 1 or more")


def _check_rate(caller: str, name: str, number: object) -> None:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 < number < math.inf:  # type: ignore[operator] # is_number says so
        raise PlanInvalid(f"{caller}(): {name} is {number!r}; give a number greater than 0")


def _check_positive(caller: str, **numbers: float) -> None:
    for name, number in numbers.items():
        if type(number) not in (int, float) or number <= 0:
            raise PlanInvalid(f"{caller}(): {name} is {number!r}; give a number greater than 0")


def _check_tests(caller: str, *tests: object) -> None:
    for test in tests:
        if test is not None and not callable(test):
            raise PlanInvalid(
                f"{caller}() was given the predicate {test!r}; give a callable, or None for never"
            )
