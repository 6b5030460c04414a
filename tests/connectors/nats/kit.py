"""A real NATS server with JetStream for tests, which keeps its streams over a restart."""

from pathlib import Path
from typing import Any

import nats
from nats.js.api import StorageType

from headgate.connectors.nats.client import LoopThread
from tests.servers import ServerProcess, accepts, free_port, program

TOKEN = "sesame"


class NatsServerProcess:
    """Streams are files below a folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        command = [program("nats-server"), "-a", "127.0.0.1", "-p", str(self.port), "-js"]
        command += ["-sd", str(folder), *options]
        self.process = ServerProcess(command, lambda: accepts(self.port), folder / "log")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


PageServer = NatsServerProcess
"""For the page on this connector."""


class NatsBench:
    """A client beside the source or sink, to fill the stream ``WORDS`` and look at it."""

    def __init__(self, server: NatsServerProcess, **config: Any) -> None:
        self.server = server
        self.url = server.url
        self._thread = LoopThread("bench")
        self._client = self._thread.call(lambda: nats.connect(self.url, max_reconnect_attempts=500))
        self.js = self._client.jetstream()
        self.make("WORDS", "words.>", **config)

    def call(self, work: Any) -> Any:
        return self._thread.call(lambda: work)

    def make(self, stream: str, subjects: str, **config: Any) -> None:
        given = {"name": stream, "subjects": [subjects], "storage": StorageType.FILE, **config}
        self.call(self.js.add_stream(**given))

    def add(self, *values: object, subject: str = "words.new") -> None:
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            self.call(self.js.publish(subject, data))

    def values(self, stream: str = "WORDS") -> list[str]:
        """Of all messages of the stream, in order."""

        async def read() -> list[str]:
            state = (await self.js.stream_info(stream)).state
            sequences = range(max(1, state.first_seq), state.last_seq + 1)
            return [(await self.js.get_msg(stream, at)).data.decode() for at in sequences]

        found: list[str] = self.call(read())
        return found

    def purge(self, **which: Any) -> None:
        self.call(self.js.purge_stream("WORDS", **which))

    def delete(self, stream: str = "WORDS") -> None:
        self.call(self.js.delete_stream(stream))

    def close(self) -> None:
        self._thread.call(self._client.close)
        self._thread.close()
