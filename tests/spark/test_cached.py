"""A cached stream is computed once, whatever reads it."""

from pathlib import Path
from typing import Any

import pytest

from headgate import (
    Duration,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.base.errors import HeadgateError, PlanInvalid
from headgate.datastream import CachedDataStream
from headgate.datastream.connectors import DataGeneratorSource


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    return env


def noted(path: Path) -> Any:
    def note(value: int) -> int:
        with path.open("a") as file:
            file.write(f"{value}\n")
        return value * 10

    return note


def test_what_leads_to_a_cache_runs_once_until_it_is_invalidated(
    env: StreamExecutionEnvironment, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    cached = env.from_collection([1, 2, 3]).map(noted(calls)).cache()
    assert isinstance(cached, CachedDataStream)
    assert not calls.exists(), "nothing runs before a job reads it"
    cached.map(lambda value: value + 1).print()
    env.execute("first")
    assert sorted(cached.execute_and_collect()) == [10, 20, 30]
    assert sorted(cached.union(cached).execute_and_collect()) == [10, 10, 20, 20, 30, 30]
    assert sorted(calls.read_text().split()) == ["1", "2", "3"]
    assert sorted(line[-2:] for line in capfd.readouterr().out.split("\n") if line) == [
        "11",
        "21",
        "31",
    ]
    cached.invalidate()
    assert sorted(cached.execute_and_collect()) == [10, 20, 30]
    assert len(calls.read_text().split()) == 6


def test_records_keep_their_timestamps(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(1)
    ).with_timestamp_assigner(lambda value, _: value * 400)
    timed = env.from_collection(range(10)).assign_timestamps_and_watermarks(strategy)
    windows = (
        timed.cache().key_by(lambda value: 0).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    )
    assert list(windows.reduce(lambda a, b: a + b).execute_and_collect()) == [3, 7, 18, 17]


def test_a_failure_on_the_way_is_told_and_the_next_job_tries_again(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    flag = tmp_path / "mended"

    def fragile(value: int) -> int:
        if not flag.exists():
            raise ValueError("not yet")
        return value

    cached = env.from_collection([1]).map(fragile).cache()
    with pytest.raises(HeadgateError, match="not yet"):
        cached.execute_and_collect()
    flag.touch()
    assert list(cached.execute_and_collect()) == [1]


def test_a_stream_that_never_ends_is_refused(env: StreamExecutionEnvironment) -> None:
    endless = env.from_source(DataGeneratorSource(lambda n: n), None, "numbers")
    with pytest.raises(PlanInvalid, match="'numbers'.* never ends"):
        endless.map(lambda n: n).cache()
