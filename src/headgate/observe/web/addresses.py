"""Where the server listens, how it is reached, and whether it asks for a token.

Law: an address that others can reach is never served without a token. Nothing here needs the web
libraries, which take a while to load.
"""

import ipaddress
import secrets
import socket
from contextlib import suppress
from typing import Any, Final

from headgate.base.settings import RestSettings

USUAL_PORTS: Final = range(8081, 8101)
BACKLOG: Final = 128
TOKEN_BYTES: Final = 24


def token_of(settings: RestSettings) -> str:
    """What requests must have; empty: nothing."""
    if settings.token or is_loopback(settings.bind_address):
        return settings.token
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def bind(settings: RestSettings) -> socket.socket:
    """The port of the settings, or a free one, those that people know first; raises OSError."""
    address = settings.bind_address
    ports = [settings.port] if settings.port else [*USUAL_PORTS, 0]
    try:
        found = socket.getaddrinfo(
            address, ports[0], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:
        raise OSError(f"no host can be called {address!r}") from error
    family, _, _, _, where = found[0]
    for port in ports[:-1]:
        with suppress(OSError):
            return _listen(family, (where[0], port, *where[2:]))
    return _listen(family, (where[0], ports[-1], *where[2:]))


def _listen(family: int, where: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def reachable(bind_address: str) -> str:
    """How this machine itself reaches the server."""
    if bind_address in ("0.0.0.0", ""):
        return "127.0.0.1"
    if bind_address == "::":
        return "[::1]"
    return f"[{bind_address}]" if ":" in bind_address else bind_address


def public_name(bind_address: str, reachable: str) -> str:
    """What people may type elsewhere, too, if the server listens on every address."""
    return socket.gethostname() if bind_address in ("0.0.0.0", "", "::") else reachable
