"""The transaction coordinator: who may write under a transactional id, and what is open.

Laws: of all producers that were initialised with an id, only the last one can write, commit and
abort; initialising aborts what the one before left open; a transaction that is open for longer than
its time limit is aborted and its producer fenced. Ends are decided here at once and for good.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tests.connectors.kafka.broker import errors

MAX_TIMEOUT_MS = 900_000
MAX_EPOCH = 32_767


class TxnState(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    """The present state of one transactional id."""

    name: str
    producer: int
    epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    begun_ms: int = 0


EndPartition = Callable[[tuple[str, int], int, int, bool, int], None]
"""Partition, producer, epoch, whether to commit, time: writes the marker."""
EndOffsets = Callable[[str, int, bool], None]
"""Group, producer, whether to commit."""


class TransactionCoordinator:
    def __init__(self, end_partition: EndPartition, end_offsets: EndOffsets) -> None:
        self._end_partition = end_partition
        self._end_offsets = end_offsets
        self._next_producer = 1000
        self.transactions: dict[str, Transaction] = {}

    def init(
        self, name: str | None, timeout_ms: int, producer: int, epoch: int, now_ms: int
    ) -> tuple[int, int, int]:
        """Error, producer id and epoch for a producer that begins, or goes on after an error."""
        if name is None:
            if producer >= 0 and epoch < MAX_EPOCH - 1:
                return errors.NONE, producer, epoch + 1
            return errors.NONE, self._new_producer(), 0
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            return errors.INVALID_TRANSACTION_TIMEOUT, -1, -1
        found = self.transactions.get(name)
        if found is None:
            found = Transaction(name, self._new_producer(), 0, timeout_ms)
            self.transactions[name] = found
            return errors.NONE, found.producer, 0
        if producer >= 0 and (producer, epoch) != (found.producer, found.epoch):
            return errors.PRODUCER_FENCED, -1, -1
        self._fence(found, now_ms)
        found.timeout_ms = timeout_ms
        return errors.NONE, found.producer, found.epoch

    def add_partitions(
        self, name: str, producer: int, epoch: int, partitions: list[tuple[str, int]], now_ms: int
    ) -> int:
        return self._add(
            name, producer, epoch, now_ms, lambda txn: txn.partitions.update(partitions)
        )

    def add_group(self, name: str, producer: int, epoch: int, group: str, now_ms: int) -> int:
        return self._add(name, producer, epoch, now_ms, lambda txn: txn.groups.add(group))

    def may_write(self, producer: int, epoch: int, partition: tuple[str, int]) -> int:
        """The error code for a transactional batch."""
        found = self._of(producer)
        if found is None:
            return errors.INVALID_PRODUCER_ID_MAPPING
        if epoch != found.epoch:
            return errors.INVALID_PRODUCER_EPOCH
        known = found.state is TxnState.ONGOING and partition in found.partitions
        return errors.NONE if known else errors.INVALID_TXN_STATE

    def may_commit_offsets(self, name: str, producer: int, epoch: int, group: str) -> int:
        found = self.transactions.get(name)
        code = self._check(found, producer, epoch)
        if code or found is None:
            return code
        known = found.state is TxnState.ONGOING and group in found.groups
        return errors.NONE if known else errors.INVALID_TXN_STATE

    def end(self, name: str, producer: int, epoch: int, commit: bool, now_ms: int) -> int:
        """A repetition of the last end is fine, its opposite is not."""
        found = self.transactions.get(name)
        code = self._check(found, producer, epoch)
        if code or found is None:
            return code
        wanted = TxnState.COMMITTED if commit else TxnState.ABORTED
        if found.state is TxnState.ONGOING:
            self._end(found, commit, now_ms)
            return errors.NONE
        return errors.NONE if found.state is wanted else errors.INVALID_TXN_STATE

    def expire(self, now_ms: int) -> bool:
        """Abort what is open for too long; whether there was something."""
        late = [
            txn
            for txn in self.transactions.values()
            if txn.state is TxnState.ONGOING and txn.begun_ms + txn.timeout_ms <= now_ms
        ]
        for txn in sorted(late, key=lambda txn: (txn.begun_ms + txn.timeout_ms, txn.name)):
            self._fence(txn, txn.begun_ms + txn.timeout_ms)
        return bool(late)

    def _add(
        self,
        name: str,
        producer: int,
        epoch: int,
        now_ms: int,
        add: Callable[[Transaction], object],
    ) -> int:
        found = self.transactions.get(name)
        code = self._check(found, producer, epoch)
        if code or found is None:
            return code
        if found.state is not TxnState.ONGOING:
            found.state = TxnState.ONGOING
            found.begun_ms = now_ms
        add(found)
        return errors.NONE

    def _fence(self, found: Transaction, now_ms: int) -> None:
        """Nobody who has this id can use it from here on; what is open is aborted."""
        if found.epoch >= MAX_EPOCH - 1:
            if found.state is TxnState.ONGOING:
                self._end(found, False, now_ms)
            found.producer, found.epoch = self._new_producer(), 0
        else:
            found.epoch += 1
            if found.state is TxnState.ONGOING:
                self._end(found, False, now_ms)
        found.state = TxnState.EMPTY

    def _end(self, found: Transaction, commit: bool, now_ms: int) -> None:
        for partition in sorted(found.partitions):
            self._end_partition(partition, found.producer, found.epoch, commit, now_ms)
        for group in sorted(found.groups):
            self._end_offsets(group, found.producer, commit)
        found.partitions.clear()
        found.groups.clear()
        found.state = TxnState.COMMITTED if commit else TxnState.ABORTED

    def _check(self, found: Transaction | None, producer: int, epoch: int) -> int:
        if found is None or found.producer != producer:
            return errors.INVALID_PRODUCER_ID_MAPPING
        return errors.NONE if epoch == found.epoch else errors.INVALID_PRODUCER_EPOCH

    def _of(self, producer: int) -> Transaction | None:
        return next((t for t in self.transactions.values() if t.producer == producer), None)

    def _new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer
