"""A real Redis server for tests, which keeps what it is told over a restart."""

from pathlib import Path
from typing import Any

import redis

from tests.servers import ServerProcess, accepts, free_port, program

PASSWORD = "open sesame"


class RedisServerProcess:
    """Every write is in its log on disk before it is answered."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        command = [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(folder), "--save", "", "--appendonly", "yes", *options]
        self.process = ServerProcess(command, lambda: accepts(self.port), folder / "log")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Any:
        """Whoever asks closes it."""
        return redis.Redis.from_url(self.url, protocol=2)


PageServer = RedisServerProcess
"""For the page on this connector."""


class RedisBench:
    """A client beside the source or sink, to fill streams and look at them."""

    def __init__(self, server: RedisServerProcess) -> None:
        self.server = server
        self.url = server.url
        self.client = server.client()

    def add(self, stream: str, *values: object, **more: Any) -> list[bytes]:
        """Entries with the field ``value``."""
        return [self.client.xadd(stream, {"value": value}, **more) for value in values]

    def values(self, stream: str, field: bytes = b"value") -> list[str]:
        return [fields[field].decode() for _, fields in self.client.xrange(stream)]

    def end_others(self) -> int:
        """Break the connections of sources and sinks."""
        mine = self.client.client_id()
        others = [int(each["id"]) for each in self.client.client_list() if int(each["id"]) != mine]
        for number in others:
            self.client.client_kill_filter(_id=number)
        return len(others)

    def close(self) -> None:
        self.client.close()
