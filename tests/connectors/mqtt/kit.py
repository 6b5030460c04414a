"""A real Mosquitto for tests, which keeps its sessions over a restart, and a client beside it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from headgate.connectors.background import AcknowledgingReader
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.mqtt.client import MqttBroker, hang_up, turn
from headgate.connectors.mqtt.source import MqttSource
from tests.connectors.kit import read_some, task_context
from tests.host.rig import eventually
from tests.servers import ServerProcess, accepts, free_port, program

PASSWORD = "sesame/2"
RUNNING: dict[str, "MosquittoProcess"] = {}
"""By URL."""


class MosquittoProcess:
    """Sessions are in a file of a folder, which it writes when it ends."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = free_port()
        self.folder = folder
        RUNNING[f"mqtt://127.0.0.1:{self.port}"] = self
        config = folder / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "user root" if folder.owner() == "root" else "",
            "max_queued_messages 0",
            "persistence true",
            "log_type all",
            f"persistence_location {folder}/",
            *(settings or ["allow_anonymous true"]),
        ]
        config.write_text("".join(f"{line}\n" for line in lines))
        command = [program("mosquitto"), "-c", str(config)]
        self.process = ServerProcess(command, lambda: accepts(self.port), folder / "log")

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def subscriptions(self, client_id: str) -> int:
        """How often a client has subscribed."""
        log = (self.folder / "log").read_text(errors="replace")
        return log.count(f"Sending SUBACK to {client_id}\n")


PageServer = MosquittoProcess
"""For the page on this connector."""


def password_file(folder: Path) -> Path:
    """The user ``ann``, with the password."""
    path = folder / "passwords"
    command = [program("mosquitto_passwd"), "-b", "-c", str(path), "ann", PASSWORD]
    subprocess.run(command, check=True)
    return path


class MqttBench:
    """Publishes words, and keeps what others publish."""

    def __init__(self, url: str, *topics: str) -> None:
        broker = MqttBroker("bench", url)
        self.url = url
        self.received: list[Any] = []
        self._client = broker.client()
        self._client.on_message = lambda *given: self._receive(given[2])
        broker.connect(self._client)
        for topic in topics:
            subscribed: list[int] = []
            self._client.on_subscribe = lambda *given: subscribed.append(1)  # noqa: B023
            self._client.subscribe(topic, 1)
            turn(self._client, lambda: bool(subscribed))  # noqa: B023

    def publish(self, *words: object, topic: str = "words", qos: int = 1, **more: Any) -> None:
        sent = [self._client.publish(topic, str(word).encode(), qos, **more) for word in words]
        turn(self._client, lambda: all(each.is_published() for each in sent))

    def words(self, count: int) -> list[str]:
        """Those that were received, when there are so many."""

        def are_there() -> bool:
            self.look()
            return len(self.received) >= count

        eventually(are_there, "the messages")
        return [message.payload.decode() for message in self.received]

    def look(self) -> None:
        """Receive what is there."""
        turn(self._client)

    def close(self) -> None:
        hang_up(self._client)

    def _receive(self, message: Any) -> None:
        self.received.append(message)
        self._client.ack(message.mid, message.qos)


def texts(url: str, topics: Any = "words", **settings: Any) -> MqttSource:
    """With a session of its own."""
    given = {"client_id": uuid4().hex, "schema": SimpleStringSchema(), **settings}
    return MqttSource(url, topics, **given)


@contextmanager
def opened(source: MqttSource, **about: Any) -> Iterator[AcknowledgingReader]:
    """Returns when the session is subscribed."""
    context = replace(task_context(), **{"checkpoints": True, **about})
    (split,) = source.create_enumerator(1, None).discover()
    reader = source.open(split, None, context)
    server = RUNNING[f"mqtt://{source.broker.address}"]
    before = server.subscriptions(source.client_id)
    try:
        assert read_some(reader) is not None
        eventually(lambda: server.subscriptions(source.client_id) > before, "the subscription")
        yield reader
    finally:
        reader.close()
