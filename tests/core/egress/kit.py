"""Partitions on plain memory, a store in memory, and readers for the tests of egress."""

from collections.abc import Callable

from headgate.base.elements import ByteLike, Element
from headgate.base.events import CheckpointBarrier, Event, decode_event
from headgate.base.ids import PartitionId
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.partition import Partition, PartitionKind, Wait, cannot_wait
from headgate.core.exchange.view import View
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer

ORDERS = PartitionId("orders/map/3#0")


class MemoryStore:
    """A store that keeps its entries in a list, and its life in a log."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bool]] = []
        self.log: list[str] = []
        self.broken: OSError | None = None

    def append(self, data: ByteLike, is_event: bool) -> None:
        if self.broken is not None:
            raise self.broken
        self.entries.append((bytes(data), is_event))

    def finish(self) -> None:
        self.log.append("finished")

    def open_reader(self) -> "MemoryReader":
        return MemoryReader(self)

    def delete(self) -> None:
        self.log.append("deleted")


class MemoryReader:
    """Reads a memory store once."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._at = 0

    def next(self) -> tuple[ByteLike, bool] | None:
        assert "deleted" not in self._store.log
        self._at += 1
        return self._store.entries[self._at - 1] if self._at <= len(self._store.entries) else None

    def close(self) -> None:
        self._store.log.append("reader closed")


def make_partition(
    shelf: GlobalPool,
    subpartitions: int = 1,
    kind: PartitionKind = PartitionKind.PIPELINED,
    *,
    maximum: int | None = None,
    overdraft: int = 0,
    wait: Wait = cannot_wait,
    stores: list[MemoryStore] | None = None,
) -> Partition:
    """A partition with a pool of its own; ``stores`` are those of a blocking one."""
    pool = shelf.create_pool("partition", min(subpartitions + 1, shelf.total), maximum, overdraft)
    make_store = None if stores is None else stores.__getitem__
    return Partition(ORDERS, kind, subpartitions, pool, wait=wait, make_store=make_store)


class ChannelReader:
    """Reads one view as a channel does: only when told, and on while there is more."""

    def __init__(self, create_view: Callable[[Callable[[], None]], View]) -> None:
        self.notified = 0
        self.awake = False
        self.got: list[Element | Event] = []
        self._deserializer = Deserializer()
        self.view = create_view(self._data_available)

    def _data_available(self) -> None:
        self.notified += 1
        self.awake = True

    def read(self) -> None:
        """Read until there is no reason to go on."""
        while self.awake:
            self.step()

    def step(self) -> None:
        """Read one buffer, if there is reason to."""
        if not self.awake:
            return
        self.awake = False
        polled = self.view.poll()
        if polled is None:
            return
        self.awake = polled.more
        buffer = polled.buffer
        if buffer.is_event:
            event = decode_event(buffer.view)
            overtook = isinstance(event, CheckpointBarrier) and event.unaligned
            assert overtook or self._deserializer.is_between_elements
            self.got.append(event)
            return
        self._deserializer.feed(buffer)
        result = DeserializationResult.MIDDLE
        while result is DeserializationResult.MIDDLE:
            result, element = self._deserializer.next()
            if element is not None:
                self.got.append(element)

    def close(self) -> None:
        self._deserializer.close()
        self.view.release()


def readers_of(partition: Partition) -> list[ChannelReader]:
    """A reader for every subpartition."""
    return [
        ChannelReader(lambda on_data, index=index: partition.create_view(index, on_data))
        for index in range(len(partition.subpartitions))
    ]
