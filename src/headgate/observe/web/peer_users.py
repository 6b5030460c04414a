"""Whose process is at the other end of a connection within this machine; Linux knows.

The kernel answers for one pair of addresses in microseconds (sock_diag(7)). Where it cannot be
asked, its list of all sockets is read instead: that takes as long as there are sockets, which any
user can open and close by the thousand. Law: the list is read by a thread, one reading at a time
and with pauses, for all that wait; a socket that its process has closed is nobody's.
"""

import asyncio
import errno
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PEER_UID: Final = "peer_uid"
"""In the state of a request: the user at the other end. None: nobody here; absent: not known."""
PAUSE_S: Final = 0.1
"""Between two readings of the list."""

Address = Sequence[Any]
"""Of a socket: host, port, and what IPv6 has in addition."""


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
    """As the kernel lists it: words of four bytes in the machine's order, in hexadecimal digits."""
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
