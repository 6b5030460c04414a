"""Mosquitto, started once for all tests of this folder; each test has topics of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt")

from tests.connectors.mqtt.kit import MosquittoProcess, MqttBench


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MosquittoProcess]:
    server = MosquittoProcess(tmp_path_factory.mktemp("mqtt"))
    server.process.start()
    yield server
    server.process.stop()


@pytest.fixture
def bench(running_broker: MosquittoProcess) -> Iterator[MqttBench]:
    bench = MqttBench(running_broker.url, "copy/#")
    yield bench
    bench.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[MosquittoProcess]:
    """One for a test that stops it."""
    server = MosquittoProcess(tmp_path)
    server.process.start()
    yield server
    server.process.stop()
