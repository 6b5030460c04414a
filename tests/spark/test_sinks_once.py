"""Sinks that commit with checkpoints, in jobs that fail and go on: every record once."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.api.datastream import DataStream
from headgate.common import Configuration, Encoder, Types
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import (
    NumberSequenceSource,
    ParquetSink,
    SqliteSink,
    TextFileSink,
)
from headgate.datastream.connectors.file_system import FileSink, RollingPolicy
from tests.host.checkpoint_kit import FailsBehindCheckpoints

pytestmark = pytest.mark.usefixtures("spark")

COUNT = 1_500


class Trouble:
    """Fails once, when there is a checkpoint to go on from and some more has been written."""

    def __init__(self, folder: Path, how: str) -> None:
        self.mark, self.checkpoints, self.how = folder / "mark", folder / "checkpoints", how

    def __call__(self, number: int) -> int:
        time.sleep(0.001)
        if not self.mark.exists() and any(self.checkpoints.glob("*/chk-*/_metadata")):
            self.mark.write_text(str(os.getpid()))
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return number


def numbers(folder: Path, trouble: Callable[[int], int], interval: str = "50 ms") -> DataStream:
    config = Configuration()
    config.set_string("execution.runtime-mode", "STREAMING")
    config.set_string("execution.checkpointing.interval", interval)
    config.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "10")
    config.set_string("restart-strategy.fixed-delay.delay", "50 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    source = env.from_source(NumberSequenceSource(1, COUNT), source_name="numbers")
    return source.map(trouble, output_type=Types.LONG())


@pytest.mark.parametrize("how", ["fail", "kill"])
def test_files_and_rows_and_results_hold_every_record_once(tmp_path: Path, how: str) -> None:
    path = tmp_path / "out.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE found (n INTEGER)")
    stream = numbers(tmp_path, Trouble(tmp_path, how))
    policy = RollingPolicy.default_rolling_policy(part_size=1000)
    stream.sink_to(TextFileSink(tmp_path / "text", rolling_policy=policy))
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    stream.map(lambda n: (n,), output_type=row).sink_to(ParquetSink(tmp_path / "parquet"))
    stream.sink_to(SqliteSink(path, "INSERT INTO found VALUES (?)"))
    with stream.execute_and_collect() as results:
        collected = sorted(results)
    assert (tmp_path / "mark").exists()
    everything = list(range(1, COUNT + 1))
    assert collected == everything
    with closing(sqlite3.connect(path)) as db:
        assert [n for (n,) in db.execute("SELECT n FROM found ORDER BY n")] == everything
    texts = [file for file in (tmp_path / "text").iterdir() if file.name[0] != "."]
    assert sorted(int(line) for file in texts for line in file.read_text().split()) == everything
    assert len(texts) > 2
    table = pq.read_table(tmp_path / "parquet")
    assert sorted(table.column("n").to_pylist()) == everything
    hidden = [*(tmp_path / "text").glob(".*"), *(tmp_path / "parquet").glob(".*")]
    assert hidden == []


def test_parts_that_roll_by_size_lose_nothing_when_a_function_fails_again_and_again(
    tmp_path: Path,
) -> None:
    builder = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    policy = RollingPolicy.default_rolling_policy(part_size=400)
    trouble = FailsBehindCheckpoints(tmp_path)

    def slow(number: int) -> int:
        time.sleep(0.001)
        return trouble(number)

    stream = numbers(tmp_path, slow, "200 ms")
    stream.sink_to(builder.with_rolling_policy(policy).build())
    stream.get_execution_environment().execute("rolls")
    assert any(tmp_path.glob("mark-*"))
    files = list((tmp_path / "out").iterdir())
    assert [file for file in files if file.name[0] == "."] == []
    found = sorted(int(line) for file in files for line in file.read_text().split())
    assert found == list(range(1, COUNT + 1))
