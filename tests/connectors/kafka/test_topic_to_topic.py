"""Jobs from topic to topic in worker processes, killed, stopped, rescaled: each record once."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.sink import KafkaSink
from headgate.connectors.kafka.source import KafkaSource
from tests.connectors.job_kit import CopyJob, copy_through_trouble
from tests.connectors.kafka.kit import QUICK
from tests.connectors.kafka.sink_kit import seen, text_sink


class TopicCopy(CopyJob):
    """Texts from one topic to another, exactly once."""

    def __init__(self, address: str, new_topic: Callable[..., str]) -> None:
        super().__init__()
        self.address = address
        self.input, self.output = new_topic(3), new_topic(2)

    def append(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for number in numbers:
            producer.produce(self.input, str(number), partition=number % 3)
        assert producer.flush(30) == 0

    def source(self) -> KafkaSource:
        schema = SimpleStringSchema()
        return KafkaSource(self.address, self.input, schema=schema, properties=QUICK)

    def sink(self) -> KafkaSink:
        return text_sink(self.address, self.output)

    def copied(self) -> list[int]:
        return [int(value) for value in seen(self.address, self.output, 2)]


def test_each_record_is_written_once_over_killed_workers_savepoints_and_another_parallelism(
    address: str, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy_through_trouble(TopicCopy(address, new_topic), tmp_path, before=2, after=1)
