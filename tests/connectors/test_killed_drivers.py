"""Topics and streams are written once, whichever step of a checkpoint a driver dies at."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("nats")
pytest.importorskip("redis")

from tests.connectors import message_sinks
from tests.connectors.driver_kit import kill_drivers
from tests.connectors.kafka.broker_kit import StrictBroker, create_topic
from tests.connectors.kafka.sink_kit import seen
from tests.connectors.nats.kit import NatsBench, NatsServerProcess
from tests.connectors.redis.kit import RedisBench, RedisServerProcess
from tests.servers import ServerProcess


class MessageServers:
    """Servers of their own; each in a folder."""

    def __init__(self, opened: ExitStack, folder: Path) -> None:
        self.broker = StrictBroker(_made(folder / "kafka"))
        redis, nats = (
            RedisServerProcess(_made(folder / "redis")),
            NatsServerProcess(_made(folder / "nats")),
        )
        for server in (self.broker.server, redis.process, nats.process):
            _start(opened, server)
        create_topic(self.broker.address, "numbers")
        self.redis, self.nats = RedisBench(redis), NatsBench(nats)
        opened.callback(self.redis.close)
        opened.callback(self.nats.close)
        self.nats.make("NUMBERS", "numbers.>")

    def committed(self) -> Mapping[str, Sequence[int]]:
        """What readers find."""
        found = {
            "kafka": seen(self.broker.address, "numbers"),
            "nats": self.nats.values("NUMBERS"),
            "redis": self.redis.values("numbers"),
        }
        return {name: list(map(int, values)) for name, values in found.items()}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _start(opened: ExitStack, server: ServerProcess) -> None:
    server.start()
    opened.callback(server.stop)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[MessageServers]:
    with ExitStack() as opened:
        yield MessageServers(opened, tmp_path)


def test_each_message_is_written_once_whichever_step_a_driver_dies_at(
    servers: MessageServers, tmp_path: Path
) -> None:
    places = {
        "kafka": servers.broker.address,
        "nats": servers.nats.url,
        "redis": servers.redis.url,
    }
    where = str(tmp_path / "checkpoints")
    kill_drivers(message_sinks.__name__, places, tmp_path, servers.committed, where)
