"""What the NATS source and sink share: connecting, event loops in threads, and what errors mean.

The client is nats-py, which is asynchronous. Law: it is loaded when a job starts; an event loop has
one owner, who ends it on every path; the client's own reconnecting is off, because who owns it has
to know what got through; no message shows a password.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from headgate.base.errors import PlanInvalid, ServerUnready
from headgate.connectors.libraries import library
from headgate.connectors.paths import split_url
from headgate.connectors.servers import LOOK_S, MessageServer, Sleep

CONNECT_S: Final = 10
ANSWER_S: Final = 10.0
"""How long the server may take to answer."""
_DENIED: Final = ("authorization violation", "permissions violation", "authentication", "user jwt")

Result = TypeVar("Result")


@dataclass(frozen=True)
class NatsServers(MessageServer):
    """Where the servers are; it travels to the tasks."""

    user: str
    """Who talks to them, for messages: ``NatsSource`` or ``NatsSink``."""
    urls: tuple[str, ...] = field(repr=False)
    credentials: str | None = None
    """The path of a file with credentials, as ``nsc`` makes it."""

    login = "user, password, token or credentials, and rights"

    @classmethod
    def given(
        cls, user: str, servers: "str | Sequence[str]", credentials: str | None
    ) -> "NatsServers":
        urls = servers.split(",") if isinstance(servers, str) else list(servers)
        for url in urls:
            if split_url(user, url.strip()).scheme not in ("nats", "tls", "ws", "wss"):
                raise PlanInvalid(
                    f"{user}: a server's URL does not begin with nats:// or tls://; give one such "
                    f"as nats://localhost:4222"
                )
        if not urls:
            raise PlanInvalid(f"{user} was given no servers; give nats://host:4222")
        return cls(user, tuple(url.strip() for url in urls), credentials)

    @property
    def address(self) -> str:
        """Without users and passwords."""
        parts = [urlsplit(url) for url in self.urls]
        return ",".join(f"{part.hostname}:{part.port or 4222}" for part in parts)

    async def connect(self, whose: str) -> Any:
        """A client whose connection is open; who gets it closes it."""
        nats = library("nats", "nats", self.user)
        client = nats.NATS()
        seen: list[Exception] = []

        async def note(error: Exception) -> None:
            seen.append(error)

        more = {} if self.credentials is None else {"user_credentials": self.credentials}
        try:
            await client.connect(
                list(self.urls),
                name=f"headgate {whose}",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_S,
                ping_interval=10,
                error_cb=note,
                **more,
            )
        except BaseException as error:
            with suppress(Exception):
                await client.close()
            if isinstance(error, Exception):
                # The client says at last that there are no servers; what it met says more.
                met = next(filter(self.is_denied, seen), seen[-1] if seen else error)
                raise self.problem(met, "connecting") from error
            raise
        return client

    def is_denied(self, error: BaseException) -> bool:
        words = str(error).lower()
        return any(part in words for part in _DENIED)

    def may_pass(self, error: BaseException) -> bool:
        """Whether another attempt may go well."""
        errors = library("nats.errors", "nats", self.user)
        js = library("nats.js.errors", "nats", self.user)
        if isinstance(error, ServerUnready):
            return True
        if isinstance(error, errors.MaxPayloadError) or self.is_denied(error):
            return False
        if isinstance(error, js.APIError):
            return isinstance(error, js.ServiceUnavailableError | js.ServerError)
        kinds = (errors.Error, asyncio.TimeoutError, OSError, EOFError)
        return isinstance(error, kinds)


class LoopThread:
    """An event loop on a thread of its own, which its owner closes."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(
        self, make: Callable[[], Coroutine[Any, Any, Result]], sleep: Sleep = lambda seconds: None
    ) -> Result:
        """What the coroutine returns; it must end by itself, or ``sleep`` by raising."""
        answer = asyncio.run_coroutine_threadsafe(make(), self._loop)
        while True:
            done, _ = concurrent.futures.wait([answer], LOOK_S)
            if done:
                return answer.result()
            try:
                sleep(0)
            except BaseException:  # only once: what is cancelled twice cannot clean up
                asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
                raise

    def close(self) -> None:
        """Idempotent; what still runs is cancelled."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def stream_of(js: Any, servers: NatsServers, stream: str) -> Any:
    """What the server knows of a stream; raises PlanInvalid if there is none."""
    errors = library("nats.js.errors", "nats", servers.user)
    try:
        return await js.stream_info(stream)
    except errors.NotFoundError:
        raise PlanInvalid(
            f"{servers.user}: {servers.address} has no stream {stream!r}; create it first, for "
            f"instance with: nats stream add {stream}"
        ) from None
