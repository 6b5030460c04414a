"""The broker's sockets: clients on one port, the test's orders on another.

Requests of a connection are carried out one after the other, as Kafka does it. Orders are lines of
JSON; see ``Server._obey``. One thread, so that each request is carried out as a whole.
"""

import asyncio
import json
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.connectors.kafka.broker import errors
from tests.connectors.kafka.broker.faults import Faults
from tests.connectors.kafka.broker.requests import API, Request, Requests
from tests.connectors.kafka.broker.state import BrokerState, Journal
from tests.connectors.kafka.broker.wire import Reader, Writer

HOST = "127.0.0.1"
TICK_S = 0.02
BEFORE_LOGIN = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")


class Closed(Exception):
    """The connection is to be closed without an answer."""


class Session:
    """One connection of a client."""

    def __init__(self, needs_login: bool) -> None:
        self.is_known = not needs_login


class Server:
    def __init__(self, port: int, folder: Path, login: str = "", auto_create: bool = False) -> None:
        """``login``: "name:password" that clients must give, with SASL PLAIN."""
        self._port = port
        self._login = login
        self._state = BrokerState()
        self._requests = Requests(self._state, HOST, port, auto_create)
        self._journal = Journal(folder / "journal")
        self._faults = Faults()
        self._seen: Counter[str] = Counter()
        self._ahead_ms = 0
        self._changed = asyncio.Event()
        self._released = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._waiting: dict[int, Callable[[Request, str], Awaitable[Writer]]] = {
            1: self._fetch,
            11: self._join,
            12: self._heartbeat,
            13: self._leave,
            14: self._sync,
        }

    async def run(self, orders_port: int) -> None:
        """Until the process ends."""
        for now_ms, key, version, body in self._journal.entries():
            self._state.transactions.expire(now_ms)
            reader = Reader(body, version >= API[key].flexible)
            self._requests.handle(Request(key, version, reader, now_ms, replayed=True))
        clients = await asyncio.start_server(self._serve, HOST, self._port)
        orders = await asyncio.start_server(self._take_orders, HOST, orders_port)
        async with clients, orders:
            while True:
                await asyncio.sleep(TICK_S)
                self._state.groups.expire()
                if self._state.transactions.expire(self._now_ms()):
                    self._notify()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(bool(self._login))
        self._writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = await self._answer(session, await reader.readexactly(size))
                if answer is not None:
                    writer.write(struct.pack(">i", len(answer)) + answer)
                    await writer.drain()
        except (Closed, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, session: Session, data: bytes) -> bytes | None:
        head = Reader(data)
        key, version, correlation = head.int16(), head.int16(), head.int32()
        client = head.nullable_text() or ""
        api = API.get(key)
        if api is None or (api.name not in BEFORE_LOGIN and not session.is_known):
            raise Closed
        if not api.low <= version <= api.high or (api.name == "Produce" and version < 3):
            if api.name != "ApiVersions":
                raise Closed
            known = Writer().int32(correlation).int16(errors.UNSUPPORTED_VERSION)
            return known.array([], lambda item: item).done()
        flexible = version >= api.flexible
        head.flexible = flexible
        head.tags()
        self._seen[api.name] += 1
        request = Request(key, version, Reader(head.rest(), flexible), 0)
        answer = await self._with_faults(session, request, client, head.rest())
        if answer is None:
            return None
        front = Writer(flexible and api.name != "ApiVersions").int32(correlation).tags()
        return front.done() + answer.done()

    async def _with_faults(
        self, session: Session, request: Request, client: str, body: bytes
    ) -> Writer | None:
        fault = self._faults.due(API[request.key].name, client)
        action = fault.action if fault is not None else ""
        if action == "drop-before":
            raise Closed
        if fault is not None and action == "hold":
            await self._released.wait()
        if fault is not None and action == "delay":
            await asyncio.sleep(fault.ms / 1000)
        request.forced = fault.code if fault is not None and action == "error" else 0
        answer = await self._carry_out(session, request, client, body)
        if action == "drop-after":
            raise Closed
        return answer

    async def _carry_out(
        self, session: Session, request: Request, client: str, body: bytes
    ) -> Writer | None:
        request.now_ms = self._now_ms()
        self._state.transactions.expire(request.now_ms)
        if request.key in (17, 36):
            return self._authenticate(session, request)
        if request.key in self._waiting:
            return await self._waiting[request.key](request, client)
        answer = self._requests.handle(request)
        if request.changed:
            self._journal.write((request.now_ms, request.key, request.version, body))
            self._notify()
        return answer

    def _authenticate(self, session: Session, request: Request) -> Writer:
        body, answer = request.body, request.answer()
        if request.key == 17:
            known = body.text() == "PLAIN"
            answer.int16(0 if known else errors.UNSUPPORTED_SASL_MECHANISM)
            return answer.array(["PLAIN"], answer.text, plain=True)
        _, name, password = body.data().decode().split("\0")
        session.is_known = f"{name}:{password}" == self._login
        answer.int16(0 if session.is_known else errors.SASL_AUTHENTICATION_FAILED)
        answer.text(None if session.is_known else "invalid name or password").data(b"")
        return answer.int64(0) if request.version >= 1 else answer

    async def _fetch(self, request: Request, client: str) -> Writer:
        body, version = request.body, request.version
        body.int32()
        wait_ms, min_bytes = body.int32(), body.int32()
        body.int32()
        committed = body.int8() == 1

        def partition() -> tuple[int, int, int]:
            number, offset = body.int32(), body.int64()
            if version >= 5:
                body.int64()
            return number, offset, body.int32()

        topics = body.array(lambda: (body.text(), body.array(partition)))
        until = time.monotonic() + wait_ms / 1000
        while True:
            self._changed.clear()
            answer, size, failed = self._read(request, topics, committed)
            left_s = until - time.monotonic()
            if size >= min_bytes or failed or left_s <= 0:
                return answer
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def _read(
        self,
        request: Request,
        topics: list[tuple[str, list[tuple[int, int, int]]]],
        committed: bool,
    ) -> tuple[Writer, int, bool]:
        """The answer, how many bytes of records it has, and whether it has an error."""
        answer, size, failed = request.answer().int32(0), 0, bool(request.forced)

        def write(topic: str, number: int, offset: int, max_bytes: int) -> None:
            nonlocal size, failed
            log = self._state.partition(topic, number)
            code, data, aborted = request.forced, b"", []
            if log is None:
                code = errors.UNKNOWN_TOPIC_OR_PARTITION
            elif not log.start <= offset <= log.end:
                code = errors.OFFSET_OUT_OF_RANGE
            elif not code:
                data, aborted = log.read(offset, max_bytes, committed)
            failed, size = failed or bool(code), size + len(data)
            ends = (log.end, log.stable) if log is not None else (-1, -1)
            answer.int32(number).int16(code).int64(ends[0]).int64(ends[1])
            if request.version >= 5:
                answer.int64(log.start if log is not None else -1)
            answer.array(aborted, lambda pair: answer.int64(pair[0]).int64(pair[1])).data(data)

        answer.array(
            topics, lambda t: answer.text(t[0]).array(t[1], lambda part: write(t[0], *part))
        )
        return answer, size, failed

    async def _join(self, request: Request, client: str) -> Writer:
        body, version = request.body, request.version
        name, session_ms = body.text(), body.int32()
        rebalance_ms = body.int32() if version >= 1 else session_ms
        member, _ = body.text(), body.text()
        protocols = body.array(lambda: (body.text(), body.data()))
        groups = self._state.groups
        code = request.forced
        if not code:
            try:
                code, member = await groups.join(name, member, protocols, session_ms, rebalance_ms)
            except asyncio.CancelledError:
                code = errors.UNKNOWN_MEMBER_ID
        group = groups.group(name)
        answer = request.answer()
        if version >= 2:
            answer.int32(0)
        answer.int16(code).int32(group.generation).text(group.protocol).text(group.leader)
        answer.text(member)
        members = group.members.values() if member == group.leader and not code else ()
        return answer.array(
            members, lambda m: answer.text(m.name).data(dict(m.protocols).get(group.protocol, b""))
        )

    async def _sync(self, request: Request, client: str) -> Writer:
        body = request.body
        name, generation, member = body.text(), body.int32(), body.text()
        assignments = dict(body.array(lambda: (body.text(), body.data())))
        code, found = request.forced, b""
        if not code:
            code, found = await self._state.groups.sync(name, generation, member, assignments)
        return _throttled(request).int16(code).data(found)

    async def _heartbeat(self, request: Request, client: str) -> Writer:
        body = request.body
        name, generation, member = body.text(), body.int32(), body.text()
        code = request.forced or self._state.groups.heartbeat(name, generation, member)
        return _throttled(request).int16(code)

    async def _leave(self, request: Request, client: str) -> Writer:
        body = request.body
        code = request.forced or self._state.groups.leave(body.text(), body.text())
        return _throttled(request).int16(code)

    async def _take_orders(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            answer = self._obey(order.pop("do"), order)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _obey(self, do: str, order: dict[str, Any]) -> Any:
        """``fault`` plans what goes wrong; ``clear`` forgets it; ``release`` lets go what is held;
        ``advance`` puts the clock forward; ``drop`` closes all connections; the others tell.
        """
        transactions = self._state.transactions.transactions
        if do == "fault":
            self._released.clear()
            self._faults.plan(**order)
        elif do == "clear":
            self._faults.clear()
        elif do == "release":
            self._released.set()
        elif do == "advance":
            self._ahead_ms += order["ms"]
        elif do == "drop":
            for writer in list(self._writers):
                writer.transport.abort()
        elif do == "hits":
            return self._faults.hit
        elif do == "seen":
            return dict(self._seen)
        elif do == "transactions":
            return {name: txn.state.value for name, txn in transactions.items()}
        else:
            raise ValueError(f"no such order: {do}")
        return True

    def _notify(self) -> None:
        self._changed.set()

    def _now_ms(self) -> int:
        return int(time.time() * 1000) + self._ahead_ms


def _throttled(request: Request) -> Writer:
    answer = request.answer()
    return answer.int32(0) if request.version >= 1 else answer
