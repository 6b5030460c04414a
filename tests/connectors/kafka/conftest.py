"""The strict broker and the mock cluster, started once for all tests of this folder."""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.connectors.kafka.broker_kit import StrictBroker, create_topic
from tests.connectors.kafka.kit import MockCluster


@pytest.fixture(scope="session")
def _running_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StrictBroker]:
    if request.config.getoption("--kafka"):
        pytest.skip("it needs control over the broker")
    broker = StrictBroker(tmp_path_factory.mktemp("strict-broker"))
    broker.server.start()
    yield broker
    broker.server.stop()


@pytest.fixture
def strict_broker(_running_broker: StrictBroker) -> Iterator[StrictBroker]:
    """Runs, without planned faults, before and after the test."""
    yield _running_broker
    _running_broker.order("clear")
    _running_broker.order("release")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """Of the strict broker, or of the one that ``--kafka`` names."""
    given: str = request.config.getoption("--kafka")
    if given:
        return given
    broker: StrictBroker = request.getfixturevalue("strict_broker")
    return broker.address


@pytest.fixture
def new_topic(address: str) -> Callable[..., str]:
    """``new_topic(partitions=1)`` makes one that nobody else uses."""

    def make(partitions: int = 1, **config: str) -> str:
        topic = f"topic-{secrets.token_hex(4)}"
        create_topic(address, topic, partitions, **config)
        return topic

    return make


@pytest.fixture
def own_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StrictBroker]:
    """One for a test that stops it."""
    if request.config.getoption("--kafka"):
        pytest.skip("it needs control over the broker")
    broker = StrictBroker(tmp_path)
    broker.server.start()
    yield broker
    broker.server.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    """Brokers of librdkafka's own; tests that break one start others."""
    made = MockCluster()
    yield made
    made.close()


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Closes what jobs have opened; their files go to a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:
        yield stack
