"""The seam of asynchronous calls: what counts as results, when to retry, calls without a loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.chain.async_calls import AsyncWork, Retry
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.immediate_calls import ImmediateCalls
from tests.core.chain.kit import StubRetryStrategy


class Function:
    """Calls ``invoke`` in a coroutine."""

    def __init__(self, invoke: Callable[[Any], Any]) -> None:
        self.invoke = invoke
        self.calls: list[Any] = []

    async def async_invoke(self, value: Any) -> Any:
        self.calls.append(value)
        await asyncio.sleep(0)
        return self.invoke(value)

    def timeout(self, value: Any) -> Any:
        return []


def work(function: Any, retry: Retry | None = None, **fields: Any) -> AsyncWork:
    fields = {"begin": lambda: None, "end": lambda: None, "timeout_ms": 1000.0, **fields}
    return AsyncWork(function, retry=retry, **fields)


def call(function: Any, record: Any, retry: Retry | None = None) -> PendingCall:
    calls = ImmediateCalls(work(function, retry), lambda: None)
    slot = PendingCall(record, None)
    calls.submit([slot])
    assert calls.has_completed()
    assert calls.take() == [slot]
    assert not calls.has_completed()
    calls.close()
    return slot


# What a call returns.


@pytest.mark.parametrize("found", [[1, 2], (1, 2), {1: "a", 2: "b"}.keys(), iter([1, 2])])
def test_results_are_a_list_or_something_like_it(found: Any) -> None:
    assert work(Function(lambda v: v)).results_of(found) == [1, 2]


@pytest.mark.parametrize("found", [7, "text", b"bytes", {"a": 1}])
def test_a_bare_value_is_refused_with_what_to_return(found: Any) -> None:
    with pytest.raises(TypeError) as caught:
        work(Function(lambda v: v)).results_of(found)
    assert "The result of AsyncFunction should be of list type" in str(caught.value)
    assert type(found).__name__ in str(caught.value)
    assert "Function" in str(caught.value)


def test_none_is_refused_with_what_to_return() -> None:
    with pytest.raises(TypeError, match="The result of AsyncFunction cannot be none"):
        work(Function(lambda v: v)).results_of(None)


@pytest.mark.parametrize("copies", [True, False])
def test_results_belong_to_their_receiver_unless_objects_are_reused(copies: bool) -> None:
    kept = [[1]]
    results = work(Function(lambda v: v), copies=copies).results_of(kept)
    kept.append([2])
    assert results == [[1]]
    kept[0].append(5)
    assert (results == [[1]]) is copies


# When to try again.


def test_an_answer_stands_when_no_predicate_wants_another() -> None:
    retry = Retry(StubRetryStrategy(9))
    assert retry.pause_ms(1, [], None) is None
    assert retry.pause_ms(1, None, ValueError()) is None


def test_predicates_are_asked_for_their_own_kind_of_answer() -> None:
    retry = Retry(
        StubRetryStrategy(9, result=lambda found: found == [], error=lambda e: "soft" in str(e))
    )
    assert retry.pause_ms(2, [], None) == 20.0
    assert retry.pause_ms(1, [1], None) is None
    assert retry.pause_ms(3, None, ValueError("soft")) == 30.0
    assert retry.pause_ms(1, None, ValueError("hard")) is None


def test_none_is_an_error_and_not_worth_a_retry() -> None:
    assert Retry(StubRetryStrategy(9, result=lambda found: True)).pause_ms(1, None, None) is None


def test_attempts_end() -> None:
    retry = Retry(StubRetryStrategy(2, result=lambda found: True))
    assert [retry.pause_ms(attempt, [], None) for attempt in (1, 2, 3)] == [10.0, 20.0, None]


def test_a_negative_pause_is_none_at_all() -> None:
    strategy = StubRetryStrategy(1, result=lambda found: True)
    strategy.get_backoff_time_millis = lambda attempt: -1.0  # type: ignore[method-assign]
    assert Retry(strategy).pause_ms(1, [], None) == 0.0


# Calls without an event loop.


def test_a_call_is_made_at_once() -> None:
    assert call(Function(lambda v: [v, v + 1]), 1).results == [1, 2]


def test_an_error_comes_back_with_its_slot() -> None:
    error = ValueError("no")

    def fail(value: Any) -> Any:
        raise error

    assert call(Function(fail), 1).error is error


def test_a_call_that_waits_for_the_world_fails_and_is_ended() -> None:
    ended = []

    class Waits(Function):
        async def async_invoke(self, value: Any) -> Any:
            try:
                await _Forever()
            finally:
                ended.append(value)

    error = call(Waits(lambda v: v), 1).error
    assert isinstance(error, RuntimeError) and "no event loop" in str(error)
    assert ended == [1]


class _Forever:
    def __await__(self) -> Any:
        yield "for ever"


def test_retries_are_made_without_pause_until_the_answer_is_good() -> None:
    function = Function(lambda v: [v] if len(function.calls) > 2 else [])
    slot = call(function, 1, Retry(StubRetryStrategy(5, result=lambda found: not found)))
    assert slot.results == [1]
    assert function.calls == [1, 1, 1]


def test_the_last_error_stands_when_no_attempt_is_left() -> None:
    function = Function(lambda v: 1 // 0)
    slot = call(function, 1, Retry(StubRetryStrategy(2, error=lambda e: True)))
    assert isinstance(slot.error, ZeroDivisionError)
    assert function.calls == [1, 1, 1]


def test_begin_and_end_are_called_once_and_may_be_coroutines() -> None:
    heard = []

    async def say(what: str) -> None:
        await asyncio.sleep(0)
        heard.append(what)

    function = Function(lambda v: [v])
    both = work(function, begin=lambda: say("begin"), end=lambda: say("end"))
    calls = ImmediateCalls(both, lambda: None)
    calls.close()
    calls.close()
    assert heard == ["begin", "end"]


def test_a_failing_begin_is_followed_by_the_end() -> None:
    heard = []

    def begin() -> None:
        raise OSError("no server")

    with pytest.raises(OSError, match="no server"):
        ImmediateCalls(work(Function(str), begin=begin, end=lambda: heard.append(1)), lambda: None)
    assert heard == [1]
