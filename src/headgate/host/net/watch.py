"""Watches the descriptors of an idle source in the event loop, in a copy of each.

A reader, or a thread of its library, may close its descriptor at any moment, and the system gives
the number to somebody else: to a connection of this very loop, perhaps. Law: what is registered is
a duplicate that belongs to the watch, so that neither can be taken for the other, and it is closed
as soon as the watch ends.
"""

import errno
import os
from collections.abc import Callable, Sequence

from headgate.base.errors import ConnectorError
from headgate.host.net.loop import Loop


class LoopWatch:
    """See ``DescriptorWatch``; ``ready`` is called once, from inside a poll of the loop."""

    def __init__(self, loop: Loop, ready: Callable[[int], None]) -> None:
        self._loop = loop
        self._ready = ready
        self._copies: list[int] = []

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        assert not self._copies, "the last watch has not ended"
        return [fd for fd in descriptors if not self._add(fd)]

    def end(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            if not self._loop.closed:
                self._loop.remove(copy)
            os.close(copy)

    def _add(self, fd: int) -> bool:
        try:
            copy = os.dup(fd)
        except (OSError, OverflowError):  # it is closed, or the process has too many
            return False
        try:
            self._loop.add(copy, _Watched(self._ready, fd))
        except OSError as error:
            os.close(copy)
            if error.errno != errno.EPERM:
                return False
            raise ConnectorError(
                f"fileno() of its reader returned the descriptor {fd} of a file or folder, which "
                f"cannot be watched; return that of a socket, a pipe or the like, or None"
            ) from error
        self._copies.append(copy)
        return True


class _Watched:
    """A descriptor, as the loop sees it; errors and hang-ups are for the reader to find."""

    def __init__(self, ready: Callable[[int], None], fd: int) -> None:
        self._ready = ready
        self._fd = fd

    def ready(self, mask: int) -> None:
        self._ready(self._fd)
