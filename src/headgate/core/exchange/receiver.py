"""The receiving end of a connection: delivers buffers to this process's channels.

Law: what concerns one channel reaches that channel alone; what breaks the connection reaches
all. New credit of a channel is announced once, in one message, however many buffers it stands for.
"""

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Protocol

from headgate.base.errors import (
    CreditOverdrawn,
    ElementBroken,
    EventsOverdrawn,
    EventUnclaimed,
    HeadgateError,
    PartitionNotFound,
    PeerBrokeProtocol,
    PeerReported,
    PeerSilent,
    ProducerFailed,
    UnknownReceiver,
)
from headgate.base.events import TaskEvent, encode_event_within
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.base.settings import KIB, MIB
from headgate.core.buffers.buffer import Buffer, Lease
from headgate.core.exchange.decoder import NoLease
from headgate.core.exchange.frames import (
    MAX_GRANTS,
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
)
from headgate.core.exchange.outbox import Outbox

MOST_EVENT_BYTES: Final = 8 * MIB
"""What the unread events of all channels of a connection may weigh."""
FEW_EVENT_BYTES: Final = 8 * KIB
"""A channel with fewer than this does not pay for the others, nor is their sum looked at."""


class ReceivingChannel(Protocol):
    """What a session needs of an input channel."""

    id: ChannelId

    def room_for(self, size: int) -> Lease | None:
        """A buffer that was promised to the sender, or None if none was."""

    def room_for_event(self, size: int) -> bool:
        """Whether the channel can keep one more event for its reader."""

    def event_bytes(self) -> int:
        """What the events weigh that were not read."""

    def buffer_arrived(self, sequence: int, backlog: int, buffer: Buffer) -> None:
        """A buffer is here and belongs to the channel, whatever this raises."""

    def backlog_told(self, backlog: int) -> None: ...

    def partition_missing(self, error: PartitionNotFound) -> None: ...

    def sends_event_again(self) -> bool:
        """An event was refused; whether that is because the request before it found nothing."""

    def unreachable(self, error: HeadgateError) -> None:
        """No connection came about; another attempt may succeed."""

    def failed(self, error: HeadgateError) -> None: ...

    def take_credit(self) -> int:
        """Credit that was not announced yet; it is now."""


class ReceiverSession:
    """All channels of one connection. ``wake`` is called when there is something to send."""

    def __init__(
        self,
        outbox: Outbox,
        peer: PeerName,
        wake: Callable[[], None],
        *,
        uses_credit: bool,
        max_event_bytes: int = MIB,
    ) -> None:
        self.peer = peer
        self.channels: dict[ChannelId, ReceivingChannel] = {}
        self._outbox = outbox
        self._wake = wake
        self._uses_credit = uses_credit
        self._max_event_bytes = max_event_bytes
        self._credited: deque[ReceivingChannel] = deque()
        self._highest = ChannelId(-1)
        self._early: list[bytes] | None = []  # sent before the handshake is over

    def opened(self) -> None:
        """The handshake is over: what was said before goes now."""
        early, self._early = self._early, None
        for frame in early or ():
            self._outbox.add(frame)
        self._wake()

    def request(
        self, channel: ReceivingChannel, partition: PartitionId, subpartition: int, credit: int
    ) -> None:
        """Ask the producer's side for a subpartition."""
        self.channels[channel.id] = channel
        self._highest = max(self._highest, channel.id)
        self._send(PartitionRequest(channel.id, credit, subpartition, partition))

    def credit_grew(self, channel: ReceivingChannel) -> None:
        """A channel has unannounced credit again."""
        if self._uses_credit:
            self._credited.append(channel)
            self._wake()

    def cancel(self, channel: ReceivingChannel) -> None:
        """The channel needs no more; what is on the way to it will be dropped."""
        if self.channels.pop(channel.id, None) is not None:
            self._send(CancelReceiver(channel.id))

    def send_event(
        self, channel: ReceivingChannel, partition: PartitionId, event: TaskEvent
    ) -> None:
        """An event back to the producer of a partition; an error if its process takes nothing."""
        if self._outbox.is_clogged:
            waiting = self._outbox.pending_bytes
            raise PeerSilent(self.peer, f"it takes no task event: {waiting} bytes wait for it")
        data = encode_event_within(event, self._max_event_bytes)
        self._send(TaskEventRequest(channel.id, partition, data))

    def resize(self, channel: ReceivingChannel, size: int) -> None:
        """The channel wants buffers of at most so many bytes."""
        if channel.id in self.channels:
            self._send(BufferSize(channel.id, size))

    @property
    def has_work(self) -> bool:
        return bool(self._credited)

    def pump(self, frames: int) -> None:
        """Announce the new credit of all channels that have some, in one message."""
        credited = self._credited
        if not credited or not self._outbox.writable:
            return
        grants: list[tuple[ChannelId, int]] = []
        while credited and len(grants) < MAX_GRANTS:
            channel = credited.popleft()
            credit = channel.take_credit() if channel.id in self.channels else 0
            if credit:
                grants.append((channel.id, credit))
        if grants:
            self._outbox.add(encode(AddCredit(tuple(grants))))

    def buffer_announced(self, receiver: ChannelId, size: int, is_event: bool) -> Lease | NoLease:
        """Where the payload of a buffer frame shall go."""
        channel = self.channels.get(receiver)
        if channel is None:
            self._check_known(receiver)
            return NoLease.SKIP
        if is_event:
            return self._room_for_event(channel, size)
        lease = channel.room_for(size)
        if lease is not None:
            return lease
        if not self._uses_credit:
            return NoLease.LATER
        error = CreditOverdrawn(self.peer, f"a buffer for channel {receiver}, which gave no credit")
        self._end(channel, error)
        return NoLease.SKIP

    def buffer_received(
        self, receiver: ChannelId, sequence: int, backlog: int, buffer: Buffer
    ) -> None:
        """A whole buffer is here."""
        channel = self.channels.get(receiver)
        if channel is None:
            buffer.release()
            self._check_known(receiver)
            return
        try:
            channel.buffer_arrived(sequence, backlog, buffer)
        except HeadgateError as error:
            self._end(channel, error)
        except Exception as error:  # of who records it: the channel must not go on without it
            self._end(channel, ElementBroken(f"a buffer could not be taken: {error!r}"))

    def message_received(self, message: Message) -> None:
        """Any other message of the producer's side."""
        match message:
            case Backlog() if not self._uses_credit:
                raise PeerBrokeProtocol(self.peer, "it tells a backlog, but credit is not used")
            case Backlog(receiver, backlog):
                channel = self.channels.get(receiver)
                if channel is not None:
                    channel.backlog_told(backlog)
                else:
                    self._check_known(receiver)
            case ErrorReport():
                self._error_reported(message)
            case _:
                raise PeerBrokeProtocol(
                    self.peer, f"{type(message).__name__} is not for the receiving side"
                )

    def fail(self, error: HeadgateError, *, may_pass: bool = False) -> None:
        """The connection has ended: every channel learns why.

        ``may_pass``: it was never established, and the channels may ask for another one.
        """
        channels, self.channels = self.channels, {}
        self._credited.clear()
        self._wake = _nobody
        with ExitStack() as all_of_them:  # whatever one of them raises, the others learn of it
            for channel in reversed(channels.values()):
                all_of_them.callback(channel.unreachable if may_pass else channel.failed, error)

    def _error_reported(self, report: ErrorReport) -> None:
        if report.receiver is None:
            raise PeerReported(self.peer, report.text)
        channel = self.channels.get(report.receiver)
        if channel is None:
            self._check_known(report.receiver)
        elif report.code == ErrorCode.PARTITION_NOT_FOUND:
            channel.partition_missing(PartitionNotFound(report.partition, f"at {self.peer}"))
        elif report.code != ErrorCode.EVENT_UNCLAIMED or not channel.sends_event_again():
            self._end(channel, _error_of(report, self.peer))

    def _room_for_event(self, channel: ReceivingChannel, size: int) -> NoLease:
        waiting = channel.event_bytes()
        is_crowded = waiting > FEW_EVENT_BYTES and self._event_bytes() > MOST_EVENT_BYTES
        if channel.room_for_event(size) and not is_crowded:
            return NoLease.UNPOOLED
        self._end(channel, EventsOverdrawn(self.peer, channel.id, waiting, size))
        return NoLease.SKIP

    def _event_bytes(self) -> int:
        return sum(channel.event_bytes() for channel in self.channels.values())

    def _end(self, channel: ReceivingChannel, error: HeadgateError) -> None:
        self.cancel(channel)
        channel.failed(error)

    def _check_known(self, receiver: ChannelId) -> None:
        """A released channel may still get what was in flight; an unknown one may not."""
        if receiver > self._highest:
            raise UnknownReceiver(self.peer, receiver, "a message")

    def _send(self, message: Message) -> None:
        if self._early is not None:
            self._early.append(encode(message))
            return
        self._outbox.add(encode(message))
        self._wake()


def _nobody() -> None:
    """The session is closed: there is no link to wake."""


def _error_of(report: ErrorReport, peer: PeerName) -> HeadgateError:
    if report.code == ErrorCode.PRODUCER_FAILED:
        return ProducerFailed(report.partition, f"{report.text} (told by {peer})")
    if report.code == ErrorCode.EVENT_UNCLAIMED:
        return EventUnclaimed(report.partition, f"sent through {peer}")
    return PeerReported(peer, report.text)
