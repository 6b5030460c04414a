"""Calls for batches on a real event loop: order of events, timeouts, context, a blocked loop."""

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import pytest

from headgate.functions.async_functions import Batching, RateLimit, RateLimited
from headgate.functions.time import Time
from headgate.host.worker import async_calls
from tests.core.chain.batch_kit import Negate, batch_work
from tests.core.chain.kit import StubRetryStrategy
from tests.host.async_kit import DrivenCalls
from tests.host.rig import eventually


def driven_batches(*args: Any, **fields: Any) -> DrivenCalls:
    return DrivenCalls(batch_work(*args, **fields))


def test_records_are_called_in_batches_and_the_rest_after_its_wait() -> None:
    function = Negate()
    with driven_batches(function, Batching(3, Time.milliseconds(20))) as driven:
        driven.submit(1, 2, 3, 4)
        answers = driven.take(4)
    assert {slot.record: slot.results for slot in answers} == {n: [-n] for n in (1, 2, 3, 4)}
    assert function.calls == [[1, 2, 3], [4]]


def test_the_end_of_the_input_begins_an_unfinished_batch() -> None:
    with driven_batches(None, Batching(10, Time.hours(1))) as driven:
        driven.submit(1, 2)
        driven.calls.input_ended()
        assert len(driven.take(2)) == 2


def test_calls_begin_no_faster_than_the_limit_allows() -> None:
    began: list[float] = []

    class Notes(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            began.append(time.monotonic())
            return await super().async_invoke_batch(values)

    limit = RateLimit(10, burst=Time.milliseconds(0))
    with driven_batches(Notes(), Batching(1), rate_limit=limit, timeout_ms=250) as driven:
        driven.submit(*range(5))
        answers = driven.take(5)
        assert all(slot.error is None for slot in answers), "the limiter's time does not count"
        assert driven.figures().throttled_ms >= 350
    assert began[-1] - began[0] >= 0.39


def test_a_refused_batch_is_called_again_after_the_pause() -> None:
    class Refuses(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            found = await super().async_invoke_batch(values)
            if len(self.calls) == 1:
                raise RateLimited(0.4)
            return found

    function = Refuses()
    with driven_batches(function, Batching(2), timeout_ms=300) as driven:
        began = time.monotonic()
        driven.submit(1, 2)
        assert all(slot.error is None for slot in driven.take(2))
        assert time.monotonic() - began >= 0.4
        assert driven.figures().refused == 1
    assert function.calls == [[1, 2], [1, 2]]


def test_a_slow_call_is_cancelled_and_its_late_outcome_dropped() -> None:
    cancelled = threading.Event()

    class Slow(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
            return values

        def timeout(self, value: Any) -> Any:
            return ("late", value)

    with driven_batches(Slow(), Batching(2), timeout_ms=20) as driven:
        driven.submit(1, 2)
        answers = driven.take(2)
        assert cancelled.wait(10)
        assert not driven.calls.take()
    assert [slot.results for slot in answers] == [[("late", 1)], [("late", 2)]]


def test_retries_follow_the_strategy() -> None:
    class Flaky(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            found = await super().async_invoke_batch(values)
            if len(self.calls) < 3:
                raise ConnectionError
            return found

    retry = StubRetryStrategy(5, error=lambda e: isinstance(e, ConnectionError))
    with driven_batches(Flaky(), Batching(2), retry) as driven:
        driven.submit(1, 2)
        assert [slot.results for slot in driven.take(2)] == [[-1], [-2]]
        assert driven.figures().retries == 2


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_comes_back_and_the_loop_goes_on(error: BaseException) -> None:
    class Fails(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            if "bad" in values:
                raise error
            return values

    with driven_batches(Fails(), Batching(1)) as driven:
        driven.submit("bad")
        assert driven.take(1)[0].error is error
        driven.submit("good")
        assert driven.take(1)[0].results == ["good"]


def test_a_call_that_is_cancelled_by_the_function_itself_is_an_error() -> None:
    class Cancels(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            raise asyncio.CancelledError

    with driven_batches(Cancels(), Batching(1)) as driven:
        driven.submit(1)
        assert "async_invoke_batch() of Cancels was cancelled" in str(driven.take(1)[0].error)


def test_calls_see_no_context_variables_of_each_other() -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)

    class Sets(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            before = variable.get()
            variable.set(values[0])
            return [before]

    with driven_batches(Sets(), Batching(1, max_calls=1)) as driven:
        driven.submit(1, 2, 3)
        assert [slot.results for slot in driven.take(3)] == [[None]] * 3


def test_close_ends_calls_that_wait_for_anything() -> None:
    ended = []

    class Stuck(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(values)
            return values

    limit = RateLimit(0.1)
    with driven_batches(Stuck(), Batching(1), rate_limit=limit) as driven:
        driven.submit(1, 2, 3)
        eventually(lambda: driven.figures().in_flight == 1, "the first call")
    assert ended == [[1]]
    assert not driven.calls.has_completed()


def test_a_function_that_blocks_the_loop_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_calls, "BEAT_S", 0.01)
    monkeypatch.setattr(async_calls, "BLOCKED_S", 0.1)

    class Blocks(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            await asyncio.sleep(0)
            time.sleep(0.3)
            await asyncio.sleep(0.05)
            return values

    driven = driven_batches(Blocks(), Batching(1, max_calls=1))
    with caplog.at_level(logging.WARNING), driven:
        driven.submit(1, 2)
        driven.take(2)
    (line,) = [record.message for record in caplog.records if "event loop" in record.message]
    assert line.startswith("operator 'embed': Blocks has blocked its event loop for 0.")
    assert "run_in_executor" in line
