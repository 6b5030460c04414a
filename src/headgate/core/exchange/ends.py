"""The two ends of a connection, and the directory of a consumer's connections.

The consumer's side connects and receives, the producer's accepts and sends. Both are links; this
file joins each to its session. Law of the directory: there is at most one usable link for an
address, shared by all channels that read from it and closed with the last; a link that has ended is
replaced at the next request.
"""

from collections.abc import Callable
from typing import TypeAlias

from headgate.base.errors import HeadgateError
from headgate.base.ids import PeerName
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.exchange.compression import CompressionCodec
from headgate.core.exchange.decoder import ControlLanding, Landing
from headgate.core.exchange.frames import BUFFER_HEAD_REST, Close, Kind
from headgate.core.exchange.handshake import HandshakeStep
from headgate.core.exchange.link import Link, LinkState, make_handshake
from headgate.core.exchange.receiver import ReceiverSession
from headgate.core.exchange.sender import SenderSession
from headgate.core.exchange.view import Events, Partitions


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
    """``dial`` makes a link and starts to connect it; it may fail later, through the link."""

    def __init__(self, dial: Callable[[Address], ConsumerEnd]) -> None:
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
