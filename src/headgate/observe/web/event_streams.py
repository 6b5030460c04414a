"""Live answers as server-sent events: whoever follows a job gets its details every second.

The thread that looks at the jobs hands each answer over once, encoded, for all followers. Law: at
most ``MAX_FOLLOWERS`` follow; a follower that reads too slowly misses answers, and one that does
not read at all is dropped; streams end with the server. Used on the server's event loop, except
where a method says otherwise.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headgate.observe.web.access import problem
from headgate.observe.web.shown_jobs import ShownJob

MAX_FOLLOWERS: Final = 64
SEND_S: Final = 10.0
"""A follower that takes nothing for this long is dropped."""
QUIET_S: Final = 15.0
"""After so long without an answer a comment is sent, so that both ends notice a lost peer."""
GONE: Final = b"event: gone\ndata: {}\n\n"


def job_event(shown: ShownJob) -> bytes:
    """The event that is sent every second; its JSON has no line break."""
    return b"event: job\ndata: " + shown.details() + b"\n\n"


class EventStreams:
    """The streams of all jobs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._latest: dict[ShownJob, bytes] = {}
        self._followers: Counter[ShownJob] = Counter()
        self._is_closed = False

    def opened(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def looked(self, shown: ShownJob) -> None:
        """There is something new about a job; from any thread."""
        if self._followers[shown]:
            self._call(shown, job_event(shown))

    def gone(self, shown: ShownJob) -> None:
        """A job is forgotten; from any thread."""
        if self._followers[shown]:
            self._call(shown, GONE)

    def close(self) -> None:
        """End all streams; from any thread."""
        self._is_closed = True
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake)

    def _call(self, shown: ShownJob, event: bytes) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._published, shown, event)

    def _published(self, shown: ShownJob, event: bytes) -> None:
        self._latest[shown] = event
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def follow(self, shown: ShownJob) -> Response:
        """The stream of a job, or why there is none."""
        return _Stream(self, shown)

    def enter(self, shown: ShownJob) -> bool:
        """Count a follower, unless there are too many; whoever is counted leaves again."""
        if self._is_closed or self._followers.total() >= MAX_FOLLOWERS:
            return False
        self._followers[shown] += 1
        return True

    def leave(self, shown: ShownJob) -> None:
        self._followers[shown] -= 1
        if not self._followers[shown]:
            del self._followers[shown]
            self._latest.pop(shown, None)

    async def feed(self, shown: ShownJob, send: Send) -> None:
        """Send to one follower until it leaves, stays silent, or nothing more can come."""
        sent = self._latest.get(shown)
        await _send(send, job_event(shown))
        while not self._is_closed and sent != GONE:
            changed, latest = self._changed, self._latest.get(shown)
            if latest is not None and latest is not sent:
                sent = latest
                await _send(send, latest)
                continue
            try:
                await asyncio.wait_for(changed.wait(), QUIET_S)
            except asyncio.TimeoutError:
                await _send(send, b": quiet\n\n")


async def _send(send: Send, body: bytes) -> None:
    message = {"type": "http.response.body", "body": body, "more_body": True}
    await asyncio.wait_for(send(message), SEND_S)


class _Stream(Response):
    """The answer whose body is the stream."""

    def __init__(self, streams: EventStreams, shown: ShownJob) -> None:
        self._streams = streams
        self._watched = shown
        super().__init__(media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._streams.enter(self._watched):
            text = f"{MAX_FOLLOWERS} pages follow jobs of this driver already; close some of them"
            await problem(503, text)(scope, receive, send)
            return
        try:
            await self._stream(scope, receive, send)
        finally:
            self._streams.leave(self._watched)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        del self.headers["content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        feeding = asyncio.ensure_future(self._streams.feed(self._watched, send))
        leaving = asyncio.ensure_future(_left(receive))
        done, _ = await asyncio.wait((feeding, leaving), return_when=asyncio.FIRST_COMPLETED)
        for task in (feeding, leaving):
            task.cancel()
        await asyncio.gather(feeding, leaving, return_exceptions=True)
        if feeding in done and feeding.exception() is None:
            await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
