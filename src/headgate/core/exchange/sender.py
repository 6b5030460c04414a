"""The sending end of a connection: serves the readers of this process's partitions.

Law for each reader: every data buffer costs one credit and the credit is never negative; events and
empty buffers cost nothing; sequence numbers count up from 0. Available readers stand in a queue,
each at most once, and give one buffer in turn, so one without credit never holds up another.
"""

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from headgate.base.errors import (
    EventUnclaimed,
    HeadgateError,
    PartitionNotFound,
    PeerBrokeProtocol,
    ProducerFailed,
    TooManyReceivers,
    UnknownReceiver,
)
from headgate.base.events import decode_task_event, split_task_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer
from headgate.core.exchange.compression import CompressionCodec, try_compress
from headgate.core.exchange.frames import (
    FLAG_COMPRESSED,
    FLAG_EVENT,
    AddCredit,
    Backlog,
    BufferSize,
    CancelReceiver,
    ErrorCode,
    ErrorReport,
    Message,
    PartitionRequest,
    TaskEventRequest,
    encode,
    encode_buffer_head,
)
from headgate.core.exchange.outbox import Outbox
from headgate.core.exchange.view import Events, Partitions, View

MAX_CREDIT: Final = 2**32
MAX_RECEIVERS: Final = 16 * 1024
"""Channels that one peer may have here, those among them that ended and it did not cancel."""


class Reader:
    """One remote channel that reads a subpartition of this process."""

    __slots__ = (
        "announces", "credit", "partition", "queued", "receiver", "sequence", "told_backlog", "view"
    )  # fmt: skip

    def __init__(self, receiver: ChannelId, partition: PartitionId, credit: int) -> None:
        self.receiver = receiver
        self.partition = partition
        self.credit = credit
        self.announces = credit == 0
        self.told_backlog = 0
        self.sequence = 0
        self.queued = False
        self.view: View | None = None


class SenderSession:
    """All readers of one connection. ``wake`` is called when there is something to send."""

    def __init__(
        self,
        partitions: Partitions,
        events: Events,
        outbox: Outbox,
        peer: PeerName,
        wake: Callable[[], None],
        *,
        uses_credit: bool,
        codec: CompressionCodec | None = None,
    ) -> None:
        self.peer = peer
        self.readers: dict[ChannelId, Reader] = {}
        self._partitions = partitions
        self._events = events
        self._outbox = outbox
        self._wake = wake
        self._uses_credit = uses_credit
        self._codec = codec
        self._available: deque[Reader] = deque()
        self._ended: set[ChannelId] = set()
        self._closed = False

    @property
    def has_work(self) -> bool:
        return bool(self._available)

    def message_received(self, message: Message) -> None:
        """A request of the consumer's side."""
        match message:
            case AddCredit(grants):
                for receiver, credit in grants:
                    self._add_credit(receiver, credit)
            case PartitionRequest():
                self._request(message)
            case CancelReceiver(receiver):
                self._cancel(receiver)
            case TaskEventRequest(receiver, partition, event):
                self._publish(receiver, partition, event)
            case BufferSize(receiver, size):
                self._resize(receiver, size)
            case ErrorReport():
                raise PeerBrokeProtocol(self.peer, f"it reports: {message.text}")
            case _:
                raise PeerBrokeProtocol(
                    self.peer, f"{type(message).__name__} is not for the sending side"
                )

    def pump(self, frames: int) -> None:
        """Move up to ``frames`` buffers of available readers into the outbox, one each in turn."""
        if not self._outbox.writable:
            return
        available = self._available
        while frames and available:
            frames -= 1
            reader = available.popleft()
            reader.queued = False
            self._send_next(reader)

    def close(self) -> None:
        """The connection has ended: nobody reads here."""
        self._closed = True
        self._wake = _nobody
        self._available.clear()
        self._ended.clear()
        readers, self.readers = self.readers, {}
        with ExitStack() as all_of_them:  # whatever one of them raises, the others are released
            for reader in reversed(readers.values()):
                if reader.view is not None:
                    all_of_them.callback(reader.view.release)

    def check(self) -> None:
        """Assert the law."""
        for reader in self.readers.values():
            assert reader.credit >= 0
            assert reader.queued == (sum(other is reader for other in self._available) == 1)

    def _request(self, request: PartitionRequest) -> None:
        if request.receiver in self.readers:
            raise PeerBrokeProtocol(self.peer, f"channel {request.receiver} requested twice")
        if len(self.readers) + len(self._ended) >= MAX_RECEIVERS:
            raise TooManyReceivers(self.peer, MAX_RECEIVERS)
        credit = request.credit if self._uses_credit else MAX_CREDIT
        reader = Reader(request.receiver, request.partition, credit)
        self._ended.discard(request.receiver)
        self.readers[request.receiver] = reader
        try:
            reader.view = self._partitions.create_view(
                request.partition, request.subpartition, lambda: self._data_available(reader)
            )
        except (HeadgateError, OSError) as error:  # a stored partition may not open
            self._end(reader, error)
        else:
            self._data_available(reader)

    def _add_credit(self, receiver: ChannelId, credit: int) -> None:
        reader = self.readers.get(receiver)
        if reader is None:
            if receiver in self._ended:
                return  # sent before the consumer knew that we had ended
            raise UnknownReceiver(self.peer, receiver, "credit")
        if credit == 0 or reader.credit + credit > MAX_CREDIT:
            raise PeerBrokeProtocol(self.peer, f"{credit} credits for channel {receiver}")
        reader.credit += credit
        if not reader.queued:
            self._enqueue(reader)

    def _resize(self, receiver: ChannelId, size: int) -> None:
        if size == 0:
            raise PeerBrokeProtocol(self.peer, f"buffers of 0 bytes for channel {receiver}")
        reader = self.readers.get(receiver)
        if reader is not None and reader.view is not None:
            reader.view.resize(size)
        elif receiver not in self._ended:
            raise UnknownReceiver(self.peer, receiver, "a size of buffers")

    def _cancel(self, receiver: ChannelId) -> None:
        reader = self.readers.pop(receiver, None)
        if reader is not None:
            if reader.view is not None:
                reader.view.release()
        elif receiver in self._ended:
            self._ended.remove(receiver)
        else:
            raise UnknownReceiver(self.peer, receiver, "a cancellation")

    def _publish(self, receiver: ChannelId, partition: PartitionId, data: bytes) -> None:
        try:
            parts = split_task_event(data)
            if parts is None:
                what = f"an event of tag {data[0]}" if data else "an event of 0 bytes"
                raise PeerBrokeProtocol(self.peer, f"{what} is no task event")
            name, body = parts
            kind = self._events.class_named(partition, name)
            if kind is None or receiver in self._ended:
                # Nothing is read of a class that nobody here has asked for. A channel whose
                # request has found nothing sends its events again, with the next request.
                raise EventUnclaimed(partition, name)
            if not self._events.publish(partition, decode_task_event(kind, body)):
                raise EventUnclaimed(partition, name)
        except PeerBrokeProtocol:
            raise
        except EventUnclaimed as error:
            self._report(receiver, partition, error)
        except (Exception, SystemExit) as error:  # of its class or a subscriber: this consumer ends
            if receiver in self.readers:
                self._end(self.readers[receiver], error)
            else:
                self._report(receiver, partition, error)

    def _data_available(self, reader: Reader) -> None:
        if reader.queued or reader.view is None or self._closed:
            return
        if reader.view.is_released:
            self._view_was_released(reader)
            return
        self._enqueue(reader)

    def _enqueue(self, reader: Reader) -> None:
        if reader.queued:
            return
        view = reader.view
        if view is not None and view.available(reader.credit > 0):
            reader.queued = True
            self._available.append(reader)
            self._wake()
        elif reader.credit == 0 and reader.announces:
            self._announce(reader)

    def _announce(self, reader: Reader) -> None:
        assert reader.view is not None
        backlog = reader.view.backlog
        if backlog and not reader.told_backlog:
            reader.told_backlog = backlog
            self._outbox.add(encode(Backlog(reader.receiver, backlog)))
            self._wake()

    def _send_next(self, reader: Reader) -> None:
        view = reader.view
        if view is None or reader.receiver not in self.readers:
            return
        if not reader.credit and not view.available(False):
            self._data_available(reader)
            return
        try:
            polled = view.poll()
        except OSError as error:  # of the disk, for a stored partition: it concerns this reader
            self._end(reader, error)
            return
        if polled is None:
            if view.is_released:
                self._view_was_released(reader)
            return
        buffer, flags = polled.buffer, FLAG_EVENT
        if not buffer.is_event:
            assert reader.credit > 0, "a data buffer was sent without credit"
            if self._uses_credit and buffer.view:  # an empty one takes no buffer over there
                reader.credit -= 1
            flags = 0
            if self._codec is not None:
                try:
                    buffer, flags = self._packed(self._codec, buffer)
                except Exception as error:  # of the codec: it concerns this reader
                    self._end(reader, error)
                    return
        reader.told_backlog = backlog = polled.backlog
        sequence = reader.sequence
        reader.sequence = sequence + 1
        head = encode_buffer_head(reader.receiver, sequence, backlog, flags, len(buffer.view))
        self._outbox.add_buffer(head, buffer)
        if polled.next_is_event or (polled.more and reader.credit > 0):
            reader.queued = True
            self._available.append(reader)

    def _packed(self, codec: CompressionCodec, buffer: Buffer) -> tuple[Buffer, int]:
        try:
            packed = try_compress(codec, buffer.view)
        except BaseException:
            buffer.release()
            raise
        if packed is None:
            return buffer, 0
        buffer.release()
        return Buffer(packed), FLAG_COMPRESSED

    def _view_was_released(self, reader: Reader) -> None:
        view = reader.view
        if reader.receiver not in self.readers or view is None:
            return
        failure = view.failure
        cause = "it was released before all was read" if failure is None else str(failure)
        self._end(reader, ProducerFailed(reader.partition, cause))

    def _end(self, reader: Reader, error: BaseException) -> None:
        self.readers.pop(reader.receiver, None)
        self._ended.add(reader.receiver)
        if reader.view is not None:
            reader.view.release()
        self._report(reader.receiver, reader.partition, error)

    def _report(self, receiver: ChannelId, partition: PartitionId, error: BaseException) -> None:
        text = str(error) if isinstance(error, HeadgateError) else repr(error)
        report = ErrorReport(receiver, _code_of(error), partition, text)
        self._outbox.add(encode(report))
        self._wake()


def _nobody() -> None:
    """The session is closed: there is no link to wake."""


def _code_of(error: BaseException) -> ErrorCode:
    match error:
        case PartitionNotFound():
            return ErrorCode.PARTITION_NOT_FOUND
        case ProducerFailed():
            return ErrorCode.PRODUCER_FAILED
        case EventUnclaimed():
            return ErrorCode.EVENT_UNCLAIMED
        case _:
            return ErrorCode.INTERNAL
