"""AsyncDataStream: puts an asynchronous function behind a stream."""

from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from headgate.api.checks import check_object
from headgate.api.datastream import DataStream
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.functions.async_functions import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    NoRetryStrategy,
)
from headgate.functions.time import Time, measured_ms


class AsyncDataStream:
    """Up to ``capacity`` records of a task are in flight at once.

    ::

        AsyncDataStream.unordered_wait(stream, Look(), Time.seconds(5), capacity=200)

    *Ordered*: results in the order of their records. *Unordered*: results as they come, but none
    crosses a watermark. A record that takes longer than ``timeout`` goes to ``timeout()``.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Send results on as they come."""
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Send results on in the order of their records."""
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same as ``unordered_wait``, with calls made again by the strategy."""
        wait = _AsyncWait("unordered_wait", timeout, async_retry_strategy, capacity)
        return wait.behind(data_stream, async_function, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same as ``ordered_wait``, with calls made again by the strategy."""
        wait = _AsyncWait("ordered_wait", timeout, async_retry_strategy, capacity)
        return wait.behind(data_stream, async_function, output_type)


@dataclass(frozen=True, slots=True)
class _AsyncWait:
    """How to wait; ``caller`` is the method that says so."""

    caller: str
    timeout: object
    strategy: object
    capacity: int

    def behind(
        self, stream: object, function: AsyncFunction[Any, Any], output_type: TypeInformation | None
    ) -> DataStream:
        caller, capacity = self.caller, self.capacity
        if not isinstance(stream, DataStream):
            raise PlanInvalid(f"{caller}() was given the stream {stream!r}; give a DataStream")
        _check_function(caller, function)
        if type(capacity) is not int or capacity < 1:
            raise PlanInvalid(f"{caller}(): the capacity is {capacity!r}; give 1 or more")
        factory = partial(
            AsyncWaitOperator,
            function,
            _timeout_ms(caller, self.timeout),
            capacity,
            caller == "ordered_wait",
            _checked_strategy(caller, self.strategy),
        )
        return stream._transform("Async Wait", factory, "async function", function, output_type)


def _check_function(caller: str, function: object) -> None:
    check_object(function, caller, ("async_invoke", "timeout"), AsyncFunction)
    whose = type(function).__name__
    if not iscoroutinefunction(function.async_invoke):  # type: ignore[attr-defined]
        raise PlanInvalid(f"{caller}(): async_invoke() of {whose} must be written as async def")
    if iscoroutinefunction(function.timeout):  # type: ignore[attr-defined]
        raise PlanInvalid(f"{caller}(): timeout() of {whose} is async; write it as a plain def")


def _timeout_ms(caller: str, timeout: object) -> int:
    timeout_ms = measured_ms(timeout)
    if timeout_ms is None:
        raise PlanInvalid(f"{caller}(): the timeout is {timeout!r}; give one like Time.seconds(5)")
    if timeout_ms <= 0:
        raise PlanInvalid(
            f"{caller}(): the timeout is {timeout_ms} ms; give more than 0, like Time.seconds(5)"
        )
    return timeout_ms


def _checked_strategy(caller: str, strategy: object) -> AsyncRetryStrategy[Any] | None:
    if not isinstance(strategy, AsyncRetryStrategy):
        raise PlanInvalid(
            f"{caller}_with_retry() was given the strategy {strategy!r}; "
            f"give one like AsyncRetryStrategy.fixed_delay(3, 100)"
        )
    if not isinstance(strategy.get_retry_predicate(), AsyncRetryPredicate):
        raise PlanInvalid(
            f"{caller}_with_retry(): get_retry_predicate() of {type(strategy).__name__} must "
            f"return an AsyncRetryPredicate"
        )
    return None if isinstance(strategy, NoRetryStrategy) else strategy
