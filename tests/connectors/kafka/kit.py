"""What the tests of the Kafka source share: a mock cluster that they drive, and readers of it."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.source import KafkaSource

QUICK = {
    "fetch.error.backoff.ms": "10",
    "fetch.wait.max.ms": "10",
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "50",
    "topic.metadata.refresh.interval.ms": "500",
    "topic.metadata.refresh.fast.interval.ms": "20",
}
"""The mock lets an empty fetch wait for its whole time, also when a record comes meanwhile."""

_ROOT = Path(__file__).parents[3]
_names = itertools.count(1)


class MockCluster:
    """Brokers in a process of their own; methods are those of ``mock_cluster.Cluster``."""

    def __init__(self, brokers: int = 1) -> None:
        command = [sys.executable, "-m", "tests.connectors.kafka.mock_cluster", str(brokers)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process: Any = subprocess.Popen(command, cwd=_ROOT, text=True, **pipes)  # type: ignore[call-overload]
        self.servers: str = self._answer()["servers"]

    def new_topic(self, partitions: int = 1, name: str = "topic") -> str:
        """A topic that no other test has."""
        topic = f"{name}-{next(_names)}"
        assert self.call("topic", topic, partitions) == 0
        return topic

    def produce(self, topic: str, values: Iterable[str], partition: int = 0) -> None:
        """Values whose times count from 1000 on."""
        rows = [[partition, None, value, 1000 + at, None] for at, value in enumerate(values)]
        assert self.call("produce", topic, rows) == 0

    def call(self, name: str, *arguments: object) -> Any:
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, answer
        return answer["result"]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The brokers hang: connections stay, and nobody answers."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        assert line, "the mock cluster has ended"
        return json.loads(line)


def text_source(
    cluster: MockCluster, topics: str | Sequence[str], properties: Any = None, **settings: Any
) -> KafkaSource:
    """Texts, read with little waiting."""
    settings.setdefault("schema", SimpleStringSchema())
    return KafkaSource(cluster.servers, topics, properties=QUICK | (properties or {}), **settings)
