"""Calls to a model in batches on a local Spark, end to end: HTTP, limits, kills, a CPU model."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.model_server import CallsModel, ModelServer
from headgate.api.datastream import DataStream
from headgate.base.errors import HeadgateError
from headgate.common import Configuration, Time, Types
from headgate.datastream import (
    AsyncDataStream,
    AsyncRetryStrategy,
    BatchAsyncFunction,
    Batching,
    CallCache,
    ErrorPolicy,
    OutputTag,
    RateLimit,
    StreamExecutionEnvironment,
)
from headgate.datastream.async_retry_predicates import has_exception_predicate
from headgate.datastream.connectors import NumberSequenceSource
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")
BATCHING = Batching(20, Time.milliseconds(10))
COUNT = 600


class Doubles(CallsModel):
    """Asks the server; only its numbers."""

    async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
        found = await super().async_invoke_batch([(value, 0) for value in values])
        return [double for double, _ in found]


def test_a_server_is_called_in_batches_and_its_limit_is_kept() -> None:
    with ModelServer(limit=25) as server:
        results = AsyncDataStream.unordered_wait_batch(
            environment().from_collection(list(range(COUNT)), Types.INT()),
            Doubles(server.port),
            Time.seconds(20),
            BATCHING,
            100,
            Types.INT(),
            rate_limit=RateLimit(25),
        )
        assert collected(results) == [2 * n for n in range(COUNT)]
        assert server.refused == 0
        assert len(server.accepted) < COUNT / 5


def test_refused_calls_slow_the_job_down_and_lose_nothing() -> None:
    with ModelServer(limit=10) as server:
        results = AsyncDataStream.ordered_wait_batch(
            environment(1).from_collection(list(range(COUNT))),
            Doubles(server.port),
            Time.milliseconds(900),  # less than the server makes them wait, all in all
            BATCHING,
            200,
        )
        with results.execute_and_collect() as found:
            assert list(found) == [2 * n for n in range(COUNT)]
        assert server.refused > 0
        assert sum(count for _, count in server.accepted) == COUNT


def test_keys_are_asked_for_once_while_their_results_are_young() -> None:
    with ModelServer() as server:
        results = AsyncDataStream.ordered_wait_batch(
            environment(1).from_collection([n % 7 for n in range(COUNT)]),
            Doubles(server.port),
            Time.seconds(20),
            BATCHING,
            cache=CallCache(Time.hours(1)),
        )
        with results.execute_and_collect() as found:
            assert list(found) == [2 * (n % 7) for n in range(COUNT)]
        assert sum(count for _, count in server.accepted) == 7


class Dies(Doubles):
    """Kills its process, once there is a checkpoint, in the middle of a call."""

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(port)
        self.mark, self.checkpoints = folder / "mark", folder / "checkpoints"

    async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
        found = await super().async_invoke_batch(values)
        if not self.mark.exists() and any(self.checkpoints.glob("*/chk-*/_metadata")):
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def slowly(number: int) -> int:
    time.sleep(0.001)
    return number


def numbers(folder: Path, parallelism: int) -> DataStream:
    config = Configuration()
    config.set_string("execution.runtime-mode", "STREAMING")
    config.set_string("execution.checkpointing.interval", "50 ms")
    config.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "10")
    config.set_string("restart-strategy.fixed-delay.delay", "50 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    source = env.from_source(NumberSequenceSource(0, 2 * COUNT - 1), source_name="numbers")
    return source.map(slowly, output_type=Types.LONG())


@pytest.mark.parametrize("ordered", [True, False])
def test_a_killed_worker_loses_no_record_and_ordered_results_stay_in_order(
    tmp_path: Path, ordered: bool
) -> None:
    wait = AsyncDataStream.ordered_wait_batch if ordered else AsyncDataStream.unordered_wait_batch
    with ModelServer(limit=60) as server:
        results = wait(
            numbers(tmp_path, 1 if ordered else 2),
            Dies(server.port, tmp_path),
            Time.seconds(20),
            BATCHING,
            100,
            Types.LONG(),
            rate_limit=RateLimit(60),
            cache=CallCache(Time.seconds(10)),
        )
        with results.execute_and_collect() as found:
            doubles = list(found)
    assert (tmp_path / "mark").exists()
    assert (doubles if ordered else sorted(doubles)) == [2 * n for n in range(2 * COUNT)]


class Scores(BatchAsyncFunction[Any, float]):
    """A small model on the CPU: it blocks, so that it runs in the executor."""

    def open(self, runtime_context: Any) -> None:
        self.weights = np.arange(4.0)

    async def async_invoke_batch(self, values: list[Any]) -> list[float]:
        return await asyncio.get_running_loop().run_in_executor(None, self.predict, values)

    def predict(self, values: list[Any]) -> list[float]:
        return (np.array(values) @ self.weights).tolist()  # type: ignore[no-any-return]


def test_a_model_in_the_worker_scores_batches_and_bad_records_become_dead_letters() -> None:
    rejected = OutputTag("rejected")
    rows = [[n, 1, 2, 3] if n % 50 else [n, 1] for n in range(200)]
    env = environment(1)
    scores = AsyncDataStream.ordered_wait_batch(
        env.from_collection(rows), Scores(), Time.seconds(20), BATCHING
    ).name("score")
    scores.on_error(ErrorPolicy.dead_letters(rejected))
    reasons = scores.get_side_output(rejected).map(lambda letter: letter.record[0])
    with scores.map(lambda score: -1).union(reasons).execute_and_collect() as found:
        records = list(found)
    assert sorted(number for number in records if number >= 0) == [0, 50, 100, 150]
    assert records.count(-1) == 196


class Short(BatchAsyncFunction[int, int]):
    async def async_invoke_batch(self, values: list[int]) -> list[int]:
        return values[1:]


def test_a_wrong_number_of_results_is_told_to_the_driver_with_the_operator() -> None:
    env = environment(1)
    retry = AsyncRetryStrategy.fixed_delay(1, 1, None, has_exception_predicate)
    AsyncDataStream.ordered_wait_batch(
        env.from_collection([1, 2]),
        Short(),
        Time.seconds(5),
        Batching(2),
        async_retry_strategy=retry,
    ).name("short").print()
    with pytest.raises(HeadgateError) as caught:
        env.execute()
    assert "operator 'short'" in str(caught.value)
    assert "async_invoke_batch() of Short returned 1 results; return a list with one result" in (
        str(caught.value)
    )
