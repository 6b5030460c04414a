"""NATS, started once for all tests of this folder; its stream is deleted after each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats")

from tests.connectors.nats.kit import NatsBench, NatsServerProcess


@pytest.fixture(scope="session")
def running_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServerProcess]:
    server = NatsServerProcess(tmp_path_factory.mktemp("nats"))
    server.process.start()
    yield server
    server.process.stop()


@pytest.fixture
def bench(running_nats: NatsServerProcess) -> Iterator[NatsBench]:
    bench = NatsBench(running_nats)
    yield bench
    bench.delete()
    bench.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServerProcess]:
    """One for a test that stops it."""
    server = NatsServerProcess(tmp_path)
    server.process.start()
    yield server
    server.process.stop()
