"""The producer of a sink's task: records go out, and what the brokers refuse comes back as errors.

Law: at most ``queue.buffering.max.kbytes`` of records wait in the client, then the task waits, too;
a record that was not delivered is an error that names its topic and partition, at the latest when
``flush`` returns.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready
from headgate.connectors.kafka.client import ClientWatch, KafkaCluster, error_words, kafka
from headgate.connectors.kafka.serialization import ProducerRecord
from headgate.connectors.servers import LOOK_S, Sleep

T = TypeVar("T")

DEFAULTS: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "queue.buffering.max.kbytes": 64 << 10,
    "message.timeout.ms": 120_000,
}
MESSAGE_KEY: Final = "message.max.bytes"
MESSAGE_BYTES: Final = 1_000_000
"""The client's own limit for a record."""
STEP_S: Final = 0.5
"""So long a call into the client takes at most, then it is looked what has happened."""
TOPIC_KEY: Final = "topic.metadata.propagation.max.ms"
TOPIC_MS: Final = 5_000
"""So long a topic may be unknown that the brokers create by themselves."""
FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})


class SinkProducer:
    """One client of librdkafka."""

    def __init__(
        self,
        cluster: KafkaCluster,
        whose: str,
        transactional_id: str = "",
        sleep: Sleep = time.sleep,
    ) -> None:
        """``whose``: the sink and its task, for messages."""
        self._sleep = sleep
        self._cluster = cluster
        self._whose = whose
        self._library = kafka(cluster.user)
        self._watch = ClientWatch(whose)
        self._failure: ConnectorError | None = None
        self._is_transactional = bool(transactional_id)
        defaults = dict(DEFAULTS)
        forced: dict[str, Any] = {
            "on_delivery": self._not_delivered,
            "delivery.report.only.error": True,
        }
        if transactional_id:
            del defaults["message.timeout.ms"]  # it must not outlast the transaction
            forced["transactional.id"] = transactional_id
        config = cluster.config(self._watch, defaults, forced)
        self._client: Any = cluster.create(self._library.Producer, config)

    def begin(self) -> None:
        """Begin a transaction."""
        try:
            self._client.begin_transaction()
        except self._library.KafkaException as error:
            raise self.problem(error, "beginning a transaction") from error

    def abort(self, timeout_s: float) -> None:
        """End the transaction as well as it can be; readers then need not wait for its end."""
        with suppress(self._library.KafkaException):
            self._client.abort_transaction(timeout_s)

    def send(self, records: Iterable[ProducerRecord]) -> None:
        """Put records into the client's queue; waits while it is full."""
        produce = self._client.produce
        try:
            for record in records:
                try:
                    produce(*record)
                except BufferError:
                    self._send_when_there_is_room(record)
                except self._library.KafkaException as error:
                    raise self._refused(record[0], None, error) from error
        finally:
            del produce  # or an error's traceback would keep the client open
        self.check()

    def flush(self) -> None:
        """All records that were sent are delivered when it returns."""
        while self._client.flush(LOOK_S):
            self.check()
        self.check()

    def check(self) -> None:
        """Raise what was not delivered, what has ended the client, and that the task is to end."""
        self._sleep(0)
        self._serve()
        if self._failure is not None:
            raise self._failure
        refused = self._watch.refused
        if refused is not None and refused.fatal():
            raise self.problem(refused, "writing")

    def ask(self, doing: str, call: Callable[[Any, float], T], timeout_s: float) -> T:
        """``call(client, seconds)``, again until the time is up.

        Wrong credentials are told at once, and so is everything else that does not pass.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return call(self._client, min(STEP_S, timeout_s))
            except self._library.KafkaException as error:
                error.__traceback__ = None  # it would keep the client open
                self._serve()
                refused = self._watch.refused
                problem = self.problem(refused if refused is not None else error, doing)
                may_pass = isinstance(problem, KafkaUnready) and refused is None
                if not may_pass or time.monotonic() >= deadline:
                    raise problem from error
                self._sleep(0)

    def find_topic(self, topic: str) -> int:
        """How many partitions it has; raises if there is no such topic."""
        wait_ms = self._cluster.whole_number(TOPIC_KEY, TOPIC_MS, least=0)
        deadline = time.monotonic() + wait_ms / 1000
        doing = f"looking for topic {topic!r}"
        while True:
            answer = self.ask(
                doing,
                lambda client, seconds: client.list_topics(topic, timeout=seconds),
                self._cluster.timeout_s,
            )
            found = answer.topics[topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            if time.monotonic() >= deadline:
                raise self.problem(found.error, doing)
            self._sleep(0.05)

    def problem(self, error: Any, doing: str) -> ConnectorError:
        """An error of the client as one of ours; a fenced producer is told as such."""
        reason = error.args[0] if isinstance(error, BaseException) and error.args else error
        if hasattr(reason, "name") and reason.name() in FENCED:
            return ConnectorError(
                f"{self._whose}: another attempt of this task has taken over its transactions, "
                f"while {doing} ({error_words(reason)}); if the job was started twice from one "
                f"checkpoint, end one of the two"
            )
        return self._cluster.problem(error, f"{self._whose}, {doing}", self._watch)

    def close(self) -> None:
        """What was not flushed is lost. Idempotent."""
        self._client = None  # close() of the client fails if it was fenced; this does not

    def _serve(self, wait_s: float = 0.0) -> None:
        """Let the client report what has happened."""
        try:
            self._client.poll(wait_s)
        except self._library.KafkaException as error:  # it is of no use any more
            error.__traceback__ = None
            self._watch.failed(error.args[0])

    def _send_when_there_is_room(self, record: ProducerRecord) -> None:
        while True:
            self._serve(LOOK_S)
            self.check()
            try:
                self._client.produce(*record)
            except BufferError:
                continue
            except self._library.KafkaException as error:
                raise self._refused(record[0], None, error) from error
            return

    def _not_delivered(self, error: Any, message: Any) -> None:
        if error.name().startswith("_PURGE") and self._is_transactional:
            return  # the transaction has failed, and says why
        if self._failure is None:
            self._failure = self._refused(message.topic(), message.partition(), error)

    def _refused(self, topic: str, partition: int | None, error: Any) -> ConnectorError:
        where = f"topic {topic!r}" + (f" [{partition}]" if partition is not None else "")
        reason = error.args[0] if isinstance(error, BaseException) and error.args else error
        if hasattr(reason, "name") and reason.name() == "MSG_SIZE_TOO_LARGE":
            return too_large(self._whose, where, error_words(reason))
        return self.problem(error, f"writing a record to {where}")


def too_large(whose: str, where: str, details: str) -> KafkaRefused:
    """A record that the client or the topic does not take."""
    return KafkaRefused(
        f"{whose}: a record for {where} is too large: {details}; raise {MESSAGE_KEY} of the sink "
        f"and max.message.bytes of the topic, or write smaller records"
    )
