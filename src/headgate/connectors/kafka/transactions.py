"""Commits records exactly once: the second phase of the sink, and its topic of progress.

A writer has a transactional id of its own for as long as its task attempt lives. Its lots are
written only under this id, each in one transaction with a note in the compacted progress topic: the
key is the writer, the value the number of its last lot, 0 when it begins. Law: a lot is written
after ``init_transactions`` of its id, which shuts out everybody who had the id before, and after
the progress was read that was committed until then, also by transactions that were open; so nothing
is written twice, whoever repeats a commit. A writer without a note means that the topic has lost
records. No transaction is open except while a lot is written.
"""

import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as NotYet
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, RecordsLost
from headgate.base.moved import loads
from headgate.connectors.kafka.client import (
    TRANSACTION_KEY,
    ClientWatch,
    KafkaCluster,
    error_words,
    kafka,
)
from headgate.connectors.kafka.producer import SinkProducer
from headgate.connectors.kafka.serialization import ProducerRecord
from headgate.connectors.servers import LOOK_S, Sleep
from headgate.functions.sink import Committer

T = TypeVar("T")

TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(90 * 24 * 60 * 60 * 1000),
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
"""So that little is read after a restart, and writers that are long gone are forgotten."""
CONNECTION: Final = (
    "broker.",
    "client.",
    "connections.",
    "debug",
    "default.api",
    "enable.ssl",
    "fetch.",
    "https.",
    "log_",
    "metadata.",
    "reconnect.",
    "retry.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)
"""Properties of the sink that a client needs which does not produce."""
STEP_S: Final = 0.2
ASK_S: Final = 0.5
"""Then it is looked whether there is any use in asking again."""


class ProgressTopic:
    """Looks into the topic, and makes it; to be closed."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, whose: str, sleep: Sleep = time.sleep
    ) -> None:
        self._sleep = sleep
        # Somebody who was killed may have left a transaction open, perhaps with our own settings.
        self._patience_s = max(cluster.timeout_s, 1.5 * cluster.transaction_s)
        known = {k: v for k, v in cluster.properties.items() if k.startswith(CONNECTION)}
        self._cluster = replace(cluster, properties=known)
        self._topic = topic
        self._whose = whose
        self._library = kafka(cluster.user)
        self._admins = kafka(cluster.user, "confluent_kafka.admin")
        self._watch = ClientWatch(whose)
        config = self._cluster.config(self._watch, {}, {})
        self._admin: Any = self._cluster.create(self._admins.AdminClient, config)

    def make(self) -> None:
        """Create it if it is missing; another task may do so at the same time."""
        if self._partitions():
            return
        topic = self._admins.NewTopic(self._topic, 1, config=TOPIC_CONFIG)
        try:
            made = self._admin.create_topics([topic], request_timeout=self._cluster.timeout_s)
            self._result(made[self._topic])
        except Exception as error:
            if _name(error) != "TOPIC_ALREADY_EXISTS":
                raise self._unmade(error) from error
        deadline = time.monotonic() + self._cluster.timeout_s
        while not self._partitions():
            if time.monotonic() >= deadline:
                raise KafkaUnready(f"{self._whose}: the new topic {self._topic!r} does not appear")
            self._sleep(STEP_S / 4)

    def ends(self) -> tuple[int, ...]:
        """Where its partitions end now, open transactions included."""
        deadline = time.monotonic() + self._cluster.timeout_s
        while not (count := self._partitions()):
            if time.monotonic() >= deadline:  # brokers that have just begun may not know it yet
                raise self._lost("is gone")
            self._sleep(STEP_S / 4)
        places = [self._library.TopicPartition(self._topic, number) for number in range(count)]

        def ask() -> tuple[int, ...] | None:
            asked = self._admin.list_offsets(
                dict.fromkeys(places, self._admins.OffsetSpec.latest()),
                isolation_level=self._library.IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._cluster.timeout_s,
            )
            ends = tuple(self._result(asked[place]).offset for place in places)
            # Where the connection breaks, librdkafka answers with a negative one and no error.
            return ends if min(ends) >= 0 else None

        return self._patiently(ask)

    def read(self, writers: Iterable[str], since: Sequence[int]) -> dict[str, int]:
        """The last lot of each writer that is in; ``since``: nothing of them is before this.

        Raises if one of them is not in the topic, where all are from their beginning on.
        """
        ends, wanted = self.ends(), set(writers)
        starts = [since[number] if number < len(since) else 0 for number in range(len(ends))]
        if len(ends) < len(since) or any(map(int.__lt__, ends, starts)):
            raise self._lost("was made anew, or has lost records")
        open_ends = {number: end for number, end in enumerate(ends) if end > starts[number]}
        found: dict[str, int] = {}
        if open_ends:
            consumer = self._consumer()
            try:
                place = self._library.TopicPartition
                consumer.assign([place(self._topic, at, starts[at]) for at in open_ends])
                self._take_all(consumer, wanted, found, open_ends)
            finally:
                consumer.close()
        if wanted - found.keys():
            raise self._lost(
                f"knows nothing of {len(wanted - found.keys())} of its writers: it was made anew, "
                f"or has dropped records (by age, retention.ms)"
            )
        return found

    def close(self) -> None:
        self._admin = None

    def _take_all(
        self, consumer: Any, wanted: set[str], found: dict[str, int], open_ends: dict[int, int]
    ) -> None:
        """Read until no partition is left; it may take long, but must not stop for long."""
        deadline = time.monotonic() + self._patience_s
        while open_ends:
            self._sleep(0)
            message = consumer.poll(LOOK_S)
            if self._watch.refused is not None:
                raise self._problem(self._watch.refused)
            if message is not None and message.error() is None:
                deadline = time.monotonic() + self._patience_s
            elif time.monotonic() >= deadline:
                raise KafkaUnready(
                    f"{self._whose}: what was written before cannot be read from topic "
                    f"{self._topic!r}: for {self._patience_s:g} s nothing has come, because a "
                    f"transaction in it is open for longer, or its broker does not answer; raise "
                    f"default.api.timeout.ms above the transaction.timeout.ms of all that write "
                    f"to it"
                )
            if message is not None:
                self._take(message, wanted, found, open_ends)

    def _take(
        self, message: Any, wanted: set[str], found: dict[str, int], open_ends: dict[int, int]
    ) -> None:
        """A note, or the news that a partition has been read so far."""
        error = message.error()
        if error is None:
            writer = (message.key() or b"").decode(errors="replace")
            if writer in wanted:
                found[writer] = max(found.get(writer, 0), _lots(message, self._whose))
        elif error.name() != "_PARTITION_EOF":
            problem = self._problem(error)
            if not isinstance(problem, KafkaUnready):
                raise problem
        elif message.offset() >= open_ends.get(message.partition(), 0):
            open_ends.pop(message.partition(), None)

    def _partitions(self) -> int:
        """How many it has; 0: there is no such topic.

        All topics are asked for: brokers that create topics by themselves would make one that is
        asked for by name, and would not compact it.
        """

        def ask() -> int:
            found = self._admin.list_topics(timeout=ASK_S).topics.get(self._topic)
            return 0 if found is None or found.error is not None else len(found.partitions)

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[], T | None]) -> T:
        """What ``ask`` finds, asked again while it fails and may yet succeed; None: not yet."""
        deadline = time.monotonic() + self._cluster.timeout_s
        while True:
            failure: Exception | None = None
            try:
                found = ask()
            except self._library.KafkaException as error:
                error.__traceback__ = None  # it would keep the client open
                failure = error
            else:
                if found is not None:
                    return found
            self._admin.poll(0)  # it calls error_cb
            refused = self._watch.refused
            problem: ConnectorError = KafkaUnready(
                f"{self._whose}: the connection to {self._cluster.servers} breaks when it is asked "
                f"about topic {self._topic!r}; check that the servers run"
            )
            if refused is not None or failure is not None:
                problem = self._problem(refused if refused is not None else failure)
            has_no_leader = failure is not None and _name(failure) == "_NOENT"  # of the partition
            may_pass = refused is None and (has_no_leader or isinstance(problem, KafkaUnready))
            if not may_pass or time.monotonic() >= deadline:
                raise problem from failure
            self._sleep(STEP_S / 4)

    def _result(self, answer: Any) -> Any:
        while True:
            try:
                return answer.result(LOOK_S)
            except NotYet:
                self._sleep(0)

    def _consumer(self) -> Any:
        forced = {
            "group.id": self._topic,  # it is not joined, nor are offsets committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        config = self._cluster.config(self._watch, {"fetch.wait.max.ms": 50}, forced)
        return self._cluster.create(self._library.Consumer, config)

    def _problem(self, error: Any) -> ConnectorError:
        doing = f"{self._whose}, looking for what was written before in topic {self._topic!r}"
        return self._cluster.problem(error, doing, self._watch)

    def _lost(self, how: str) -> RecordsLost:
        return RecordsLost(
            f"{self._whose}: the topic {self._topic!r}, which says what was written, {how}; "
            f"without it records may be written twice: restore it, or start the job afresh"
        )

    def _unmade(self, error: Exception) -> ConnectorError:
        settings = " ".join(f"--config {key}={value}" for key, value in TOPIC_CONFIG.items())
        return KafkaRefused(
            f"{self._whose}: the topic {self._topic!r}, where the sink notes what it has written, "
            f"cannot be made: {error_words(error)}; make it yourself (kafka-topics --create "
            f"--topic {self._topic} --partitions 1 {settings}), or name another with "
            f"set_progress_topic"
        )


def progress_record(
    topic: str, partitions: int, writer: str, number: int, details: Mapping[str, Any]
) -> ProducerRecord:
    """What says that this lot is in; ``details`` are for people."""
    key = writer.encode()
    value = json.dumps({"lots": number, **details}).encode()
    return topic, value, key, zlib.crc32(key) % partitions


def _lots(message: Any, whose: str) -> int:
    try:
        return int(json.loads(message.value())["lots"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConnectorError(
            f"{whose}: offset {message.offset()} of topic {message.topic()!r} does not say how "
            f"much was written ({error!r}); let nobody else write to this topic"
        ) from error


def _name(error: Exception) -> str:
    reason: Any = error.args[0] if error.args else None
    return str(reason.name()) if hasattr(reason, "name") else ""


ABORT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class KafkaCommit:
    """A lot of records that waits for its transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    transactional_id: str
    progress_topic: str
    since: tuple[int, ...]
    """Where the progress topic ended before the writer noted its beginning there."""
    batches: tuple[bytes, ...]
    """Lists of records for the client, pickled."""


class KafkaCommitter(Committer):
    """Writes lots that are not in yet."""

    def __init__(
        self, cluster: KafkaCluster, whose: str, details: dict[str, Any], sleep: Sleep
    ) -> None:
        """``details`` are written with the progress, for people."""
        self._sleep = sleep
        self._cluster = cluster
        self._whose = whose
        self._details = details
        self._sessions: dict[str, WriterSession] = {}

    def commit(self, committables: Sequence[Record]) -> None:
        self._commit(committables)

    def commit_again(self, committables: Sequence[Record]) -> None:
        self._commit(committables)
        self.close()  # these writers are gone for good

    def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def _commit(self, committables: Sequence[Record]) -> None:
        lots: dict[str, list[KafkaCommit]] = {}
        for lot in committables:
            lots.setdefault(lot.writer, []).append(lot)
        try:
            new = [lots[writer][0] for writer in lots if writer not in self._sessions]
            self._open(new)
            for writer, due in lots.items():
                self._sessions[writer].write(due)
        except BaseException:
            self.close()  # who goes on has to look at the progress again
            raise

    def _open(self, firsts: Sequence[KafkaCommit]) -> None:
        """Take over the ids of writers, all of them, then see what they have written.

        The other order, or writer after writer, could wait for a transaction that only a later
        step would abort.
        """
        for lot in firsts:
            producer = SinkProducer(
                self._cluster, self._whose, lot.transactional_id, sleep=self._sleep
            )
            self._sessions[lot.writer] = WriterSession(
                self._cluster, lot, producer, self._whose, self._details
            )
        for topic in dict.fromkeys(lot.progress_topic for lot in firsts):
            there = [lot for lot in firsts if lot.progress_topic == topic]
            with closing(ProgressTopic(self._cluster, topic, self._whose, self._sleep)) as progress:
                written = progress.read([lot.writer for lot in there], _earliest(there))
            for writer, number in written.items():
                self._sessions[writer].written = number


def _earliest(lots: Sequence[KafkaCommit]) -> tuple[int, ...]:
    """Where the first of their writers began, in each partition of the progress topic."""
    return tuple(map(min, zip(*(lot.since for lot in lots), strict=False)))


class WriterSession:
    """The right to write under a writer's id, until somebody else takes it."""

    def __init__(
        self,
        cluster: KafkaCluster,
        lot: KafkaCommit,
        producer: SinkProducer,
        whose: str,
        details: dict[str, Any],
    ) -> None:
        """``producer``: with the id of the lot; it is closed here."""
        self.written = 0
        """The number of the last lot that is in."""
        self._details = details
        self._whose = whose
        self._timeout_s = cluster.transaction_s
        self._producer = producer
        try:
            self._producer.ask(
                f"taking the transactional id {lot.transactional_id!r}",
                lambda client, seconds: client.init_transactions(seconds),
                cluster.timeout_s,
            )
        except BaseException:
            self.close()
            raise

    def write(self, lots: Sequence[KafkaCommit]) -> None:
        """Write the lots that are not in yet, each in a transaction of its own.

        Several wait after a time without commits; all in one could take longer than a transaction
        may.
        """
        for lot in lots:
            if lot.number > self.written:
                self._write(lot)
                self.written = lot.number

    def _write(self, lot: KafkaCommit) -> None:
        producer, began_s = self._producer, time.monotonic()
        note = progress_record(
            lot.progress_topic, len(lot.since), lot.writer, lot.number, self._details
        )
        producer.begin()
        try:
            for batch in lot.batches:
                producer.send(loads(batch))
            producer.send([note])
            producer.ask(
                f"committing a transaction ({TRANSACTION_KEY} is {self._timeout_s * 1000:g})",
                lambda client, seconds: client.commit_transaction(seconds),
                self._timeout_s,
            )
        except ConnectorError as error:
            took_s = time.monotonic() - began_s
            producer.abort(ABORT_S)
            if took_s >= self._timeout_s:
                raise self._overdue(lot) from error
            producer.check()  # what was not delivered says more than that the commit failed
            raise error

    def _overdue(self, lot: KafkaCommit) -> ConnectorError:
        """The brokers have aborted the transaction, or do so now."""
        size = sum(map(len, lot.batches))
        return KafkaUnready(
            f"{self._whose}: {size:,} bytes of a checkpoint were not written within "
            f"{self._timeout_s:g} s, as long as a transaction may take ({TRANSACTION_KEY} is "
            f"{self._timeout_s * 1000:g}); check that the brokers keep up, raise it, or take "
            f"checkpoints more often, so that each holds less"
        )

    def close(self) -> None:
        self._producer.close()
