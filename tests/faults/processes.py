"""What can be done to processes from outside: kill, freeze, and reset their connections.

A connection is reset without the help of either end: its socket is borrowed from the process
(``pidfd_getfd``, which the kernel allows for one's own descendants) and disconnected, whereupon the
kernel sends RST. Nothing in Headgate knows of it.
"""

import ctypes
import os
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path

PIDFD_GETFD = 438
"""The same number on every architecture."""
ESTABLISHED = "01"
AF_UNSPEC = bytes(16)

_libc = ctypes.CDLL(None, use_errno=True)


class Frozen:
    """A process that was stopped; the handle is its own, also when its number is given anew."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(self._handle, signal.SIGSTOP)

    def wake(self) -> bool:
        """Whether it was still there."""
        with closing(os.fdopen(self._handle)), suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGCONT)
            return True
        return False


def reset_connections(pids: list[int]) -> int:
    """All between these processes; returns how many."""
    ends = {(mine, theirs): (pid, fd) for pid in pids for mine, theirs, fd in connections(pid)}
    inner = {frozenset(pair): end for pair, end in ends.items() if pair[::-1] in ends}
    return sum(_reset(pid, fd) for pid, fd in inner.values())


def connections(pid: int) -> list[tuple[str, str, int]]:
    """Of TCP: the address here, that of the peer, and the descriptor."""
    sockets: dict[str, int] = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            sockets[os.readlink(link)] = int(link.name)
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, mine, theirs, state, *_, inode = line.split()[:10]
        fd = sockets.get(f"socket:[{inode}]")
        if state == ESTABLISHED and fd is not None:
            found.append((mine, theirs, fd))
    return found


def _reset(pid: int, fd: int) -> int:
    handle = os.pidfd_open(pid)
    try:
        borrowed = _call(_libc.syscall, PIDFD_GETFD, handle, fd, 0)
    except OSError as error:
        raise RuntimeError(f"process {pid} does not lend its socket {fd}") from error
    finally:
        os.close(handle)
    with socket.socket(fileno=borrowed) as taken:
        if taken.family is not socket.AF_INET:  # the number was given to something else
            return 0
        _call(_libc.connect, borrowed, AF_UNSPEC, len(AF_UNSPEC))
    return 1


def _call(function: "ctypes._NamedFuncPointer", *arguments: object) -> int:
    result = int(function(*arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
