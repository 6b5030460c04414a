"""Topics of an MQTT 5 broker as a source: one split, which is the session of a client id.

Law: a message is acknowledged when a checkpoint that covers it has completed, so at most
``receive_maximum`` messages are between the broker and a checkpoint, and it keeps them until then;
within a run a message that is not acknowledged is known by its id if it comes again.
"""

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from headgate.base.errors import ServerUnfit
from headgate.connectors.background import (
    AcknowledgingFetcher,
    AcknowledgingReader,
    MessageSource,
    ReadQueue,
)
from headgate.connectors.checks import (
    COUNT,
    DESERIALIZER,
    TEXT,
    Check,
    check_settings,
    one_of,
    optional,
    whole,
)
from headgate.connectors.formats.schemas import DeserializationSchema
from headgate.connectors.libraries import library
from headgate.connectors.mqtt.client import TURN_S, MqttBroker, check, hang_up, turn
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position

KEEPALIVE_S: Final = 60
STEADY_S: Final = 5.0
"""A connection that ends earlier has not been well: two clients of one id drive each other out."""


class MqttMessage(NamedTuple):
    """A message as the broker has sent it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: tuple[tuple[str, str], ...]
    """User properties."""


@dataclass(eq=False)
class MqttSource(MessageSource):
    """Messages of topic filters.

    ::

        MqttSource("mqtt://localhost:1883", "plants/+/heat", client_id="heat-job")

    Without a schema records are ``MqttMessage`` with topic, payload, qos, retain and properties;
    with one, what it makes of the payload. ``client_id`` names the session, in which the broker
    keeps messages while the job is away, for ``session_expiry_s``: give each source its own.
    """

    bounded = False
    untimed = True

    url: str = field(repr=False)
    topics: "str | Sequence[str]"
    _: KW_ONLY
    client_id: str
    schema: DeserializationSchema | None = None
    qos: int = 1
    receive_maximum: int = 10_000
    session_expiry_s: int = 7 * 24 * 60 * 60

    def __post_init__(self) -> None:
        self.topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        check_settings(self, CHECKS)
        self.broker = MqttBroker("MqttSource", self.url)

    @property
    def default_name(self) -> str:
        return f"MQTT {', '.join(self.topics)}"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.client_id,)

    def find(self, names: Sequence[str], is_first: bool) -> Sequence[str]:
        client = self.broker.client()
        try:
            self.broker.asked("connecting", lambda: self.broker.connect(client))
        finally:
            hang_up(client)
        return names

    def open(
        self, split: object, position: Position, context: ConnectorContext
    ) -> AcknowledgingReader:
        decode = self.decoder(attrgetter("payload"))
        return AcknowledgingReader(SessionFetcher(self), decode, position, context)


@dataclass(slots=True, eq=False)
class Receipt:
    """A message that was received; its id stands for others later."""

    id: int
    qos: int
    connection: int
    """On which it has come last, and can be acknowledged."""
    is_acknowledged: bool = False

    def __str__(self) -> str:
        return f"id {self.id}"


class SessionFetcher(AcknowledgingFetcher):
    """Holds the session of the client id."""

    def __init__(self, source: MqttSource) -> None:
        super().__init__(source.broker, f"session {source.client_id!r}")
        self._source = source
        self._client: Any = None
        self._connection = 0
        self._open: dict[int, Receipt] = {}
        """Messages whose ids the broker does not use for others yet."""
        self._received: list[tuple[MqttMessage, Receipt, int]] = []

    def session(self, queue: ReadQueue) -> None:
        source, broker = self._source, self._source.broker
        client = self._client = broker.client(source.client_id)
        client.on_message = lambda *given: self._receive(given[2])
        client.on_release = self._release
        self._connection += 1
        began_s = time.monotonic()
        try:
            is_old, _ = broker.connect(
                client,
                KEEPALIVE_S,
                SessionExpiryInterval=source.session_expiry_s,
                ReceiveMaximum=source.receive_maximum,
            )
            if not is_old:
                self._open.clear()
            self._subscribe()
            while not queue.closing:
                if time.monotonic() - began_s > STEADY_S:
                    self.well()
                self.answer_due()
                if queue.wait_for_room(TURN_S):  # or else the broker has to wait
                    turn(client)
                    received, self._received = self._received, []
                    queue.put(received)
            self.answer_due()
        finally:
            hang_up(client)

    def _subscribe(self) -> None:
        source, paho = self._source, library("paho.mqtt.client", "mqtt", "MqttSource")
        granted: list[int] = []

        def on_subscribe(client: Any, data: Any, mid: int, reasons: Any, properties: Any) -> None:
            for topic, reason in zip(source.topics, reasons, strict=True):
                check(reason, f"topic filter {topic!r}: ")
                granted.append(reason.value)

        self._client.on_subscribe = on_subscribe
        options = paho.SubscribeOptions(source.qos, retainHandling=1)
        self._client.subscribe([(topic, options) for topic in source.topics])
        turn(self._client, lambda: bool(granted))
        if 0 in granted:
            raise ServerUnfit(
                f"MqttSource: {source.broker.address} grants QoS 0 only, at which messages get "
                f"lost; let it grant QoS 1"
            )

    def _receive(self, message: Any) -> None:
        receipt = Receipt(message.mid, message.qos, self._connection)
        if message.qos:
            known = self._open.get(message.mid)
            if known is not None and message.dup:
                known.connection = self._connection
                if known.is_acknowledged:
                    self.answer(known)
                return
            self._open[message.mid] = receipt
        properties = tuple(getattr(message.properties, "UserProperty", ()))
        topic, payload = message.topic, message.payload
        found = MqttMessage(topic, payload, message.qos, message.retain, properties)
        self._received.append((found, receipt, len(payload)))

    def _release(self, id: int) -> None:
        """PUBREL has come: the broker has forgotten the message, and waits for PUBCOMP."""
        self._open.pop(id, None)
        self._client.ack(id, 2)

    def answer(self, receipt: Receipt) -> None:
        if self._open.get(receipt.id) is not receipt:
            return  # the broker has begun a new session
        receipt.is_acknowledged = True
        if receipt.connection != self._connection:
            return  # the message will come again
        if receipt.qos == 1:
            del self._open[receipt.id]
            self._client.ack(receipt.id, 1)
        else:
            self._client.send_pubrec(receipt.id)


def _is_filter(topic: object) -> bool:
    levels = topic.split("/") if isinstance(topic, str) else [""]
    rest = levels[:-1] if levels[-1] == "#" else levels
    return bool(topic) and all(level == "+" or not set(level) & set("+#\0") for level in rest)


CHECKS: Final = {
    "topics": Check(
        "topic filters such as 'plants/+/heat' or 'plants/#', where + and # stand alone",
        lambda topics: bool(topics) and all(map(_is_filter, topics)),
    ),
    "client_id": TEXT,
    "schema": optional(DESERIALIZER),
    "qos": one_of(1, 2),
    "receive_maximum": whole(1, 65_535),
    "session_expiry_s": COUNT,
}
