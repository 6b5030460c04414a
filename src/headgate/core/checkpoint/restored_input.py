"""What the channels of an input begin with after a restore.

Law: strays come first, then what was on its way in each channel, in order; each buffer comes out
once. What has not come out is still on its way: the next checkpoint keeps it with its channel. The
memory is the checkpoint's own, no segment is used for it, so the channel is held meanwhile: its
producer sends nothing beside it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from headgate.base.elements import Bundle, Serializer
from headgate.core.buffers.buffer import Buffer
from headgate.core.buffers.in_flight import buffer_bytes


class RestoredInput:
    """Buffers for one input; true as long as there may be some."""

    def __init__(
        self,
        hold: Callable[[int], None] = lambda channel: None,
        let_go: Callable[[int], None] = lambda channel: None,
    ) -> None:
        """``hold`` is called with a channel that begins with something, ``let_go`` when all of that
        has been read."""
        self._hold = hold
        self._let_go = let_go
        self._left: dict[int, int] = {}
        self._strays: deque[tuple[int, Iterator[Buffer]]] = deque()
        self._channels: deque[tuple[int, Iterator[Buffer]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._strays or self._channels)

    def add_bytes(self, channel: int, parts: Iterable[bytes]) -> None:
        """A part of the stream of a channel; it may begin and end in the middle of an element."""
        buffers = [Buffer(part) for part in parts if part]
        if buffers:
            self._add(self._channels, channel, iter(buffers))

    def add_strays(self, channel: int, bundles: Iterable[Bundle]) -> None:
        """Records that belong before all else; they are made when they are read."""
        buffers = (Buffer(b"", bundle=bundle) for bundle in bundles if bundle.records)
        self._add(self._strays, channel, buffers)

    def next(self) -> tuple[int, Buffer] | None:
        """The next buffer and its channel; None: that was all."""
        for waiting in (self._strays, self._channels):
            while waiting:
                channel, buffers = waiting[0]
                buffer = next(buffers, None)
                if buffer is not None:
                    return channel, buffer
                waiting.popleft()
                self._used_up(channel)
        return None

    def unread(self, channel: int, serializer: Serializer) -> bytes:
        """All that is still to come of a channel."""
        unread = b""
        for waiting in (self._strays, self._channels):
            for at, (whose, buffers) in enumerate(waiting):
                if whose == channel:
                    kept = list(buffers)
                    waiting[at] = whose, iter(kept)
                    unread += b"".join(buffer_bytes(buffer, serializer) for buffer in kept)
        return unread

    def _add(
        self, waiting: deque[tuple[int, Iterator[Buffer]]], channel: int, buffers: Iterator[Buffer]
    ) -> None:
        waiting.append((channel, buffers))
        self._left[channel] = self._left.get(channel, 0) + 1
        self._hold(channel)

    def _used_up(self, channel: int) -> None:
        self._left[channel] -= 1
        if not self._left[channel]:
            self._let_go(channel)
