"""The blocking subpartition: written once and whole, then read as often as anybody likes.

Law: no reader before the end; every reader sees the same buffers in the same order; the store is
deleted when the subpartition is released and its last reader has gone. The store is the driver's.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from headgate.base.elements import ByteLike
from headgate.base.errors import PartitionError
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, encode_event
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer, BufferConsumer
from headgate.core.exchange.view import NO_LIMIT, PolledBuffer


class StoreReader(Protocol):
    """Reads a store from the start to the end, once."""

    def next(self) -> tuple[ByteLike, bool] | None:
        """The next entry and whether it is an event, or None at the end."""

    def close(self) -> None: ...


class EntryStore(Protocol):
    """Keeps entries outside of the pools, in order."""

    def append(self, data: ByteLike, is_event: bool) -> None: ...

    def finish(self) -> None: ...

    def open_reader(self) -> StoreReader: ...

    def delete(self) -> None: ...


class BlockingSubpartition:
    """Writes buffers to its store when others follow them; one at most is pooled memory."""

    def __init__(self, partition: PartitionId, index: int, store: EntryStore) -> None:
        self.partition = partition
        self.index = index
        self.finished = False
        self.released = False
        self.is_read_here = False  # readers get bytes, wherever they run
        self.buffer_size = NO_LIMIT  # readers come when all is written
        self.failure: Exception | None = None
        self._store = store
        self._broken: Exception | None = None  # why the store is not whole
        self._deleted = False
        self._current: BufferConsumer | None = None
        self._data_buffers = 0
        self._views: list[BlockingView] = []

    def add(self, consumer: BufferConsumer) -> bool:
        """Store what came before and keep the new consumer until it is finished."""
        if self.finished or self.released:
            consumer.close()
            return False
        try:
            self.flush()
        except BaseException:
            consumer.close()
            raise
        assert self._current is None, "an unfinished buffer has others after it"
        self._current = consumer
        self.flush()
        return True

    def flush(self) -> None:
        """Store what the current buffer holds by now; a store that failed once stays broken."""
        if self._broken is not None:
            problem = f"subpartition {self.index} could not be stored: {self._broken}"
            raise PartitionError(self.partition, problem) from self._broken
        current = self._current
        if current is None:
            return
        finished = current.is_finished
        buffer = current.build()
        if buffer is not None:
            self._write(buffer)
        if finished:
            current.close()
            self._current = None

    def finish(self) -> None:
        """Store the rest and the end-of-partition event; from now on it can be read."""
        if self.finished or self.released:
            return
        self.flush()
        self._drop_current()
        self._write(Buffer(encode_event(END_OF_PARTITION), is_event=True))
        self._store.finish()
        self.finished = True

    def create_view(self, on_data: Callable[[], None]) -> "BlockingView":
        """One more reader, from the first buffer on."""
        if self.released:
            raise PartitionError(self.partition, f"subpartition {self.index} is released")
        if not self.finished:
            raise PartitionError(
                self.partition,
                f"subpartition {self.index} is blocking and not finished; "
                f"its readers start when its producer has ended",
            )
        view = BlockingView(self, self._store.open_reader(), self._data_buffers)
        self._views.append(view)
        on_data()
        return view

    def release(self, failure: Exception | None = None) -> None:
        """No longer needed: the store is deleted as soon as nobody reads it."""
        if self.released:
            return
        self.released = True
        self.failure = failure
        self._drop_current()
        self._delete_if_unused()

    def view_released(self, view: "BlockingView") -> None:
        self._views.remove(view)
        self._delete_if_unused()

    @property
    def backlog(self) -> int:
        return 0

    @property
    def queued(self) -> int:
        return 0 if self._current is None else 1

    @property
    def queued_bytes(self) -> int:
        return 0 if self._current is None else self._current.size

    def _write(self, buffer: Buffer) -> None:
        try:
            self._store.append(buffer.view, buffer.is_event)
        except Exception as error:
            self._broken = error
            raise
        finally:
            buffer.release()
        if not buffer.is_event:
            self._data_buffers += 1

    def _drop_current(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.close()

    def _delete_if_unused(self) -> None:
        if self.released and not self._views and not self._deleted:
            self._deleted = True
            self._store.delete()


class BlockingView:
    """One sequential reading of a finished blocking subpartition."""

    def __init__(self, parent: BlockingSubpartition, reader: StoreReader, data: int) -> None:
        self._parent = parent
        self._reader = reader
        self._data_left = data
        try:
            self._ahead = reader.next()
        except BaseException:
            reader.close()
            raise
        self.is_released = False

    def poll(self) -> PolledBuffer | None:
        if self.is_released or self._ahead is None:
            return None
        data, is_event = self._ahead
        if not is_event:
            self._data_left -= 1
        self._ahead = self._reader.next()
        next_is_event = self._ahead is not None and self._ahead[1]
        buffer = Buffer(data, None, is_event)
        return PolledBuffer(buffer, self._ahead is not None, self._data_left, next_is_event)

    def peek(self) -> Iterator[Buffer]:
        """The next entry; the others are on disk."""
        if self._ahead is not None and not self.is_released:
            data, is_event = self._ahead
            yield Buffer(data, None, is_event)

    def available(self, has_credit: bool) -> bool:
        return self._ahead is not None and (has_credit or self._ahead[1])

    @property
    def backlog(self) -> int:
        return self._data_left

    @property
    def failure(self) -> Exception | None:
        return self._parent.failure

    def take_references(self) -> None:
        """What is stored is bytes; nothing changes."""

    def tell_barriers(self, on_barrier: Callable[[CheckpointBarrier], None]) -> None:
        """Barriers are never stored: a checkpoint is of a job that streams."""

    def resize(self, size: int) -> None:
        """What is stored is as long as it is."""

    def release(self) -> None:
        if not self.is_released:
            self.is_released = True
            self._ahead = None
            self._reader.close()
            self._parent.view_released(self)
