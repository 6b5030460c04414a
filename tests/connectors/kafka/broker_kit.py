"""The strict broker in a process of its own, as tests use it: started, ordered about, killed."""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers import ServerProcess, accepts, free_port

ROOT = Path(__file__).parent.parent.parent.parent
PATIENCE_S = 30.0
START = "import runpy, sys; sys.path.insert(0, {!r}); runpy.run_module({!r}, run_name='__main__')"


class StrictBroker:
    """A broker whose data outlive its process, and that does wrong when it is asked to."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._port, self._orders = free_port(), free_port()
        command = [
            *(sys.executable, "-c", START.format(str(ROOT), "tests.connectors.kafka.broker")),
            *("--port", str(self._port), "--orders", str(self._orders), "--folder", str(folder)),
            *options,
        ]
        is_ready = lambda: accepts(self._port) and accepts(self._orders)  # noqa: E731
        self.server = ServerProcess(command, is_ready, folder / "log")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def order(self, do: str, **fields: Any) -> Any:
        with socket.create_connection(("127.0.0.1", self._orders), timeout=10) as line:
            line.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
            with line.makefile() as answers:
                return json.loads(answers.readline())

    def fault(self, api: str, action: str, **fields: Any) -> None:
        """See ``broker.faults.Fault``."""
        self.order("fault", api=api, action=action, **fields)

    def until_hit(self, api: str, action: str) -> None:
        """Wait until the planned fault has happened."""
        deadline = time.monotonic() + PATIENCE_S
        while f"{api} {action}" not in (hits := self.order("hits")):
            assert time.monotonic() < deadline, f"only {hits}"
            time.sleep(0.01)


def create_topic(address: str, topic: str, partitions: int = 1, **config: Any) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
    made[topic].result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while topic not in admin.list_topics(timeout=PATIENCE_S).topics:
        assert time.monotonic() < deadline, f"{topic} does not appear"


def delete_topic(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while topic in admin.list_topics(timeout=PATIENCE_S).topics:
        assert time.monotonic() < deadline, f"{topic} does not go"


def transactional(address: str, name: str, **config: Any) -> Producer:
    """A producer that has its id."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, **config})
    producer.init_transactions(PATIENCE_S)
    return producer


def read_all(
    address: str, topic: str, isolation: str = "read_committed", partitions: int = 1
) -> list[Message]:
    """All messages of a topic that can be seen now."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads-all",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ended = [], set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"no end after {len(found)} messages"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(error)
        return found
    finally:
        consumer.close()


def values(messages: list[Message]) -> list[str]:
    return [message.value().decode() for message in messages]
