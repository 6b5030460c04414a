"""Who may ask the server what: Host, Origin, token, and headers that keep browsers in bounds.

A page of somebody else's that a user visits can send requests to the loopback address too. Law: a
request is answered only if its Host is one of ours (else a foreign name may have been pointed
here), a foreign Origin never is, whatever changes something must come from our own page or from a
program. All but the page's static files need the token; without one, only processes of this
process's user, and root's, are answered. No header of a proxy is believed, and no other origin is
let in. Linux knows whose process is at the other end of a connection (sock_diag(7)). Where it
cannot be asked, a thread reads the list of all sockets, one reading at a time and with pauses,
since any user can open thousands. A socket that its process has closed is nobody's.
"""

import asyncio
import errno
import hmac
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.observe.web.answers import Problems
from headgate.observe.web.json_objects import encode
from headgate.observe.web.server import is_loopback

PEER_UID: Final = "peer_uid"
"""Key in the state of a request for the peer's user id. None: nobody here; absent: not known."""
PAUSE_S: Final = 0.1
"""Pause between two readings of the list."""

Address = Sequence[Any]
"""Address of a socket: host, port, and what IPv6 has in addition."""


class CannotAsk(Exception):
    """This kernel, or the sandbox of this process, answers no questions about sockets."""


_ASK: Final = struct.Struct("=IHHII BBBxI")
"""Header of a message, then what is asked for: family, protocol, no extensions, any state."""
_ANSWER: Final = struct.Struct("=IHHII BBxx 48x 12x II")
"""Header of a message; family, state, (addresses, queues,) owner and inode of the socket."""
_REFUSAL: Final = struct.Struct("=IHHII i")
_ASK_BY_FAMILY: Final = 20
_IS_REQUEST: Final = 1
_IS_ERROR: Final = 2
_LISTENS: Final = 10
_SOCK_DIAG: Final = 4
_ANY_STATE: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_LONGEST: Final = 4096


def asked_uid(ours: Address, theirs: Address) -> int | None:
    """The user at the other end; None: it is not on this machine, or has closed its socket.

    Raises ``CannotAsk``.
    """
    try:
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _SOCK_DIAG
        ) as kernel:
            found = _ask(kernel, theirs, ours)
            # The kernel also says "no such socket" if it lacks the module that would know.
            if found is None and _ask(kernel, ours, theirs) is None:
                raise CannotAsk("it does not know this process's own socket")
    except (OSError, AttributeError) as error:  # another system has no such sockets
        raise CannotAsk(str(error)) from error
    if found is None:
        return None
    state, uid, inode = found
    return uid if inode and state != _LISTENS else None


def _ask(kernel: socket.socket, at: Address, to: Address) -> tuple[int, int, int] | None:
    """State, owner and inode of the socket at an address that is connected to another."""
    family = _family(at)
    ends = b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (at, to))
    wanted = struct.pack("!HH", at[1], to[1]) + ends + _ANY_COOKIE
    length = _ASK.size + len(wanted)
    header = length, _ASK_BY_FAMILY, _IS_REQUEST, 1, 0
    kernel.send(_ASK.pack(*header, family, socket.IPPROTO_TCP, 0, _ANY_STATE) + wanted)
    answer = kernel.recv(_LONGEST)
    if struct.unpack_from("=IH", answer)[1] == _IS_ERROR:
        code = -_REFUSAL.unpack_from(answer)[-1]
        if code == errno.ENOENT:
            return None
        raise OSError(code, "the kernel does not answer")
    *_, state, uid, inode = _ANSWER.unpack_from(answer)
    return state, uid, inode


class SocketList:
    """The kernel's list of all sockets; used on one event loop."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._begun = 0
        self._read_at = float("-inf")
        self._users: dict[tuple[str, str], int] = {}

    async def uid(self, ours: Address, theirs: Address) -> int | None:
        """The user at the other end, as ``asked_uid`` says it."""
        begun, loop = self._begun, asyncio.get_running_loop()
        async with self._reading:
            if self._begun == begun:  # a reading that began earlier may have missed this socket
                await asyncio.sleep(self._read_at + PAUSE_S - loop.time())
                self._begun += 1
                self._users = await asyncio.to_thread(_listed_users)
                self._read_at = loop.time()
            with suppress(OSError):
                return self._users.get((_listed(theirs), _listed(ours)))
        return None


def _listed_users() -> dict[tuple[str, str], int]:
    """Owners of all sockets that have a process, by their own and the other end's address."""
    users: dict[tuple[str, str], int] = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            for row in Path("/proc/net", table).read_text("ascii").splitlines()[1:]:
                fields = row.split()
                if fields[9] != "0":
                    users[_unmapped(fields[1]), _unmapped(fields[2])] = int(fields[7])
    return users


def _listed(address: Address) -> str:
    """The address in the kernel's notation: words of four bytes, in hexadecimal digits."""
    packed = socket.inet_pton(_family(address), address[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    digits = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return _unmapped(f"{digits}:{address[1]:04X}")


_MAPPED: Final = f"{0:016X}{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"


def _unmapped(listed: str) -> str:
    """An end with a socket of IPv6 has the other's address of IPv4 as ``::ffff:…``."""
    return listed.removeprefix(_MAPPED)


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


SAFE: Final = ("GET", "HEAD")
LONGEST_HEAD: Final = 16 * 1024
ROOT: Final = 0
LONGEST_BODY: Final = 64 * 1024
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
SECURITY_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Access:
    """Wraps the application; lets through what may pass."""

    def __init__(self, app: ASGIApp, *, bind_address: str, token: str, open_paths: tuple[str, ...]):
        """``open_paths``: what needs no token; one that ends with ``/`` is open with all below."""
        self._app = app
        self._token = token.encode()
        self._open_paths = open_paths
        self._users = (os.geteuid(), ROOT)
        self._sockets = SocketList()
        self._hosts = {*LOOPBACK_NAMES, bind_address} if is_loopback(bind_address) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "websockets and lifespan are off"
        headers = Headers(scope=scope)
        refusal = (
            _too_long(scope)
            or self._refusal(scope["method"], scope["path"], headers)
            or await self._stranger(scope)
        )
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            await refusal(scope, receive, _with_headers(send))

    def _refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return problem(
                403,
                "this server is not known by the name in the request's Host header; open the "
                "address that the job has printed",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            return problem(403, "a page of another origin may not ask this server")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and path != "/":
            return problem(403, "a page of another site may not ask this server")
        if method not in SAFE and not _is_deliberate(headers):
            return problem(
                403,
                "a request that changes something needs the header X-Requested-With, or a body "
                "of type application/json",
            )
        if not _has_short_body(headers):
            return problem(413, f"the body of a request may have {LONGEST_BODY} bytes at most")
        if self._token and not self._is_open(path) and not self._has_token(headers):
            refusal = problem(
                401,
                "the token is missing or wrong; open the address that the job has printed, or "
                "send the header Authorization: Bearer and the token",
            )
            refusal.headers["www-authenticate"] = 'Bearer realm="headgate"'
            return refusal
        return None

    async def _stranger(self, scope: Scope) -> Response | None:
        """Without a token, whoever is somebody else on this machine is refused."""
        if self._token or self._is_open(scope["path"]):
            return None
        if await self._user(scope) in self._users:
            return None
        return problem(
            403,
            "this server belongs to another user of this machine; that user can let others in by "
            "setting rest.token and telling them the token",
        )

    async def _user(self, scope: Scope) -> int | None:
        state = scope.get("state", {})
        if PEER_UID not in state and scope.get("client") and scope.get("server"):
            state[PEER_UID] = await self._sockets.uid(scope["server"], scope["client"])
        uid: int | None = state.get(PEER_UID)
        return uid

    def _is_ours(self, host: str) -> bool:
        """On the loopback address a foreign name means that somebody has pointed it here."""
        name = _name_of(host)
        return bool(name) and (self._hosts is None or name in self._hosts)

    def _is_open(self, path: str) -> bool:
        return any(
            path.startswith(opened) if opened.endswith("/") and opened != "/" else path == opened
            for opened in self._open_paths
        )

    def _has_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._token)
        return same and kind.lower() == "bearer"


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says what is wrong."""
    body = encode(Problems([sentence]))
    return Response(body, status, dict(headers or {}), media_type="application/json")


def _too_long(scope: Scope) -> Response | None:
    """Uvicorn bounds a head only if it comes in parts; a query may name all metrics of a job."""
    size = len(scope["raw_path"]) + sum(len(name) + len(value) for name, value in scope["headers"])
    if size <= LONGEST_HEAD:
        return None
    return problem(431, f"the head of a request may have {LONGEST_HEAD} bytes at most")


def _name_of(host: str) -> str:
    """Without its port; empty: it is not a host at all."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_same(origin: str, host: str) -> bool:
    """Whether the page that asks was served by whom it asks."""
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_deliberate(headers: Headers) -> bool:
    """A form or an image of a foreign page can send none of these without being asked first."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "x-requested-with" in headers or kind == "application/json"


def _has_short_body(headers: Headers) -> bool:
    try:
        return int(headers.get("content-length", "0")) <= LONGEST_BODY
    except ValueError:
        return False


def _with_headers(send: Send) -> Send:
    async def send_protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_protected
