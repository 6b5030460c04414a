"""Connections of browsers and programs to the server, each of them bounded in time.

Uvicorn's protocol closes a connection that stays idle after an answer, but waits for ever for the
first request, for the rest of one, and for a peer that does not take its answers. Law: one without
a complete request for ``STALL_S``, or that takes no answer or cannot be closed for as long, is cut
off. There are at most ``MAX_CONNECTIONS``: a further one replaces the oldest that has nothing to
wait for, of the peer with most of them. The state of each request says which user of this machine
it comes from.
"""

import asyncio
import logging
import socket
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from headgate.observe.web.access import LONGEST_HEAD, PEER_UID, CannotAsk, asked_uid
from headgate.observe.web.server import BACKLOG

MAX_CONNECTIONS: Final = 256
KEEP_ALIVE_S: Final = 5
STALL_S: Final = 10.0
TICK_S: Final = 1.0
LAST_S: Final = 0.2
"""How long answers may take that are under way when the server ends."""

_quiet = logging.getLogger("headgate.observe.web.http")
_quiet.setLevel(logging.CRITICAL + 1)
"""What Uvicorn says about bad requests is nothing for the log of a job."""


class BoundedHttp(H11Protocol):
    """One connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _quiet
        self.access_log = False  # paths and addresses of requests are nobody's business
        self._requests = 0
        self._requests_checked = 0
        self._timer: asyncio.TimerHandle | None = None
        self._clogged_since: float | None = None
        self._since = 0.0
        self._peer: tuple[str, int | None] = "", None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base
        super().connection_made(transport)
        if self.client and self.server:
            uid = None
            with suppress(CannotAsk):  # then whoever needs to know it finds out
                uid = asked_uid(self.server, self.client)
                self.app_state = {**self.app_state, PEER_UID: uid}
            self._peer = self.client[0], uid
        self._since = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            (self._next_victim() or self).transport.abort()
        if not transport.is_closing():
            self._timer = self.loop.call_later(STALL_S, self._check)

    def _next_victim(self) -> "BoundedHttp | None":
        """The connection that makes room for this one; never one that is being answered."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, BoundedHttp) and other is not self and other.is_idle
        ]
        crowds = Counter(other._peer for other in idle)
        return min(idle, key=lambda other: (-crowds[other._peer], other._since), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its peer: for a request, or to take what was answered."""
        is_waiting = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return (is_waiting or self._clogged_since is not None) and not self.transport.is_closing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._clogged_since = self.loop.time()

    def resume_writing(self) -> None:
        self._clogged_since = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._requests += 1

    def on_response_complete(self) -> None:
        self._requests += 1
        super().on_response_complete()

    def _check(self) -> None:
        is_waiting = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        is_stalled = is_waiting and self._requests == self._requests_checked
        clogged = self._clogged_since
        is_clogged = clogged is not None and self.loop.time() - clogged >= STALL_S
        if is_stalled or is_clogged or self.transport.is_closing():
            self.transport.abort()
            return
        self._requests_checked = self._requests
        self._timer = self.loop.call_later(STALL_S, self._check)


def make_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """What all servers of this package have in common."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=2 * MAX_CONNECTIONS,
        h11_max_incomplete_event_size=LONGEST_HEAD,
        # As many are accepted at a time, before any of them is served or replaced.
        backlog=BACKLOG,
        **more,
    )


class PromptServer(uvicorn.Server):
    """Uvicorn's own wakes up ten times a second, and takes a third of a second to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """On the server's event loop."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for listening in sockets or ():
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            _, late = await asyncio.wait(list(state.tasks), timeout=LAST_S)
            for task in late:
                task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # so that their sockets are closed
