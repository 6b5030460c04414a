"""Jobs from stream to stream in worker processes, killed, stopped, rescaled: each message once."""

import tempfile
from pathlib import Path

import pytest

pytest.importorskip("nats")

from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.nats.sink import NatsSink
from headgate.connectors.nats.source import NatsSource
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.job_kit import CopyJob, copy_through_trouble
from tests.connectors.nats.kit import NatsBench


class MessageCopy(CopyJob):
    """Texts from one stream to another, exactly once."""

    def __init__(self, bench: NatsBench) -> None:
        super().__init__()
        self.bench = bench

    def append(self, numbers: range) -> None:
        self.bench.add(*numbers)

    def source(self) -> NatsSource:
        return NatsSource(self.bench.url, "WORDS", schema=SimpleStringSchema())

    def sink(self) -> NatsSink:
        once = DeliveryGuarantee.EXACTLY_ONCE
        return NatsSink(self.bench.url, "copy.new", SimpleStringSchema(), guarantee=once)

    def copied(self) -> list[int]:
        return [int(value) for value in self.bench.values("COPY")]


def test_each_message_is_written_once_over_a_killed_worker_a_savepoint_and_another_parallelism(
    bench: NatsBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bench.make("COPY", "copy.>")
    try:
        copy_through_trouble(MessageCopy(bench), tmp_path, before=1, after=2)
    finally:
        bench.delete("COPY")
