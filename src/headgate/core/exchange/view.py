"""The seam between a subpartition and whoever reads it: a local channel or a network reader."""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer

NO_LIMIT: Final = 2**32 - 1
"""The size of a buffer that may be as long as its segment."""


class PolledBuffer(msgspec.Struct):
    """A buffer, and what the reader should know of what follows it."""

    buffer: Buffer
    more: bool
    backlog: int
    next_is_event: bool


class View(Protocol):
    """One reading of one subpartition."""

    def poll(self) -> PolledBuffer | None:
        """The next buffer, or None: not now."""

    def peek(self) -> Iterator[Buffer]:
        """What waits and is in memory, in order; it stays there, and is not the caller's."""

    def available(self, has_credit: bool) -> bool:
        """Whether ``poll`` would give something that may be sent: events need no credit."""

    @property
    def backlog(self) -> int:
        """Data buffers waiting; events never count."""

    @property
    def failure(self) -> Exception | None:
        """Why the subpartition was released before its end, if it was."""

    @property
    def is_released(self) -> bool: ...

    def take_references(self) -> None:
        """The reader runs in this process: it may be given records instead of bytes."""

    def tell_barriers(self, on_barrier: Callable[[CheckpointBarrier], None]) -> None:
        """Tell the reader of barriers that stand first, before it reads them."""

    def resize(self, size: int) -> None:
        """The reader wants data buffers of at most so many bytes from now on."""

    def release(self) -> None:
        """The reader needs no more; a pipelined subpartition is consumed by that."""


class Partitions(Protocol):
    """Where a reader finds what it wants to read."""

    def create_view(
        self, partition: PartitionId, subpartition: int, on_data: Callable[[], None]
    ) -> View: ...


class Events(Protocol):
    """Who gets the task events of consumers."""

    def publish(self, partition: PartitionId, event: TaskEvent) -> bool: ...

    def class_named(self, partition: PartitionId, name: str) -> type[TaskEvent] | None:
        """The class that the wire calls so, if somebody at the partition wants its events."""
