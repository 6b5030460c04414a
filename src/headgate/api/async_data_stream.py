"""AsyncDataStream: applies an asynchronous function to a stream."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from headgate.api.checks import check_object
from headgate.api.datastream import DataStream
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.async_calls import BatchSettings
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.functions.async_functions import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BatchAsyncFunction,
    Batching,
    CallCache,
    NoRetryStrategy,
    RateLimit,
)
from headgate.functions.time import Duration, Time, whole_ms
from headgate.functions.type_variables import T, V

DEFAULT_BATCHING: Final = Batching()


class AsyncDataStream:
    """Up to ``capacity`` records of a task are in flight at once.

    ::

        AsyncDataStream.unordered_wait(stream, Look(), Time.seconds(5), capacity=200)

    *Ordered*: results in the order of their records. *Unordered*: results as they come, but none
    crosses a watermark. A record that takes longer than ``timeout`` goes to ``timeout()``.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, V],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Send results on as they come."""
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, V],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Send results on in the order of their records."""
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, V],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[V],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Like ``unordered_wait``, with calls made again by the strategy."""
        wait = _AsyncWait("unordered_wait", timeout, async_retry_strategy, capacity)
        return wait.apply_to(data_stream, async_function, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncFunction[T, V],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[V],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Like ``ordered_wait``, with calls made again by the strategy."""
        wait = _AsyncWait("ordered_wait", timeout, async_retry_strategy, capacity)
        return wait.apply_to(data_stream, async_function, output_type)

    @staticmethod
    def unordered_wait_batch(
        data_stream: DataStream[T],
        async_function: BatchAsyncFunction[T, V],
        timeout: Time | Duration,
        batching: Batching = DEFAULT_BATCHING,
        capacity: int = 1000,
        output_type: TypeInformation | None = None,
        *,
        rate_limit: RateLimit | None = None,
        async_retry_strategy: AsyncRetryStrategy[V] = NO_RETRY_STRATEGY,
        cache: CallCache | None = None,
    ) -> DataStream[V]:
        """Call a function for batches of records, and send results on as they come.

        ::

            AsyncDataStream.unordered_wait_batch(
                texts,
                Embed(),
                Time.seconds(30),
                Batching(max_records=64, max_wait=Time.milliseconds(20)),
                rate_limit=RateLimit(requests_per_second=50),
            )

        ``timeout`` is for the calls of a batch, its retries included. The time that a record waits
        for its batch or for the rate limit does not count.
        """
        wait = _AsyncWait("unordered_wait_batch", timeout, async_retry_strategy, capacity)
        settings = BatchSettings(batching, rate_limit, cache)
        return wait.apply_in_batches_to(data_stream, async_function, settings, output_type)

    @staticmethod
    def ordered_wait_batch(
        data_stream: DataStream[T],
        async_function: BatchAsyncFunction[T, V],
        timeout: Time | Duration,
        batching: Batching = DEFAULT_BATCHING,
        capacity: int = 1000,
        output_type: TypeInformation | None = None,
        *,
        rate_limit: RateLimit | None = None,
        async_retry_strategy: AsyncRetryStrategy[V] = NO_RETRY_STRATEGY,
        cache: CallCache | None = None,
    ) -> DataStream[V]:
        """Like ``unordered_wait_batch``, with results in the order of their records."""
        wait = _AsyncWait("ordered_wait_batch", timeout, async_retry_strategy, capacity)
        settings = BatchSettings(batching, rate_limit, cache)
        return wait.apply_in_batches_to(data_stream, async_function, settings, output_type)


@dataclass(frozen=True, slots=True)
class _AsyncWait:
    """How to wait; ``caller`` is the method that says so."""

    caller: str
    timeout: object
    strategy: object
    capacity: int

    def apply_to(
        self, stream: object, function: AsyncFunction[Any, Any], output_type: TypeInformation | None
    ) -> DataStream:
        checked = self._checked(stream)
        check_object(function, self.caller, ("async_invoke", "timeout"), AsyncFunction)
        _check_methods(self.caller, function, "async_invoke", "timeout")
        factory = self._factory(function, None)
        return checked._transform("Async Wait", factory, "async function", function, output_type)

    def apply_in_batches_to(
        self,
        stream: object,
        function: BatchAsyncFunction[Any, Any],
        settings: BatchSettings,
        output_type: TypeInformation | None,
    ) -> DataStream:
        caller = self.caller
        checked = self._checked(stream)
        methods = ("async_invoke_batch", "timeout", "cost")
        check_object(function, caller, methods, BatchAsyncFunction)
        _check_methods(caller, function, *methods)
        _check_settings(caller, settings)
        if self.capacity < settings.batching.max_records:
            raise PlanInvalid(
                f"{caller}(): the capacity is {self.capacity}, so that no batch can have its "
                f"{settings.batching.max_records} records; give at least as many"
            )
        factory = self._factory(function, settings)
        name, kind = "Async Batch Wait", "batch async function"
        return checked._transform(name, factory, kind, function, output_type)

    def _checked(self, stream: object) -> DataStream:
        caller, capacity = self.caller, self.capacity
        if not isinstance(stream, DataStream):
            raise PlanInvalid(f"{caller}() was given the stream {stream!r}; give a DataStream")
        if type(capacity) is not int or capacity < 1:
            raise PlanInvalid(f"{caller}(): the capacity is {capacity!r}; give 1 or more")
        return stream

    def _factory(
        self,
        function: AsyncFunction[Any, Any] | BatchAsyncFunction[Any, Any],
        settings: BatchSettings | None,
    ) -> Callable[[], AsyncWaitOperator]:
        return partial(
            AsyncWaitOperator,
            function,
            whole_ms(self.timeout, f"{self.caller}(): the timeout is", 1),
            self.capacity,
            self.caller.startswith("ordered"),
            _checked_strategy(self.caller, self.strategy),
            settings,
        )


def _check_methods(caller: str, function: object, invoke: str, *plain: str) -> None:
    whose = type(function).__name__
    if not iscoroutinefunction(getattr(function, invoke)):
        raise PlanInvalid(f"{caller}(): {invoke}() of {whose} must be written as async def")
    for method in plain:
        if iscoroutinefunction(getattr(function, method)):
            raise PlanInvalid(
                f"{caller}(): {method}() of {whose} is async; write it as a plain def"
            )


def _check_settings(caller: str, settings: BatchSettings) -> None:
    wanted = {
        "batching": (settings.batching, Batching, "Batching(max_records=64)"),
        "rate_limit": (settings.rate_limit, RateLimit, "RateLimit(requests_per_second=50)"),
        "cache": (settings.cache, CallCache, "CallCache(Time.minutes(10))"),
    }
    for name, (value, kind, example) in wanted.items():
        if not isinstance(value, kind) and (value is not None or name == "batching"):
            raise PlanInvalid(f"{caller}(): {name} is {value!r}; give one like {example}")


def _checked_strategy(caller: str, strategy: object) -> AsyncRetryStrategy[Any] | None:
    if not isinstance(strategy, AsyncRetryStrategy):
        raise PlanInvalid(
            f"{_with_retry(caller)}() was given the strategy {strategy!r}; "
            f"give one like AsyncRetryStrategy.fixed_delay(3, 100)"
        )
    if not isinstance(strategy.get_retry_predicate(), AsyncRetryPredicate):
        raise PlanInvalid(
            f"{_with_retry(caller)}(): get_retry_predicate() of {type(strategy).__name__} must "
            f"return an AsyncRetryPredicate"
        )
    return None if isinstance(strategy, NoRetryStrategy) else strategy


def _with_retry(caller: str) -> str:
    """The method that was given the strategy."""
    return caller if caller.endswith("_batch") else f"{caller}_with_retry"
