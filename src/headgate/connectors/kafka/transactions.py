"""Commits of records exactly once: the second phase of ``sink``.

A writer has a transactional id of its own for as long as its task attempt lives. Its lots are
written only under this id, by whoever commits them, each in one transaction with a record of
progress. Law: a lot is written after ``init_transactions`` of its id, which shuts out everybody who
had the id before, and after the progress was read that was committed until then; so nothing is
written twice, whoever repeats a commit. No transaction is open but while a lot is written.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, KafkaUnready
from headgate.base.moved import loads
from headgate.connectors.kafka.client import TRANSACTION_KEY, KafkaCluster
from headgate.connectors.kafka.producer import SinkProducer
from headgate.connectors.kafka.progress import ProgressTopic, progress_record
from headgate.connectors.retries import Sleep
from headgate.functions.sink import Committer

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
        """Those that are not in yet, each in a transaction of its own.

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
