"""Redis, started once for all tests of this folder, and emptied after each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("redis")

from tests.connectors.redis.kit import RedisBench, RedisServerProcess


@pytest.fixture(scope="session")
def _running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServerProcess]:
    server = RedisServerProcess(tmp_path_factory.mktemp("redis"))
    server.process.start()
    yield server
    server.process.stop()


@pytest.fixture
def bench(_running_redis: RedisServerProcess) -> Iterator[RedisBench]:
    bench = RedisBench(_running_redis)
    yield bench
    bench.client.flushall()
    bench.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServerProcess]:
    """One for a test that stops it."""
    server = RedisServerProcess(tmp_path)
    server.process.start()
    yield server
    server.process.stop()
