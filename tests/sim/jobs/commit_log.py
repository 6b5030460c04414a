"""What the sinks of a simulated job have committed, over all its attempts.

Law: a transaction is committed for the first time after a checkpoint that holds it is complete;
again only by an attempt that was restored, and with the same contents.
"""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from tests.sim.jobs.records import Item

TransactionId: TypeAlias = tuple[int, int, int, int]
"""Attempt, sink, subtask, and a number among those of the writer."""
Transaction: TypeAlias = tuple[TransactionId, int, list[Item]]
"""Its id, the checkpoint that it was prepared for (0: the end of the input), and what it holds."""


class CommitLog:
    """Outlives attempts, workers and drivers."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.is_complete: Callable[[int], bool] = lambda checkpoint: True
        """Whether a checkpoint of this number or a later one is complete."""
        self._committed: dict[TransactionId, list[Item]] = {}

    def commit(self, transaction: Transaction, again: bool) -> None:
        """What it holds counts from now on."""
        name, checkpoint, items = transaction
        known = self._committed.get(name)
        if known is None:
            if not self.is_complete(checkpoint):
                self.problems.append(f"{name} is committed before checkpoint {checkpoint} is there")
            self._committed[name] = items
        elif not again:
            self.problems.append(f"{name} is committed twice")
        elif known != items:
            self.problems.append(f"{name} is committed again with other records")

    def of_sink(self, sink: int) -> "Counter[Item]":
        """All that a sink has committed."""
        found: Counter[Item] = Counter()
        for (_, of, _, _), items in self._committed.items():
            if of == sink:
                found.update(items)
        return found
