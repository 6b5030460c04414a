"""A link: one side of one connection, from the first byte to the last.

The driver moves bytes and tells time; the link knows the handshake, the session after it, signs of
life, and how it ends. Law: whatever ends a link, its session is notified once, its segments go
home, and no other link notices; nothing that the link refers to refers back to it, so it needs no
garbage collection. Its life: connecting → greeting → open → closing → closed.

The consumer's end of a connection connects and receives, the producer's end accepts and sends.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from headgate.base.elements import ByteLike
from headgate.base.errors import (
    BeforeHandshake,
    ConnectFailed,
    ElementBroken,
    HeadgateError,
    PeerBrokeProtocol,
    PeerBusy,
    PeerLost,
    PeerReported,
    PeerSilent,
    PeerUnproven,
    TransportError,
    UnknownMessage,
)
from headgate.base.ids import PartitionId, PeerName
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.exchange.compression import CompressionCodec
from headgate.core.exchange.decoder import ControlLanding, Decoder, Landing
from headgate.core.exchange.frames import (
    BODY_LIMITS,
    BUFFER_HEAD_REST,
    TASK_EVENT_OVERHEAD,
    Alive,
    Close,
    ErrorCode,
    ErrorReport,
    Kind,
    Message,
    decode,
    encode,
)
from headgate.core.exchange.handshake import Handshake, HandshakeStep
from headgate.core.exchange.outbox import Outbox
from headgate.core.exchange.receiver import ReceiverSession
from headgate.core.exchange.sender import SenderSession
from headgate.core.exchange.view import Events, Partitions


class LinkState(Enum):
    """How far a link has come."""

    CONNECTING = "connecting"
    GREETING = "greeting"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


MAX_STRANGE_TEXT: Final = 300
"""Letters of an error that are believed of a peer which is not proven."""

GREETINGS = frozenset({Kind.HELLO, Kind.CHALLENGE, Kind.PROOF, Kind.WELCOME, Kind.ERROR})


class Link:
    """Bytes in, bytes out. Subclasses say which session follows the handshake."""

    session: SenderSession | ReceiverSession

    def __init__(
        self, settings: ExchangeSettings, handshake: Handshake, landing: Landing, now_ms: float
    ) -> None:
        self.peer = handshake.peer
        self.state = LinkState.CONNECTING
        self.error: HeadgateError | None = None
        self.may_pass = False
        """It ended before it was open, and another attempt may succeed."""
        self.on_dirty: Callable[[Link], None] = lambda link: None
        """Called when there is something to send (or to close); the driver sets it."""
        self.outbox = Outbox(settings.low_water_bytes, settings.high_water_bytes)
        self.decoder = Decoder(self, landing, self.peer)
        self._settings = settings
        self._handshake = handshake
        self._heard_ms = self._spoke_ms = self._taken_ms = self._began_ms = now_ms
        self._dirty = False

    # What the driver tells.

    def connected(self, now_ms: float) -> None:
        """The bytes can flow."""
        assert self.state is LinkState.CONNECTING
        self.state = LinkState.GREETING
        self._heard_ms = self._spoke_ms = now_ms

    def targets(self) -> list[memoryview]:
        """Where to read the next bytes to; nothing: do not read now."""
        return self.decoder.targets() if self.is_alive and not self.is_deaf else []

    @property
    def is_deaf(self) -> bool:
        """Whether this side reads nothing for now."""
        return self.decoder.paused

    def received(self, count: int, now_ms: float) -> None:
        """Bytes have been read into the targets."""
        self._heard_ms = now_ms
        self._guarded(lambda: self.decoder.received(count))

    def outgoing(self) -> list[ByteLike]:
        """What to send now, in one call."""
        self._dirty = False
        if self.state is LinkState.OPEN:
            self.session.pump(self._settings.burst_frames)
        return self.outbox.gather()

    def sent(self, count: int, now_ms: float) -> None:
        """The socket took that many bytes."""
        self._spoke_ms = self._taken_ms = now_ms
        self.outbox.sent(count)
        if self.state is LinkState.CLOSING and not self.outbox.pending_bytes:
            self.state = LinkState.CLOSED
        elif self.is_open and self.session.has_work and not self.outbox.pending_bytes:
            self._wake()

    def ended(self, reason: str, *, may_pass: bool = True) -> None:
        """The other side closed or reset the connection, or the driver met an error on it.

        ``may_pass``: another attempt to connect may come to a better end.
        """
        if not self.is_alive:
            self._hang_up()
            return
        if self.state is LinkState.CONNECTING:
            self.fail(ConnectFailed(self.peer, reason), may_pass=may_pass)
            return
        try:
            self.decoder.ended()
        except PeerBrokeProtocol as error:
            reason = f"{reason}; {error.problem}"
        self.fail(PeerLost(self.peer, reason), may_pass=may_pass)

    def tick(self, now_ms: float) -> None:
        """Time has passed: show life, or give the peer up."""
        settings = self._settings
        if self.state in (LinkState.CONNECTING, LinkState.GREETING):
            if now_ms - self._began_ms >= settings.connect_timeout_ms:
                problem = f"no handshake within {settings.connect_timeout_ms} ms"
                self.fail(ConnectFailed(self.peer, problem), may_pass=True)
        elif self.state is LinkState.OPEN:
            if self.is_deaf:  # it is this side that does not listen
                self._heard_ms = now_ms
                self._check_taken(now_ms)
            quiet_ms = now_ms - self._heard_ms
            if quiet_ms >= settings.heartbeat_timeout_ms:
                problem = f"nothing was heard for {quiet_ms:.0f} ms: its process hangs"
                self.fail(PeerSilent(self.peer, problem))
            elif now_ms - self._spoke_ms >= settings.heartbeat_interval_ms:
                self._spoke_ms = now_ms
                if not self.outbox.pending_bytes:  # else those bytes are the sign
                    self.send(Alive())
        elif self.state is LinkState.CLOSING:
            self._hang_up()
            self._wake()

    def fail(self, error: HeadgateError, last_words: str = "", *, may_pass: bool = False) -> None:
        """End at once; the session learns why, the peer too if there are last words."""
        if not self.is_alive:
            return
        self.error = error
        self.may_pass = may_pass and not self.is_open
        _forget_frames(error)
        has_last_words = bool(last_words) and self.outbox.is_between_frames
        self.state = LinkState.CLOSED
        try:
            self._end_session(error)
        finally:
            self._fall_silent(error, last_words if has_last_words else "")

    def _fall_silent(self, error: HeadgateError, last_words: str) -> None:
        self.decoder.close()
        self.outbox.close()
        if last_words:
            report = ErrorReport(None, _code_of(error), PartitionId(""), last_words)
            self.outbox.add(encode(report))
            self.state = LinkState.CLOSING
        self._released()
        self._wake()

    def close(self) -> None:
        """End in peace: what is in the outbox still goes."""
        if not self.is_alive:
            return
        try:
            self._end_session(PeerLost(self.peer, "this side closed the connection"))
        finally:
            self.decoder.close()
            if self.outbox.pending_bytes and self.state is not LinkState.CONNECTING:
                self.state = LinkState.CLOSING
            else:
                self._hang_up()
            self._released()
            self._wake()

    @property
    def is_alive(self) -> bool:
        return self.state not in (LinkState.CLOSING, LinkState.CLOSED)

    @property
    def is_open(self) -> bool:
        return self.state is LinkState.OPEN

    def send(self, message: Message) -> None:
        """Put a message into the outbox."""
        self.outbox.add(encode(message))
        self._wake()

    def resume(self) -> None:
        """A buffer came free for which the decoder had stopped reading."""
        if self.decoder.paused:
            self._guarded(self.decoder.resume)
            self._wake()

    # What the decoder asks and tells (FrameSink).

    def limit(self, kind: Kind) -> int:
        if self.state is not LinkState.OPEN and kind not in GREETINGS:
            raise BeforeHandshake(self.peer, f"{kind.name} came before the handshake was over")
        if kind not in self.accepted:
            raise UnknownMessage(self.peer, f"{kind.name} is not for this side")
        if kind is Kind.BUFFER:
            segment, event = self._settings.segment_bytes, self._settings.max_event_bytes
            return max(segment, event) + BUFFER_HEAD_REST
        if kind is Kind.TASK_EVENT:
            return self._settings.max_event_bytes + TASK_EVENT_OVERHEAD
        return BODY_LIMITS[kind]

    accepted: frozenset[Kind] = frozenset()

    def frame_received(self, kind: Kind, body: memoryview) -> None:
        message = decode(kind, body, self.peer)
        if isinstance(message, ErrorReport) and message.receiver is None:
            text = message.text if self.is_open else _one_line(message.text)
            if message.code == ErrorCode.BUSY:
                raise PeerBusy(self.peer, text)
            raise PeerReported(self.peer, text)
        if self.state is LinkState.GREETING:
            self._greeted(message)
        elif isinstance(message, Close):
            self.close()
        elif not isinstance(message, Alive):
            self.session.message_received(message)

    def _hang_up(self) -> None:
        """Closed for good: what was not sent never will be."""
        self.outbox.close()
        self.state = LinkState.CLOSED

    def _greeted(self, message: Message) -> None:
        answer = self._handshake.received(message)
        if answer is not None:
            self.send(answer)
        if self._handshake.is_done:
            self.state = LinkState.OPEN
            self._opened()

    def _opened(self) -> None:
        """The handshake is over."""

    def _released(self) -> None:
        """The link has ended: give back what it held."""

    def _end_session(self, error: HeadgateError) -> None:
        raise NotImplementedError

    def _check_taken(self, now_ms: float) -> None:
        """A peer that sends requests and never reads the answers is given up."""
        waits_ms = now_ms - self._taken_ms
        if self.outbox.is_clogged and waits_ms >= self._settings.heartbeat_timeout_ms:
            count = self.outbox.pending_bytes
            problem = f"it has taken none of {count} bytes of answers for {waits_ms:.0f} ms"
            self.fail(PeerSilent(self.peer, problem))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except PeerReported as error:
            self.fail(error)
        except PeerBusy as error:
            self.fail(error, may_pass=True)
        except TransportError as error:
            self.fail(error, last_words=error.problem)
        except ElementBroken as error:
            self.fail(PeerBrokeProtocol(self.peer, str(error)), last_words=str(error))

    def _wake(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.on_dirty(self)

    def _uses_credit(self) -> bool:
        return self._settings.flow_control is FlowControl.CREDIT


def _code_of(error: HeadgateError) -> ErrorCode:
    match error:
        case PeerUnproven():
            return ErrorCode.UNPROVEN
        case PeerBusy():
            return ErrorCode.BUSY
        case _:
            return ErrorCode.PROTOCOL


def _one_line(text: str) -> str:
    """What a stranger says goes into logs: a line of theirs, and no line of its own making."""
    shown = text[:MAX_STRANGE_TEXT]
    return "".join(letter if letter.isprintable() else "�" for letter in shown)


def _forget_frames(error: BaseException | None) -> None:
    """The link keeps its error, and the frames of a traceback would keep the link."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def make_handshake(
    settings: ExchangeSettings, secret: bytes, nonce: bytes, peer: PeerName, is_client: bool
) -> Handshake:
    """One side's handshake, with what the two sides must agree on."""
    return Handshake(
        is_client=is_client,
        secret=secret,
        nonce=nonce,
        flow_control=settings.flow_control,
        compression=settings.compression,
        segment_bytes=settings.segment_bytes,
        peer=peer,
    )


class ConsumerEnd(Link):
    """The side that connects: its channels request partitions and receive buffers.

    It is shared by all channels to the same task manager. What they send before the handshake is
    over waits, so concurrent callers wait for the one connection.
    """

    accepted = frozenset(
        {Kind.CHALLENGE, Kind.WELCOME, Kind.BUFFER, Kind.ERROR, Kind.BACKLOG, Kind.ALIVE}
    )
    session: ReceiverSession

    def __init__(
        self,
        settings: ExchangeSettings,
        secret: bytes,
        nonce: bytes,
        peer: PeerName,
        pool: GlobalPool,
        now_ms: float,
    ) -> None:
        handshake = make_handshake(settings, secret, nonce, peer, is_client=True)
        self._landing = Landing(settings.segment_bytes)
        super().__init__(settings, handshake, self._landing, now_ms)
        self.users = 0
        self._pool = pool
        pool.claim(f"the connection to {peer}", self._landing, settings.landing_buffers)
        self.session = ReceiverSession(
            self.outbox,
            self.peer,
            self._wake,
            uses_credit=self._uses_credit(),
            max_event_bytes=settings.max_event_bytes,
        )

    def connected(self, now_ms: float) -> None:
        super().connected(now_ms)
        self.send(self._handshake.first_word())

    def detach(self) -> bool:
        """One user fewer; with the last one the connection ends. Says whether it was the last."""
        self.users -= 1
        assert self.users >= 0
        if self.users:
            return False
        if self.is_open:
            self.send(Close())
        self.close()
        return True

    def _opened(self) -> None:
        settings = self._settings
        longest = max(settings.segment_bytes, settings.max_event_bytes)
        self.decoder.allow_buffers(self.session, longest + BUFFER_HEAD_REST)
        self.session.opened()

    def _end_session(self, error: HeadgateError) -> None:
        self.session.fail(error, may_pass=self.may_pass)

    def _released(self) -> None:
        self._pool.unclaim(self._landing, self._landing.surrender())


class ProducerEnd(Link):
    """The side that accepts: serves the partitions of its process to one task manager."""

    accepted = frozenset(
        {
            Kind.HELLO,
            Kind.PROOF,
            Kind.PARTITION_REQUEST,
            Kind.ADD_CREDIT,
            Kind.CANCEL,
            Kind.CLOSE,
            Kind.TASK_EVENT,
            Kind.BUFFER_SIZE,
            Kind.ERROR,
            Kind.ALIVE,
        }
    )
    session: SenderSession

    def __init__(
        self,
        settings: ExchangeSettings,
        secret: bytes,
        nonce: bytes,
        peer: PeerName,
        partitions: Partitions,
        events: Events,
        codec: CompressionCodec | None,
        now_ms: float,
    ) -> None:
        handshake = make_handshake(settings, secret, nonce, peer, is_client=False)
        self._landing = ControlLanding()
        super().__init__(settings, handshake, self._landing, now_ms)
        self.session = SenderSession(
            partitions,
            events,
            self.outbox,
            self.peer,
            self._wake,
            uses_credit=self._uses_credit(),
            codec=codec,
        )
        self.state = LinkState.GREETING

    @property
    def is_deaf(self) -> bool:
        """A peer that does not read its answers is not heard either, until it has."""
        return self.decoder.paused or self.outbox.is_clogged

    @property
    def has_greeted(self) -> bool:
        """Whether the peer has said a whole HELLO, with which this side agrees."""
        return self._handshake.step is not HandshakeStep.SERVER_WAITS

    def _opened(self) -> None:
        self._landing.widen()

    def _end_session(self, error: HeadgateError) -> None:
        self.session.close()


Address: TypeAlias = tuple[str, int]
"""Host and port of a task manager's data server."""


class Directory:
    """The connections of a consumer.

    Law: there is at most one usable link for an address, shared by all channels that read from it
    and closed with the last; a link that has ended is replaced at the next request.
    """

    def __init__(self, dial: Callable[[Address], ConsumerEnd]) -> None:
        """``dial`` makes a link and starts to connect it; it may fail later, through the link."""
        self._dial = dial
        self._links: dict[Address, ConsumerEnd] = {}

    def attach(self, address: Address) -> ConsumerEnd:
        """The link to ``address``; callers that come while it connects share it."""
        link = self._links.get(address)
        if link is None or not link.is_alive:
            link = self._links[address] = self._dial(address)
        link.users += 1
        return link

    def detach(self, link: ConsumerEnd) -> None:
        """One channel needs the link no more."""
        if link.detach():
            for address, known in list(self._links.items()):
                if known is link:
                    del self._links[address]
