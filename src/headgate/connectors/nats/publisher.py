"""Publishes messages to a stream of JetStream, for sinks, and finds those that are there.

The event loop of the client runs on a thread that this owns. Law: a call returns when the stream
has stored every message; a message whose answer was lost is published again with the same id, and
only as long as the stream remembers ids, so that it is stored once.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnready, TaskCancelled
from headgate.connectors.libraries import library
from headgate.connectors.nats.client import ANSWER_S, LoopThread, NatsServers, stream_of
from headgate.connectors.nats.fetcher import Pull, subject_matches
from headgate.connectors.retries import RECONNECT_S, Sleep, backoff_s

SCANNED: Final = 500
"""Messages that are asked for at once when ids are looked for."""
_MSG_ID: Final = "Nats-Msg-Id"

Result = TypeVar("Result")


class StreamPublisher:
    """One task's connection, opened when it is needed and again after trouble."""

    def __init__(
        self,
        servers: NatsServers,
        stream: str | None,
        subject: str | None,
        whose: str,
        in_flight: int,
        sleep: Sleep = time.sleep,
    ) -> None:
        """``subject``: of all messages; None: they differ, and ``stream`` is named."""
        self._servers = servers
        self._stream = stream
        self._subject = subject
        self._whose = whose
        self._in_flight = in_flight
        self._sleep = sleep
        self._thread: LoopThread | None = None
        self._client: Any = None
        self._window_s = 0.0
        """How long the stream remembers ids."""
        self._patterns: tuple[str, ...] = ()
        """Subjects that the stream takes."""

    def last_sequence(self) -> int:
        """Of the last message that the stream has stored."""
        return self._call("looking at the stream", self._last_sequence())

    def largest(self) -> int:
        """How many bytes a message may have, its headers included."""

        async def ask() -> int:
            await self._js()
            return int(self._client.max_payload)

        return self._call("looking at the server", ask())

    def publish(self, messages: Sequence[tuple[str, str, bytes]]) -> None:
        """Messages are an id, a subject and data each."""
        if messages:
            self._call("publishing", self._publish_all(list(messages)))

    def ids_since(self, sequence: int, writers: frozenset[str]) -> frozenset[str]:
        """Ids of messages of these writers that are stored behind a sequence."""
        return self._call("looking for what is stored", self._ids_since(sequence, writers))

    def close(self) -> None:
        """Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._disconnect)
            finally:
                thread.close()

    def _call(self, doing: str, work: Coroutine[Any, Any, Result]) -> Result:
        if self._thread is None:
            self._thread = LoopThread(f"nats {self._whose}")
        try:
            return self._thread.call(lambda: work, self._sleep)
        except TaskCancelled:
            raise
        except Exception as error:
            raise self._servers.problem(error, f"{self._whose}: {doing}") from error

    # On the thread of the loop.

    async def _js(self) -> Any:
        if self._client is None or self._client.is_closed:
            await self._disconnect()
            self._client = await self._servers.connect(self._whose)
            js = self._client.jetstream(timeout=ANSWER_S)
            if self._stream is None:
                self._stream = await self._find_stream(js)
            info = await stream_of(js, self._servers, self._stream)
            self._window_s = info.config.duplicate_window or 120.0
            self._patterns = tuple(info.config.subjects or ())
        return self._client.jetstream(timeout=ANSWER_S)

    async def _find_stream(self, js: Any) -> str:
        errors = library("nats.js.errors", "nats", "NatsSink")
        try:
            name: str = await js.find_stream_name_by_subject(self._subject)
            return name
        except errors.NotFoundError:
            raise PlanInvalid(
                f"NatsSink: no stream of {self._servers.address} takes the subject "
                f"{self._subject!r}; create one first, for instance with: nats stream add"
            ) from None

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _last_sequence(self) -> int:
        js = await self._js()
        assert self._stream is not None
        info = await stream_of(js, self._servers, self._stream)
        return int(info.state.last_seq)

    async def _publish_all(self, messages: list[tuple[str, str, bytes]]) -> None:
        begun_s, attempt = time.monotonic(), 0
        while messages:
            chunk = messages[: self._in_flight]
            error: Exception
            try:
                js = await self._js()
                sends = [self._send(js, *each) for each in chunk]
                answers = await asyncio.gather(*sends, return_exceptions=True)
                failed = [
                    each
                    for each, answer in zip(chunk, answers, strict=True)
                    if isinstance(answer, BaseException)
                ]
                messages[: len(chunk)] = failed
                if not failed:
                    begun_s, attempt = time.monotonic(), 0
                    continue
                raise next(each for each in answers if isinstance(each, BaseException))
            except Exception as caught:
                error = caught
            give_up_s = begun_s + min(RECONNECT_S, self._window_s / 2 or RECONNECT_S)
            if not self._servers.may_pass(error) or time.monotonic() > give_up_s:
                raise error
            await asyncio.sleep(backoff_s(attempt))
            attempt += 1

    async def _send(self, js: Any, identity: str, subject: str, data: bytes) -> None:
        errors = library("nats.js.errors", "nats", "NatsSink")
        try:
            await js.publish(subject, data, stream=self._stream, headers={_MSG_ID: identity})
        except errors.NoStreamResponseError:
            text = f"stream {self._stream!r} of {self._servers.address}"
            if any(subject_matches(pattern, subject) for pattern in self._patterns):
                raise ServerUnready(f"NatsSink: {text} cannot be written now") from None
            raise ConnectorError(
                f"NatsSink: {text} does not take the subject {subject!r}; let the function return "
                f"one of {', '.join(self._patterns)}, or add it to the stream"
            ) from None

    async def _ids_since(self, sequence: int, writers: frozenset[str]) -> frozenset[str]:
        js = await self._js()
        assert self._stream is not None
        last = (await stream_of(js, self._servers, self._stream)).state.last_seq
        api = library("nats.js.api", "nats", "NatsSink")
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=sequence + 1,
            filter_subject=self._subject,
            headers_only=True,
        )
        found: set[str] = set()
        if sequence >= last:
            return frozenset()
        pull = await Pull.begin(self._client, js, self._stream, config)
        while True:
            messages = await pull.messages(SCANNED)
            for message in messages:
                identity = (message.headers or {}).get(_MSG_ID, "")
                if identity.partition("-")[0] in writers:
                    found.add(identity)
            if messages and messages[-1].metadata.sequence.stream >= last:
                break
            # No message for a while does not mean that there is none: a server may be slow.
            asked = await js.consumer_info(self._stream, pull.name)
            if asked.num_pending == 0 and asked.delivered.consumer_seq == pull.received:
                break
        return frozenset(found)
