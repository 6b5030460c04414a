"""Jobs from stream to stream in worker processes, killed, stopped, rescaled: each entry once."""

import tempfile
from pathlib import Path

import pytest

pytest.importorskip("redis")

from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.redis.sink import RedisStreamSink
from headgate.connectors.redis.source import RedisStreamSource
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.job_kit import CopyJob, copy_through_trouble
from tests.connectors.redis.kit import RedisBench

INPUTS = ["in-0", "in-1", "in-2"]


class StreamCopy(CopyJob):
    """Texts from three streams to one, exactly once."""

    def __init__(self, bench: RedisBench) -> None:
        super().__init__()
        self.bench = bench

    def append(self, numbers: range) -> None:
        for number in numbers:
            self.bench.add(INPUTS[number % 3], str(number))

    def source(self) -> RedisStreamSource:
        return RedisStreamSource(self.bench.url, INPUTS, schema=SimpleStringSchema())

    def sink(self) -> RedisStreamSink:
        once = DeliveryGuarantee.EXACTLY_ONCE
        return RedisStreamSink(self.bench.url, "out", schema=SimpleStringSchema(), guarantee=once)

    def copied(self) -> list[int]:
        return [int(value) for value in self.bench.values("out")]


def test_each_entry_is_written_once_over_killed_workers_savepoints_and_another_parallelism(
    bench: RedisBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy_through_trouble(StreamCopy(bench), tmp_path, before=2, after=1)
