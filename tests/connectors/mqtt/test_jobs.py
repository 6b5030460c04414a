"""Jobs from topic to topic in worker processes, killed, stopped, rescaled: no message is lost."""

import tempfile
from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt")

from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.mqtt.sink import MqttSink
from headgate.connectors.mqtt.source import MqttSource
from tests.connectors.job_kit import CopyJob, copy_through_trouble
from tests.connectors.mqtt.kit import MosquittoProcess, MqttBench, opened


class MessageCopy(CopyJob):
    """Texts from one topic to another, at least once."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.bench = MqttBench(url, "copy/#")

    def append(self, numbers: range) -> None:
        self.bench.publish(*numbers)

    def source(self) -> MqttSource:
        return MqttSource(self.bench.url, "words", client_id="copy", schema=SimpleStringSchema())

    def sink(self) -> MqttSink:
        return MqttSink(self.bench.url, "copy/all", SimpleStringSchema())

    def copied(self) -> list[int]:
        self.bench.look()
        return sorted({int(message.payload) for message in self.bench.received})


def test_each_message_arrives_over_a_killed_worker_a_savepoint_and_another_parallelism(
    own_broker: MosquittoProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    subscribed = MqttSource(own_broker.url, "words", client_id="copy")
    copy = MessageCopy(own_broker.url)
    with opened(subscribed):
        pass
    try:
        copy_through_trouble(copy, tmp_path, before=1, after=2)
    finally:
        copy.bench.close()
