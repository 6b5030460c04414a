"""What the MQTT source and sink share: connecting, and what the broker's reasons mean.

The client is paho-mqtt, in MQTT 5. Law: messages that were received are acknowledged by their owner
alone, also those of QoS 2, for which paho would send PUBREC before anybody has taken the message.
"""

import functools
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.base.errors import PlanInvalid
from headgate.connectors.libraries import library
from headgate.connectors.servers import UrlServer

ANSWER_S: Final = 10.0
"""How long the broker may take to answer."""
CLOSE_S: Final = 1.0
TURN_S: Final = 0.1
TURN_PACKETS: Final = 500
_DENIED: Final = (0x86, 0x87, 0x8A, 0x8C)
_PASSING: Final = (0x88, 0x89, 0x8B, 0x8D, 0x96, 0x97, 0x9F)
_ADVICE: Final = {
    0x8E: "give each source of each job a client id of its own",
    0x8F: "mend the topic filter",
    0x90: "mend the topic",
    0x95: "write smaller messages, or let the broker take larger ones",
}


class BrokerRefused(Exception):
    """A reason of the broker that stands for a failure."""

    def __init__(self, reason: Any, what: str) -> None:
        super().__init__(f"{what}{reason}")
        self.code: int = reason.value


@dataclass(frozen=True)
class MqttBroker(UrlServer):
    """Where the broker is; it travels to the tasks."""

    login = "user and password in the URL, and rights"
    ports = MappingProxyType({"mqtt": 1883, "mqtts": 8883})

    def is_denied(self, error: Exception) -> bool:
        return isinstance(error, BrokerRefused) and error.code in _DENIED

    def may_pass(self, error: Exception) -> bool:
        if isinstance(error, BrokerRefused):
            return error.code in _PASSING
        return isinstance(error, OSError) and not isinstance(error, ssl.SSLCertVerificationError)

    def refusal(self, error: Exception, text: str) -> Exception | None:
        advice = _ADVICE.get(getattr(error, "code", 0))
        return None if advice is None else PlanInvalid(f"{text}; {advice}")

    def client(self, client_id: str = "") -> Any:
        """One that works within ``connect`` and ``turn``; who gets it calls ``hang_up``."""
        paho = library("paho.mqtt.client", "mqtt", self.user)
        version = paho.CallbackAPIVersion.VERSION2
        client = _class(paho)(version, client_id, protocol=paho.MQTTv5, manual_ack=True)
        client.connect_timeout = ANSWER_S
        client.max_inflight_messages_set(0)
        parts = urlsplit(self.url)
        if parts.username:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            client.tls_set()
        return client

    def connect(self, client: Any, keepalive_s: int = 0, **session: int) -> tuple[bool, Any]:
        """Whether its session was there, and the broker's properties.

        ``session``: properties of CONNECT; without, the broker keeps nothing.
        """
        paho = library("paho.mqtt.client", "mqtt", self.user)
        answers: list[tuple[bool, Any]] = []

        def connected(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
            check(reason)
            answers.append((flags.session_present, properties))

        def disconnected(client: Any, data: Any, flags: Any, reason: Any, more: Any) -> None:
            if flags.is_disconnect_packet_from_server:
                check(reason)

        client.on_connect, client.on_disconnect = connected, disconnected
        properties = paho.Properties(paho.PacketTypes.CONNECT)
        for name, value in session.items():
            setattr(properties, name, value)
        host, _, port = self.address.rpartition(":")
        client.connect(host, int(port), keepalive_s, "", 0, not session, properties)
        turn(client, lambda: bool(answers))
        return answers[0]


def check(reason: Any, what: str = "") -> None:
    """Raises for a reason that stands for a failure."""
    if reason.is_failure:
        raise BrokerRefused(reason, what)


def turn(client: Any, until: Callable[[], bool] = lambda: True) -> None:
    """Send and receive what can be, again until something is so; raises if the connection ends."""
    deadline_s = time.monotonic() + ANSWER_S
    while True:
        wait_s = TURN_S
        for _ in range(TURN_PACKETS):
            if not _step(client, wait_s):
                break
            wait_s = 0.0
        client.loop_misc()
        if until():
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no answer within {ANSWER_S:g} s")


def _step(client: Any, wait_s: float) -> bool:
    """Whether there was something to send or to receive. Its ``loop`` leaves sockets open."""
    connection = client.socket()
    if connection is None:
        raise ConnectionError("the connection is lost; is the client id that of others, too?")
    poller = select.poll()
    poller.register(connection, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
    is_pending = getattr(connection, "pending", int)() > 0  # TLS has read more than was asked for
    ready = poller.poll(0 if is_pending else wait_s * 1000)
    events = ready[0][1] if ready else 0
    if events & select.POLLOUT:
        client.loop_write()
    if is_pending or events & ~select.POLLOUT:
        client.loop_read()
    return is_pending or events != 0


def hang_up(client: Any) -> None:
    """Idempotent. To close with something unread would take back what the broker has not read."""
    with suppress(Exception):  # whatever has ended the connection
        connection, deadline_s = client.socket(), time.monotonic() + CLOSE_S
        client.loop_write()
        connection.settimeout(CLOSE_S)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16) and time.monotonic() < deadline_s:
            pass
    with suppress(Exception):
        client.disconnect()
    with suppress(Exception):
        client.socket().close()


@functools.cache
def _class(paho: Any) -> Any:
    class Client(paho.Client):  # type: ignore[misc]
        send_pubrec = paho.Client._send_pubrec

        def _send_pubrec(self, mid: int) -> int:
            return 0

        def _handle_publish(self) -> Any:
            result = super()._handle_publish()
            for mid in list(self._in_messages):  # of QoS 2
                self._handle_on_message(self._in_messages.pop(mid))
            return result

        def _handle_pubrel(self) -> Any:
            self.on_release(int.from_bytes(self._in_packet["packet"][:2], "big"))
            return super()._handle_pubrel()

    return Client
