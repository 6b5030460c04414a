"""Asynchronous calls on a real event loop: results, timeouts, retries, errors, their end."""

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from typing import Any

import pytest

from headgate.core.chain.async_calls import AsyncWork, Retry
from headgate.host.worker import async_calls
from tests.core.chain.kit import StubRetryStrategy
from tests.host.async_kit import DrivenCalls
from tests.host.rig import eventually

LONG_MS = 60_000


class Lookup:
    """A function whose calls wait until they are let go; records what happens, and where."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.seen: list[Any] = []
        self.gate = threading.Event()
        self.attempts: dict[Any, int] = {}

    def begin(self) -> Any:
        self.threads.add(threading.current_thread().name)

    def end(self) -> Any:
        self.threads.add(threading.current_thread().name)

    async def async_invoke(self, value: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        self.attempts[value] = self.attempts.get(value, 0) + 1
        return await self.answer(value)

    async def answer(self, value: Any) -> Any:
        while not self.gate.is_set():
            await asyncio.sleep(0.001)
        return [value * 2]

    def timeout(self, value: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        self.seen.append(("timeout", value))
        return [("late", value)]


def driven_calls(function: Lookup, timeout_ms: float = LONG_MS, retry: Any = None) -> DrivenCalls:
    strategy = retry and Retry(retry)
    return DrivenCalls(AsyncWork(function, function.begin, function.end, timeout_ms, strategy))


def test_calls_run_side_by_side_and_all_of_the_function_in_one_thread() -> None:
    function = Lookup()
    with driven_calls(function) as driven:
        driven.submit(1, 2)
        driven.submit(3)
        eventually(lambda: len(function.attempts) == 3, "three calls at once")
        assert not driven.calls.has_completed()
        function.gate.set()
        assert sorted((s.record, s.results) for s in driven.take(3)) == [
            (1, [2]),
            (2, [4]),
            (3, [6]),
        ]
    assert function.threads == {"headgate-async-test"}


def test_answers_are_told_once_until_they_are_taken() -> None:
    class AtOnce(Lookup):
        async def answer(self, value: Any) -> Any:
            return [value]

    with driven_calls(AtOnce()) as driven:
        for number in range(50):
            driven.submit(*range(number * 10, number * 10 + 10))
        eventually(lambda: sum(map(len, driven.calls._ended)) == 500, "all answers")
        assert driven.notified == 1
        assert sorted(slot.record for slot in driven.take(500)) == list(range(500))
        driven.submit("more")
        driven.take(1)
        assert driven.notified == 2


# Timeouts.


def test_a_slow_call_is_cancelled_and_answered_by_timeout() -> None:
    cancelled = []

    class Slow(Lookup):
        async def answer(self, value: Any) -> Any:
            try:
                if value == "slow":
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(value)
                raise
            return [value]

    with driven_calls(Slow(), timeout_ms=30) as driven:
        driven.submit("slow", "fast")
        answers = {slot.record: slot.results for slot in driven.take(2)}
    assert answers == {"slow": [("late", "slow")], "fast": ["fast"]}
    assert cancelled == ["slow"]


def test_deadlines_of_later_calls_are_kept_too() -> None:
    with driven_calls(Lookup(), timeout_ms=30) as driven:
        driven.submit(1)
        time.sleep(0.01)
        driven.submit(2)
        driven.take(2)
        driven.submit(3)
        assert driven.take(1)[0].results == [("late", 3)]
        assert driven.function.seen == [("timeout", 1), ("timeout", 2), ("timeout", 3)]


def test_an_answer_that_comes_after_the_timeout_is_dropped() -> None:
    ended = threading.Event()

    class Stubborn(Lookup):
        async def answer(self, value: Any) -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(0.01)
            ended.set()
            return ["after all"]

    with driven_calls(Stubborn(), timeout_ms=20) as driven:
        (slot,) = driven.submit(1)
        driven.take(1)
        assert ended.wait(10)
        driven.submit(2)
        assert [s.record for s in driven.take(1)] == [2]
        assert slot.results == [("late", 1)]


def test_an_error_in_timeout_comes_back_with_the_record() -> None:
    class Fails(Lookup):
        def timeout(self, value: Any) -> Any:
            raise TimeoutError(f"{value} took too long")

    with driven_calls(Fails(), timeout_ms=10) as driven:
        driven.submit(1)
        (slot,) = driven.take(1)
        assert str(slot.error) == "1 took too long"


# Errors and retries.


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_an_error_comes_back_and_the_loop_goes_on(error: BaseException) -> None:
    class Fails(Lookup):
        async def answer(self, value: Any) -> Any:
            if value == "bad":
                raise error
            return [value]

    with driven_calls(Fails()) as driven:
        driven.submit("bad")
        assert driven.take(1)[0].error is error
        driven.submit("good")
        assert driven.take(1)[0].results == ["good"]


def test_a_call_that_is_cancelled_by_the_function_itself_is_an_error() -> None:
    class Cancels(Lookup):
        async def answer(self, value: Any) -> Any:
            raise asyncio.CancelledError

    with driven_calls(Cancels()) as driven:
        driven.submit(1)
        assert "async_invoke() of Cancels was cancelled" in str(driven.take(1)[0].error)


def test_a_wrong_result_is_an_error() -> None:
    class Bare(Lookup):
        async def answer(self, value: Any) -> Any:
            return value

    with driven_calls(Bare()) as driven:
        driven.submit(1, None)
        texts = [str(slot.error) for slot in driven.take(2)]
    assert "The result of AsyncFunction should be of list type" in texts[0]
    assert "The result of AsyncFunction cannot be none" in texts[1]


def test_a_result_is_the_receivers_own_before_the_next_call_runs() -> None:
    kept: list[int] = []

    class Reuses(Lookup):
        async def answer(self, value: Any) -> Any:
            kept.append(value)
            return [kept]

    with driven_calls(Reuses()) as driven:
        driven.submit(1, 2)
        assert [slot.results for slot in driven.take(2)] == [[[1]], [[1, 2]]]


def test_calls_see_no_context_variables_of_each_other() -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)

    class Sets(Lookup):
        async def answer(self, value: Any) -> Any:
            before = variable.get()
            variable.set(value)
            return [before]

    with driven_calls(Sets()) as driven:
        driven.submit(1, 2, 3)
        assert [slot.results for slot in driven.take(3)] == [[None]] * 3


def test_retries_follow_the_strategy() -> None:
    class Flaky(Lookup):
        async def answer(self, value: Any) -> Any:
            if self.attempts[value] < 3:
                raise ConnectionError("try again")
            return [] if self.attempts[value] < 4 else [value]

    strategy = StubRetryStrategy(
        5, lambda found: not found, lambda e: isinstance(e, ConnectionError)
    )
    strategy.get_backoff_time_millis = lambda attempt: 1.0  # type: ignore[method-assign]
    with driven_calls(Flaky(), retry=strategy) as driven:
        driven.submit("a", "b")
        assert {s.record: s.results for s in driven.take(2)} == {"a": ["a"], "b": ["b"]}
        assert driven.function.attempts == {"a": 4, "b": 4}


def test_retries_stay_within_the_timeout() -> None:
    class Fails(Lookup):
        async def answer(self, value: Any) -> Any:
            raise ConnectionError

    strategy = StubRetryStrategy(10**9, error=lambda e: True)
    with driven_calls(Fails(), timeout_ms=50, retry=strategy) as driven:
        driven.submit(1)
        assert driven.take(1)[0].results == [("late", 1)]
        attempts = driven.function.attempts[1]
        driven.submit(2)
        driven.take(1)
        assert driven.function.attempts[1] == attempts, "the first record is tried no more"


# Begin and end.


def test_begin_may_use_the_loop_and_what_it_makes_serves_the_calls() -> None:
    class WithPool(Lookup):
        def begin(self) -> Any:
            self.queue = asyncio.get_event_loop().run_until_complete(self.connect())

        async def connect(self) -> Any:
            self.loop = asyncio.get_running_loop()
            return asyncio.Queue()

        async def answer(self, value: Any) -> Any:
            assert asyncio.get_running_loop() is self.loop
            await self.queue.put(value)
            return [await self.queue.get()]

        def end(self) -> Any:
            asyncio.run(asyncio.sleep(0))  # as careless programs do

    with driven_calls(WithPool()) as driven:
        driven.submit(1)
        assert driven.take(1)[0].results == [1]


def test_begin_and_end_may_be_coroutines() -> None:
    class Async(Lookup):
        async def begin(self) -> None:
            await asyncio.sleep(0)
            self.seen.append("begin")

        async def end(self) -> None:
            await asyncio.sleep(0)
            self.seen.append("end")

    with driven_calls(Async()) as driven:
        assert driven.function.seen == ["begin"]
    assert driven.function.seen == ["begin", "end"]


def test_a_failing_begin_ends_the_function_and_the_thread() -> None:
    class Fails(Lookup):
        def begin(self) -> Any:
            raise OSError("no server")

        def end(self) -> Any:
            self.seen.append("end")

    function = Fails()
    with pytest.raises(OSError, match="no server"):
        driven_calls(function)
    assert function.seen == ["end"]


def test_a_failing_end_is_raised_by_close() -> None:
    class Fails(Lookup):
        def end(self) -> Any:
            raise OSError("still busy")

    driven = driven_calls(Fails())
    with pytest.raises(OSError, match="still busy"):
        driven.calls.close()
    driven.calls.close()


def test_close_cancels_calls_and_what_they_have_started() -> None:
    cancelled = []

    class Spawns(Lookup):
        async def answer(self, value: Any) -> Any:
            self.task = asyncio.ensure_future(self.rest("beside"))
            return await self.rest(value)

        async def rest(self, value: Any) -> Any:
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.append(value)

        def end(self) -> Any:
            self.seen.append(sorted(cancelled))

    with driven_calls(Spawns()) as driven:
        driven.submit("call")
        eventually(lambda: bool(driven.function.attempts), "the call")
        driven.submit("never begun, perhaps")
    assert {"beside", "call"} <= set(cancelled)
    assert driven.function.seen == [sorted(cancelled)], "the function ends after its calls"
    assert not driven.calls.has_completed()


def test_close_waits_for_blocking_work_in_the_executor() -> None:
    began, ended = threading.Event(), []

    class Blocks(Lookup):
        async def answer(self, value: Any) -> Any:
            def block() -> None:
                began.set()
                time.sleep(0.05)
                ended.append(value)

            await asyncio.get_running_loop().run_in_executor(None, block)

    with driven_calls(Blocks()) as driven:
        driven.submit(1)
        assert began.wait(10)
    assert ended == [1]
    assert not [t for t in threading.enumerate() if t.name.startswith("headgate-async")]


def test_a_function_may_stop_the_loop_but_not_end_it() -> None:
    class Stops(Lookup):
        async def answer(self, value: Any) -> Any:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
            return [value]

    with driven_calls(Stops()) as driven:
        driven.submit(1, 2)
        assert sorted(slot.record for slot in driven.take(2)) == [1, 2]


def test_a_coroutine_that_ignores_its_cancellation_is_cancelled_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_calls, "CANCEL_S", 0.02)
    ignored = []

    class Stubborn(Lookup):
        async def answer(self, value: Any) -> Any:
            for _ in range(2):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    ignored.append(value)
            return await asyncio.sleep(60)

    with caplog.at_level(logging.ERROR), driven_calls(Stubborn()) as driven:
        driven.submit(1)
        eventually(lambda: bool(driven.function.attempts), "the call")
    assert ignored == [1, 1]
    assert "ignore" not in caplog.text


def test_no_thread_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):  # and the loop is closed: no_leaks
        driven_calls(Lookup())


def test_something_else_of_the_function_is_called_where_it_lives() -> None:
    driven = driven_calls(Lookup())
    driven.submit(1, 2)
    names = [driven.calls.run(lambda: threading.current_thread().name) for _ in range(2)]
    assert set(names) == driven.function.threads == {"headgate-async-test"}
    for trouble in (ValueError("no"), SystemExit(3)):

        def fail(error: BaseException = trouble) -> None:
            raise error

        with pytest.raises(type(trouble)):
            driven.calls.run(fail)
    driven.function.gate.set()
    eventually(driven.calls.has_completed, "the calls end")
    driven.calls.close()
