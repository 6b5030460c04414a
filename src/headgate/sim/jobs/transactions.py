"""The sink of simulated jobs that take checkpoints: commits to the vault, in two phases."""

from collections.abc import Sequence

from headgate.base.elements import Record
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.sim.jobs.functions import Function, Run
from headgate.sim.jobs.records import Item, item_of
from headgate.sim.jobs.vault import Transaction, Vault


class Transactions(Function):
    """Sink and writer of one task."""

    def __init__(self, run: Run, node: int) -> None:
        super().__init__(run, node)
        self._items: list[Item] = []
        self._prepared = 0
        self._attempt = run.attempt

    def create_writer(self, context: ConnectorContext) -> "Transactions":
        self._subtask = context.task.subtask
        self._enter(context.task.subtask, context.task.name)
        return self

    def create_committer(self, context: ConnectorContext) -> "Commits":
        assert self._run.vault is not None
        return Commits(self._run.vault)

    def write(self, records: list[Record]) -> None:
        for record in records:
            self._seen(record)
            self._items.append(item_of(record))

    def flush(self) -> None:
        self._work()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        items, self._items = self._items, []
        if not items:
            return []
        self._prepared += 1
        name = (self._attempt, self.node, self._subtask, self._prepared)
        transaction: Transaction = (name, 0 if moment is None else moment.checkpoint, items)
        return [transaction]

    def unfinished(self) -> Sequence[Record]:
        return []


class Commits:
    """Commits for one task."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def commit(self, committables: Sequence[Record]) -> None:
        for transaction in committables:
            self._vault.commit(transaction, again=False)

    def commit_again(self, committables: Sequence[Record]) -> None:
        for transaction in committables:
            self._vault.commit(transaction, again=True)

    def close(self) -> None:
        """Holds nothing."""
