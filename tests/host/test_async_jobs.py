"""Whole jobs with asynchronous functions: order, capacity, time, failures, cancellation."""

import asyncio
import functools
import random
import threading
from typing import Any

import pytest

from headgate.base.elements import Bundle, Watermark
from headgate.base.errors import TaskCancelled, UserFunctionFailed
from headgate.base.messages import TaskState
from headgate.core.chain.operator import Operator
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.core.operators.one_input import MapOperator
from headgate.functions.async_functions import (
    AsyncFunction,
    AsyncRetryStrategy,
    exception_type_predicate,
)
from headgate.host.net.exchange import Exchange
from headgate.host.shipping.failures import readable_traceback
from headgate.plan import ship_strategies as ships
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads
from tests.host.rig import eventually

LONG_MS = 60_000


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


class Jitter(AsyncFunction[int, int]):
    """Answers after a while that differs; knows how many calls were under way at once."""

    def __init__(self, most_ms: float = 1.0) -> None:
        self.most_ms = most_ms
        self.under_way = self.most = 0
        self.random = random.Random(7)

    async def async_invoke(self, value: int) -> list[int]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.random.uniform(0, self.most_ms) / 1000)
        self.under_way -= 1
        return [value]


class Stuck(AsyncFunction[int, int]):
    """Never answers."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.closed = 0

    async def async_invoke(self, value: int) -> list[int]:
        self.begun += 1
        try:
            await asyncio.sleep(3600)
        finally:
            self.cancelled += 1
        return []

    def close(self) -> None:
        self.closed += 1


class Stamper(Operator):
    """A timestamp for each record, and a watermark behind every fifth."""

    def process(self, bundle: Bundle, number: int) -> None:
        for record in bundle.records:
            self.output.collect(Bundle([record], [record]))
            if record % 5 == 4:
                self.output.emit_watermark(Watermark(record))


class Row(Operator):
    """Keeps records with their timestamps, and watermarks, in one row."""

    def __init__(self, row: list[Any]) -> None:
        self.row = row

    def process(self, bundle: Bundle, number: int) -> None:
        assert bundle.timestamps is not None
        self.row += zip(bundle.records, bundle.timestamps, strict=True)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self.row.append(watermark)


def waiting(function: Any, capacity: int = 100, ordered: bool = True, **fields: Any) -> Any:
    timeout_ms = fields.pop("timeout_ms", LONG_MS)
    return functools.partial(AsyncWaitOperator, function, timeout_ms, capacity, ordered, **fields)


def across(source: int) -> Any:
    """To a task of its own."""
    return reads(source, ships.rebalance())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chained", [True, False])
def test_all_results_come_once_and_in_order_if_asked(
    exchange: Exchange, ordered: bool, chained: bool
) -> None:
    function, numbers = Jitter(), list(range(2000))
    job = Job()
    source = job.source(numbers)
    node = job.operator(waiting(function, 50, ordered), source if chained else across(source))
    kept = job.collect(node)
    Run(job, exchange).run()
    assert (kept if ordered else sorted(kept)) == numbers
    assert 1 < function.most <= 50


def test_results_go_on_while_nothing_comes_in(exchange: Exchange) -> None:
    job = Job()
    source = job.source([1, 2, 3], endless=True)
    kept = job.collect(across(job.operator(waiting(Jitter(5)), across(source))))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: sorted(kept) == [1, 2, 3], "three results")
    run.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_watermarks_and_timestamps_keep_their_place(exchange: Exchange, ordered: bool) -> None:
    row: list[Any] = []
    job = Job()
    stamped = job.operator(Stamper, job.source(list(range(200))))
    job.operator(lambda: Row(row), job.operator(waiting(Jitter(), 20, ordered), across(stamped)))
    Run(job, exchange).run()
    records = [element for element in row if isinstance(element, tuple)]
    assert sorted(records) == [(n, n) for n in range(200)]
    if ordered:
        assert records == sorted(records)
    for place, element in enumerate(row):
        if isinstance(element, Watermark) and element.timestamp_ms < 200:
            before = [
                time
                for element in row[:place]
                if isinstance(element, tuple)
                for time in element[1:]
            ]
            assert sorted(before) == list(range(element.timestamp_ms + 1))
    assert isinstance(row[-1], Watermark)


def test_async_operators_in_a_row_share_a_task(exchange: Exchange) -> None:
    first, second = Jitter(), Jitter(3)
    job = Job()
    node = job.operator(waiting(first, 30, False), job.source(list(range(500))))
    kept = job.collect(job.operator(waiting(second, 10, True), node))
    run = Run(job, exchange).run()
    assert len(run.job_graph.vertices) == 1
    assert sorted(kept) == list(range(500))
    assert first.most <= 30 and second.most <= 10


def test_a_slow_consumer_holds_the_calls_back(exchange: Exchange) -> None:
    gate, kept = threading.Event(), []

    def slow(record: bytes) -> int:
        gate.wait(20)
        return len(kept.append(record) or kept)

    class Blob(Jitter):
        calls = 0

        async def async_invoke(self, value: int) -> list[Any]:
            Blob.calls += 1
            return [bytes(2000)]

    job = Job()
    blobs = job.operator(waiting(Blob(), 10), job.source(list(range(3000))))
    job.collect(job.operator(functools.partial(MapOperator, slow), across(blobs)))
    run = Run(job, exchange)
    run.deploy()
    calls = -1

    def stands_still() -> bool:
        nonlocal calls
        before, calls = calls, Blob.calls
        return 0 < before == calls

    eventually(stands_still, "no more calls")
    gate.set()
    run.finish()
    assert len(kept) == 3000


def test_parallel_tasks_have_loops_of_their_own(exchange: Exchange) -> None:
    class Where(AsyncFunction[int, Any]):
        async def async_invoke(self, value: int) -> list[Any]:
            return [(value, threading.current_thread().name)]

    job = Job()
    source = job.source(list(range(20)))
    node = job.operator(waiting(Where()), across(source), parallelism=2, name="where")
    kept = job.collect(across(node))
    Run(job, exchange).run()
    assert sorted(value for value, _ in kept) == list(range(20))
    assert {name for _, name in kept} == {
        "headgate-async-where (1/2)",
        "headgate-async-where (2/2)",
    }


# Timeouts and retries.


def test_timed_out_records_are_answered_by_timeout(exchange: Exchange) -> None:
    class Sometimes(Stuck):
        async def async_invoke(self, value: int) -> list[int]:
            return await super().async_invoke(value) if value % 2 else [value]

        def timeout(self, value: int) -> list[int]:
            return [-value, -value]

    job = Job()
    kept = job.collect(job.operator(waiting(Sometimes(), timeout_ms=50), job.source([1, 2, 3, 4])))
    Run(job, exchange).run()
    assert kept == [-1, -1, 2, -3, -3, 4]


def test_a_timeout_without_an_answer_fails_the_job_and_names_the_record(exchange: Exchange) -> None:
    job = Job()
    job.collect(job.operator(waiting(Stuck(), timeout_ms=10), job.source([41]), name="lookup"))
    run = Run(job, exchange)
    run.deploy()
    run.await_end()
    (error,) = run.errors.values()
    assert isinstance(error, UserFunctionFailed)
    assert "operator 'lookup' failed: TimeoutError: async_invoke() of Stuck timed out" in str(error)
    assert "41" in str(error)


def test_failed_calls_are_made_again(exchange: Exchange) -> None:
    class Flaky(AsyncFunction[int, int]):
        def open(self, runtime_context: Any) -> None:
            self.tried: dict[int, int] = {}

        async def async_invoke(self, value: int) -> list[int]:
            self.tried[value] = self.tried.get(value, 0) + 1
            if self.tried[value] <= value % 3:
                raise ConnectionError("busy")
            return [self.tried[value]]

    retry = AsyncRetryStrategy.exponential_backoff(
        2,
        1,
        4,
        2.0,
        exception_predicate=functools.partial(
            exception_type_predicate, expected_error_type=ConnectionError
        ),
    )
    job = Job()
    kept = job.collect(job.operator(waiting(Flaky(), retry=retry), job.source(list(range(30)))))
    Run(job, exchange).run()
    assert kept == [1, 2, 3] * 10


# Failure and cancellation.


class Breaks(AsyncFunction[int, int]):
    """Fails for one of the records, while others are under way."""

    def __init__(self) -> None:
        self.closed = 0

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.001 if value == 7 else 3600)
        return [1 // (value - 7)]

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("capacity", [8, 100])
def test_an_error_fails_the_job_with_the_users_traceback(exchange: Exchange, capacity: int) -> None:
    """With the bundle stuck at the capacity, and with the task idle."""
    function, job = Breaks(), Job()
    source = job.source(list(range(20)), endless=True)
    job.collect(job.operator(waiting(function, capacity), across(source), name="enrich"))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: bool(run.errors), "the failure")
    run.close()
    (error,) = (e for e in run.errors.values() if isinstance(e, UserFunctionFailed))
    assert str(error).startswith("operator 'enrich' failed: ZeroDivisionError")
    text = readable_traceback(error)
    assert text.splitlines()[1].strip().startswith(f'File "{__file__}"')
    assert "in async_invoke" in text
    assert function.closed == 1


@pytest.mark.parametrize("capacity", [5, 100])
@pytest.mark.parametrize("endless", [True, False])
def test_cancellation_ends_calls_in_flight(
    exchange: Exchange, capacity: int, endless: bool
) -> None:
    """While it waits for room, at the end of its input, or idle with calls under way."""
    function, job = Stuck(), Job()
    source = job.source(list(range(20)), endless=endless)
    job.collect(job.operator(waiting(function, capacity), across(source)))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: function.begun == min(capacity, 20), "calls in flight")
    run.cancel()
    run.await_end()
    assert {states[-1] for states in run.states.values()} <= {
        TaskState.CANCELLED,
        TaskState.FINISHED,
    }
    assert not any(not isinstance(error, TaskCancelled) for error in run.errors.values())
    assert function.cancelled == function.begun
    assert function.closed == 1


def test_a_failure_elsewhere_ends_calls_in_flight(exchange: Exchange) -> None:
    function, job = Stuck(), Job()
    source = job.source(list(range(20)), endless=True)
    job.collect(job.operator(waiting(function, 5), across(source)))

    def fail(record: int) -> int:
        while function.begun < 5:
            threading.Event().wait(0.001)
        raise ValueError("elsewhere")

    job.collect(job.operator(functools.partial(MapOperator, fail), across(source)))
    run = Run(job, exchange)
    run.deploy()
    eventually(lambda: any("elsewhere" in str(e) for e in run.errors.values()), "the failure")
    run.close()
    assert function.cancelled == 5
    assert function.closed == 1


def test_an_error_in_open_names_the_operator(exchange: Exchange) -> None:
    class NoServer(Stuck):
        def open(self, runtime_context: Any) -> None:
            raise OSError("no server")

    function, job = NoServer(), Job()
    job.collect(job.operator(waiting(function), job.source([1]), name="enrich"))
    run = Run(job, exchange)
    run.deploy()
    run.await_end()
    (error,) = run.errors.values()
    assert str(error) == "operator 'enrich' failed in open(): OSError: no server"
    assert function.closed == 1
