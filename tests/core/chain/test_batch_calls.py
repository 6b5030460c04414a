"""Calls in batches without an event loop: made at once, to their end, in no time."""

import asyncio
from typing import Any

import pytest

from headgate.core.chain.async_calls import AsyncWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.immediate_calls import ImmediateBatchCalls, ImmediateCalls, immediate_calls
from headgate.functions.async_functions import Batching, RateLimit, RateLimited
from headgate.functions.time import Time
from tests.core.chain.batch_kit import Negate, batch_work
from tests.core.chain.kit import StubRetryStrategy


def submitted(calls: ImmediateBatchCalls, *records: Any) -> list[PendingCall]:
    slots = [PendingCall(record, None) for record in records]
    calls.submit(slots)
    assert calls.has_completed()
    assert set(calls.take()) == set(slots)
    assert not calls.has_completed()
    return slots


def test_records_are_called_in_batches() -> None:
    function = Negate()
    calls = ImmediateBatchCalls(batch_work(function, Batching(2)), lambda: None)
    slots = submitted(calls, 1, 2, 3)
    assert [slot.results for slot in slots] == [[-1], [-2], [-3]]
    assert function.calls == [[1, 2], [3]]
    calls.input_ended()
    figures = calls.figures()
    assert figures is not None and figures.calls == 2
    calls.close()


def test_waits_of_all_kinds_take_no_time() -> None:
    class Moody(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            await asyncio.sleep(0)
            if len(self.calls) == 0:
                self.calls.append(values)
                raise RateLimited(3600)
            if len(self.calls) == 1:
                self.calls.append(values)
                raise ConnectionError
            return await super().async_invoke_batch(values)

    work = batch_work(
        Moody(),
        Batching(1, Time.hours(1)),
        StubRetryStrategy(1, error=lambda e: True),
        rate_limit=RateLimit(0.001),
    )
    calls = ImmediateBatchCalls(work, lambda: None)
    assert [slot.results for slot in submitted(calls, 1, 2)] == [[-1], [-2]]
    calls.close()


def test_an_error_comes_back_with_its_records() -> None:
    class Fails(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            raise ValueError("no")

    calls = ImmediateBatchCalls(batch_work(Fails()), lambda: None)
    assert [str(slot.error) for slot in submitted(calls, 1, 2)] == ["no", "no"]
    calls.close()


def test_begin_and_end_are_called_once() -> None:
    heard: list[str] = []
    work = batch_work(begin=lambda: heard.append("begin"), end=lambda: heard.append("end"))
    calls = ImmediateBatchCalls(work, lambda: None)
    calls.close()
    calls.close()
    assert heard == ["begin", "end"]
    assert calls.run(lambda: 7) == 7


def test_a_failing_begin_is_followed_by_the_end() -> None:
    heard: list[str] = []

    def begin() -> None:
        raise OSError("no server")

    with pytest.raises(OSError, match="no server"):
        ImmediateBatchCalls(batch_work(begin=begin, end=lambda: heard.append("end")), lambda: None)
    assert heard == ["end"]


def test_the_kind_of_work_chooses_the_driver() -> None:
    assert isinstance(immediate_calls(batch_work(), lambda: None), ImmediateBatchCalls)
    single: Any = Negate()
    work = AsyncWork(single, lambda: None, lambda: None, 1000)
    assert isinstance(immediate_calls(work, lambda: None), ImmediateCalls)
