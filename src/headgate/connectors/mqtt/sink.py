"""Topics of an MQTT 5 broker as a sink, at least once.

Law: a checkpoint waits until the broker has acknowledged every message before it; one whose
acknowledgement has not come is published again over the next connection.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final

from headgate.base.elements import Record
from headgate.connectors.checks import FLAG, SERIALIZER, Check, check_settings, one_of
from headgate.connectors.formats.schemas import SerializationSchema, bytes_maker
from headgate.connectors.mqtt.client import MqttBroker, check, hang_up, turn
from headgate.connectors.servers import Sleep
from headgate.connectors.staged import DirectWriter, MessageMaker, checked, whose
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter

IN_FLIGHT: Final = 1000


@dataclass(eq=False)
class MqttSink(Sink):
    """Records as messages; ``topic`` is that of all, or a function of the record.

    ::

        MqttSink("mqtt://localhost:1883", "alerts", SimpleStringSchema())
        MqttSink(url, lambda alert: f"alerts/{alert.plant}", to_json, qos=2, retain=True)
    """

    url: str = field(repr=False)
    topic: "str | Callable[[Record], str]"
    schema: "SerializationSchema | Callable[[Record], bytes]"
    _: KW_ONLY
    qos: int = 1
    retain: bool = False

    def __post_init__(self) -> None:
        check_settings(self, CHECKS)
        self.broker = MqttBroker("MqttSink", self.url)

    @property
    def default_name(self) -> str:
        return f"MQTT {self.topic if isinstance(self.topic, str) else 'topics'}"

    def create_writer(self, context: ConnectorContext) -> SinkWriter:
        topic, data = self.topic, bytes_maker(self.schema)

        def make(record: Record) -> tuple[str, bytes]:
            name = topic if isinstance(topic, str) else topic(record)
            if not _is_topic(name):
                raise ValueError(f"its topic is {name!r}; + and # stand for others")
            return name, data(record)

        publisher = checked(Publisher(self, whose(context), context.sleep), Publisher.flush)
        maker = MessageMaker(make, context)
        return DirectWriter(maker.messages, publisher.send, publisher.close, wait=publisher.flush)


class Publisher:
    """A task's connection, opened when it is needed and again after trouble."""

    def __init__(self, sink: MqttSink, name: str, sleep: Sleep) -> None:
        self._broker = sink.broker
        self._doing = f"{name}: publishing"
        self._settings = sink.qos, sink.retain
        self._sleep = sleep
        self._client: Any = None
        self._most = IN_FLIGHT
        self._due: list[tuple[str, bytes]] = []
        self._sent: dict[int, tuple[str, bytes]] = {}
        """What is not acknowledged, by its id."""

    def send(self, messages: list[tuple[str, bytes]]) -> None:
        """The last of them may still be on their way when it returns."""
        self._due = [*messages]
        self._broker.repeated(self._doing, lambda: self._publish(self._most), self._sleep)

    def flush(self) -> None:
        self._broker.repeated(self._doing, lambda: self._publish(0), self._sleep)

    def close(self) -> None:
        hang_up(self._client)

    def _publish(self, left: int) -> None:
        """Until so many are left to be acknowledged."""
        try:
            if self._client is None:
                self._client = self._broker.client()
                self._client.on_publish = self._acknowledged
                _, answer = self._broker.connect(self._client)
                self._most = min(IN_FLIGHT, getattr(answer, "ReceiveMaximum", IN_FLIGHT))
            while True:
                room = self._most - len(self._sent)
                for message in self._due[:room]:
                    self._sent[self._client.publish(*message, *self._settings).mid] = message
                del self._due[:room]
                if not self._due and len(self._sent) <= left:
                    return
                turn(self._client, partial(self._has_fewer, len(self._sent)))
        except BaseException:
            hang_up(self._client)
            self._client = None
            self._due = [*self._sent.values(), *self._due]
            self._sent.clear()
            raise

    def _has_fewer(self, sent: int) -> bool:
        self._sleep(0)
        return len(self._sent) < sent

    def _acknowledged(self, client: Any, data: Any, mid: int, reason: Any, more: Any) -> None:
        check(reason, f"topic {self._sent[mid][0]!r}: ")
        del self._sent[mid]


def _is_topic(name: object) -> bool:
    return isinstance(name, str) and name != "" and not set(name) & set("+#\0")


CHECKS: Final = {
    "topic": Check(
        "a topic without + and #, or a function", lambda topic: callable(topic) or _is_topic(topic)
    ),
    "schema": SERIALIZER,
    "qos": one_of(1, 2),
    "retain": FLAG,
}
