"""The seam between the operator that waits for asynchronous calls and the driver that makes them.

The operator hands in slots; the driver runs the user's coroutine for each, or for batches of them,
with timeouts and retries, and hands the slots back with results or an error. Law: every slot comes
back once, unless the calls are closed before. ``ImmediateCalls`` is the driver for one thread
without an event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.base.values import own
from headgate.core.chain.async_queue import PendingCall
from headgate.functions.async_functions import (
    AsyncFunction,
    AsyncRetryStrategy,
    BatchAsyncFunction,
    Batching,
    CallCache,
    RateLimit,
)


@dataclass(frozen=True, slots=True)
class AsyncWork:
    """What a driver has to do. It calls ``begin`` before the first call and ``end`` at its close.

    All of the function is called in one thread, the driver's; ``begin`` and ``end`` may answer with
    something to be awaited.
    """

    function: AsyncFunction[Record, Record]
    begin: Callable[[], object]
    end: Callable[[], object]
    timeout_ms: float
    retry: "Retry | None" = None
    copies: bool = True
    """Whether results must be made the receiver's own."""

    def results_of(self, found: Record) -> list[Record]:
        """What a call or ``timeout`` has returned, as records; errors say what to return."""
        if type(found) is not list:
            _check_list(found, type(self.function).__name__)
        return [own(record) for record in found] if self.copies else list(found)


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What a program says about calls in batches."""

    batching: Batching
    rate_limit: RateLimit | None = None
    cache: CallCache | None = None


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What a driver has to do for calls in batches; see ``AsyncWork``."""

    function: BatchAsyncFunction[Record, Record]
    begin: Callable[[], object]
    end: Callable[[], object]
    timeout_ms: float
    retry: "Retry | None" = None
    copies: bool = True
    settings: BatchSettings = BatchSettings(Batching())
    operator: str = ""
    parallelism: int = 1
    """How many tasks the operator has; each has a share of the rate limit."""
    splits_failed: bool = False
    """Whether a failed batch is halved, to find the records that fail."""


class Retry:
    """Decides after each attempt whether another one follows."""

    def __init__(self, strategy: AsyncRetryStrategy[Record]) -> None:
        predicate = strategy.get_retry_predicate()
        self._strategy = strategy
        self._result_predicate = predicate.result_predicate()
        self._exception_predicate = predicate.exception_predicate()

    def pause_ms(self, attempt: int, found: Record, error: Exception | None) -> float | None:
        """How long to wait before the next attempt; None: do not retry."""
        if error is not None:
            wanted = self._exception_predicate is not None and self._exception_predicate(error)
        else:
            wanted = (
                found is not None
                and self._result_predicate is not None
                and self._result_predicate(found)
            )
        if not wanted or not self._strategy.can_retry(attempt):
            return None
        return max(0.0, self._strategy.get_backoff_time_millis(attempt))


class AsyncCalls(Protocol):
    """Calls under way; all methods are for the task's own thread, outside the baton."""

    def submit(self, slots: list[PendingCall]) -> None:
        """Call the function for these, one by one or in batches."""

    def input_ended(self) -> None:
        """No record follows: a batch need not wait for more."""

    def figures(self) -> BatchFigures | None:
        """Figures of calls in batches, None of single ones; asked from any thread, at any time."""

    def has_completed(self) -> bool:
        """Whether ``take`` has something to give; may be asked inside the baton."""

    def take(self) -> list[PendingCall]:
        """Slots whose calls have ended since the last time."""

    def run(self, action: Callable[[], Record]) -> Record:
        """Call this between the calls, where the function lives; answers as it does."""

    def close(self) -> None:
        """End what still runs, and the function; raises what its end has raised. Idempotent."""


StartCalls: TypeAlias = Callable[[AsyncWork | BatchWork, Callable[[], None]], AsyncCalls]
"""Makes the calls of one operator; the second argument is to be called when some have ended."""


def _check_list(found: Record, whose: str) -> None:
    if found is None:
        raise TypeError(
            f"The result of AsyncFunction cannot be none: return a list from async_invoke() and "
            f"timeout() of {whose}, [] for no records"
        )
    if isinstance(found, str | bytes | dict) or not hasattr(found, "__iter__"):
        raise TypeError(
            f"The result of AsyncFunction should be of list type, not {type(found).__name__}: "
            f"return [record] from async_invoke() and timeout() of {whose}"
        )
