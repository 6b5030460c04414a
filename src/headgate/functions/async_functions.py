"""Asynchronous functions, and the strategies by which their calls are made again.

A function is copied to every task. There all of it runs in one thread with an event loop of its
own: ``open``, every ``async_invoke``, ``timeout`` and ``close``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from headgate.base.errors import PlanInvalid
from headgate.functions.function import Function
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
    """See ``AsyncRetryStrategy.fixed_delay``."""

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
    """See ``AsyncRetryStrategy.exponential_backoff``; one object serves all records."""

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
