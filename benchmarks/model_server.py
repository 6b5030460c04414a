"""A model behind HTTP on loopback, for ``bench calls``, and functions that call it.

It takes a JSON list of numbers and returns their doubles, 20 ms later and 0.1 ms for each number,
as a server does that computes many at once. With a limit it refuses what is too much by 429 and
``Retry-After``. Law: with the end of the block the server, its connections and its thread are gone.
"""

import asyncio
import json
import math
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from headgate.core.chain.rate_limiter import TokenBucket
from headgate.functions.async_functions import AsyncFunction, BatchAsyncFunction, RateLimited
from headgate.functions.context import RuntimeContext

FIXED_S: Final = 0.020
EACH_S: Final = 0.0001
CONNECTIONS: Final = 2_000
"""More are not accepted at the same time."""
MOST_BYTES: Final = 1 << 20
"""Of a request."""
Stamped = tuple[int, int]
"""A number, and when it was sent."""


class ModelServer:
    """A block in which the model can be called at ``port``; ``limit``: requests per second."""

    def __init__(self, limit: float | None = None) -> None:
        self.port = 0
        self.accepted: list[tuple[float, int]] = []
        """When requests were accepted, in seconds, and how many numbers each had."""
        self.refused = 0
        self._bucket = None if limit is None else TokenBucket(limit, max(1.0, limit))
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._live, name="bench-model-server", daemon=True)

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        loop = self._loop
        try:
            server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            loop.run_forever()
            server.close()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
        finally:
            self._ready.set()
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._connections.add(me)
        try:
            while len(self._connections) <= CONNECTIONS:
                numbers = json.loads((await _read_message(reader))[2])
                writer.write(await self._answer(numbers))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # the client has gone, or sends what is no request
        finally:
            self._connections.discard(me)
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, numbers: list[int]) -> bytes:
        now = time.monotonic()
        if self._bucket is not None:
            wait_ms = self._bucket.wait_ms(1.0, now * 1000)
            if wait_ms > 0:
                self.refused += 1
                retry = f"Retry-After: {math.ceil(wait_ms / 1000)}\r\n"
                return f"HTTP/1.1 429 Too Many\r\n{retry}Content-Length: 0\r\n\r\n".encode()
            self._bucket.take(1.0)
        self.accepted.append((now, len(numbers)))
        await asyncio.sleep(FIXED_S + EACH_S * len(numbers))
        body = json.dumps([2 * number for number in numbers])
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@dataclass
class ModelClient:
    """Keeps its connections, as many as there are calls at once."""

    port: int

    def __post_init__(self) -> None:
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def double(self, numbers: list[int]) -> list[int]:
        """What the model says; raises RateLimited."""
        if self._free:
            reader, writer = self._free.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            body = json.dumps(numbers)
            writer.write(f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            status, headers, answer = await _read_message(reader)
        except BaseException:
            writer.close()  # half an answer may be on its way
            raise
        self._free.append((reader, writer))
        if b" 429 " in status:
            raise RateLimited(headers.get("retry-after"))
        found: list[int] = json.loads(answer)
        return found

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


class CallsModel(BatchAsyncFunction[Stamped, Stamped]):
    """One request for many numbers; stamps stay with their numbers."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, runtime_context: RuntimeContext) -> None:
        self._client = ModelClient(self._port)

    async def async_invoke_batch(self, values: list[Stamped]) -> list[Stamped]:
        doubles = await self._client.double([number for number, _ in values])
        return [(double, sent) for double, (_, sent) in zip(doubles, values, strict=True)]

    def close(self) -> None:
        self._client.close()


class CallsModelForEach(AsyncFunction[Stamped, Stamped]):
    """One request for each number."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, runtime_context: RuntimeContext) -> None:
        self._client = ModelClient(self._port)

    async def async_invoke(self, value: Stamped) -> list[Stamped]:
        (double,) = await self._client.double([value[0]])
        return [(double, value[1])]

    def close(self) -> None:
        self._client.close()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str], Any]:
    """First line, headers and body; raises ValueError for what is too long."""
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    pairs = (line.decode().partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes are too many")
    return head[0], headers, await reader.readexactly(length)
