"""Commits of records exactly once: the second phase of ``sink``.

A writer has a transactional id of its own for as long as its task attempt lives. Its lots are
written only under this id, by whoever commits them, each in one transaction with a record of
progress. Law: a lot is written after ``init_transactions`` of its id, which shuts out everybody who
had the id before, and after the progress was read that was committed until then; so nothing is
written twice, whoever repeats a commit. No transaction is open but while a lot is written.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.base.moved import loads
from headgate.connectors.kafka.client import KafkaCluster
from headgate.connectors.kafka.producer import SinkProducer
from headgate.connectors.kafka.progress import ProgressTopic, progress_record
from headgate.functions.sink import Committer

TRANSACTION_KEY: Final = "transaction.timeout.ms"
TRANSACTION_MS: Final = 60_000
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
    """Where the progress topic ended when the writer began: nothing of it is before that."""
    batches: tuple[bytes, ...]
    """Lists of records for the client, pickled."""


class KafkaCommitter(Committer):
    """Writes lots that are not in yet."""

    def __init__(self, cluster: KafkaCluster, whose: str, details: dict[str, Any]) -> None:
        """``details`` are written with the progress, for people."""
        self._cluster = cluster
        self._whose = whose
        self._details = details
        self._sessions: dict[str, WriterSession] = {}

    def commit(self, committables: Sequence[Record]) -> None:
        self._commit(committables, again=False)

    def commit_again(self, committables: Sequence[Record]) -> None:
        self._commit(committables, again=True)
        self.close()  # these writers are gone for good

    def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def _commit(self, committables: Sequence[Record], again: bool) -> None:
        lots: dict[str, list[KafkaCommit]] = {}
        for lot in committables:
            lots.setdefault(lot.writer, []).append(lot)
        try:
            new = [lots[writer][0] for writer in lots if writer not in self._sessions]
            self._open(new, again)
            for writer, due in lots.items():
                self._sessions[writer].write(due)
        except BaseException:
            self.close()  # who goes on has to look at the progress again
            raise

    def _open(self, firsts: Sequence[KafkaCommit], again: bool) -> None:
        """Take over the ids of writers, all of them, then see what they have written.

        The other order, or writer after writer, could wait for a transaction that only a later
        step would abort.
        """
        for lot in firsts:
            self._sessions[lot.writer] = WriterSession(
                self._cluster, lot, self._whose, self._details
            )
        for topic in dict.fromkeys(lot.progress_topic for lot in firsts):
            there = [lot for lot in firsts if lot.progress_topic == topic]
            with closing(ProgressTopic(self._cluster, topic, self._whose)) as progress:
                written = progress.read([lot.writer for lot in there], _earliest(there))
                unknown = [lot for lot in there if lot.writer not in written]
                if again and unknown:  # is nothing noted, or was it dropped?
                    progress.check_since(_earliest(unknown))
            for writer, number in written.items():
                self._sessions[writer].written = number


def _earliest(lots: Sequence[KafkaCommit]) -> tuple[int, ...]:
    """Where the first of their writers began, in each partition of the progress topic."""
    return tuple(map(min, zip(*(lot.since for lot in lots), strict=False)))


class WriterSession:
    """The right to write under a writer's id, until somebody else takes it."""

    def __init__(
        self, cluster: KafkaCluster, lot: KafkaCommit, whose: str, details: dict[str, Any]
    ) -> None:
        self.written = 0
        """The number of the last lot that is in."""
        self._details = details
        self._timeout_s = cluster.whole_number(TRANSACTION_KEY, TRANSACTION_MS, least=1) / 1000
        self._producer = SinkProducer(cluster, whose, lot.transactional_id)
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
        """Those that are not in yet, in one transaction."""
        due = [lot for lot in lots if lot.number > self.written]
        if not due:
            return
        producer, last = self._producer, due[-1]
        note = progress_record(
            last.progress_topic, len(last.since), last.writer, last.number, self._details
        )
        producer.begin()
        try:
            for lot in due:
                for batch in lot.batches:
                    producer.send(loads(batch))
            producer.send([note])
            producer.ask(
                f"committing a transaction ({TRANSACTION_KEY} is {self._timeout_s * 1000:g})",
                lambda client, seconds: client.commit_transaction(seconds),
                self._timeout_s,
            )
        except ConnectorError as error:
            producer.abort(ABORT_S)
            producer.check()  # what was not delivered says more than that the commit failed
            raise error
        self.written = last.number

    def close(self) -> None:
        self._producer.close()
