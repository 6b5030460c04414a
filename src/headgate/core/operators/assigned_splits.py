"""The splits that the driver assigns to a source task while it runs: what has come, when to ask.

Used by ``SourceOperator``. Law: a task asks for more only when it has read what it has, or nearly;
one that reads its splits slowly never holds one that it has not begun, so that others can read it.
Splits that are read fast are asked for in batches, and early, so that the task does not wait for
the driver. One whose splits have had nothing for a while asks for another, so that no split waits
for ever behind a quiet one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from headgate.base.checkpoints import SplitData
from headgate.core.operators.source_splits import IdentifiedSplit, SplitProgress
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import Source

FAST_MS: Final = 20.0
"""A batch that is read in less time is followed by one of twice the size …"""
SLOW_MS: Final = 100.0
"""… and one that took longer by a single split."""
MOST: Final = 128
"""Splits that are asked for at a time."""
QUIET_MS: Final = 200.0
"""A task whose splits have had nothing for so long asks for another one."""


class AssignedSplits:
    """Of one task; used on its thread."""

    def __init__(
        self,
        want: Callable[[int, int], None],
        elapsed_ms: Callable[[], float],
        *,
        by_demand: bool,
        bounded: bool,
        known: Iterable[bytes] = (),
    ) -> None:
        """``want`` tells the driver how many splits are wanted, and how many are here.

        ``known``: marks of splits of a run that had dealt them out at its start; they were read, or
        are restored from their positions.
        """
        self.waiting: deque[SplitProgress] = deque()
        """They are this task's, and were not begun in this run."""
        self.received = 0
        """Splits that were assigned, all in all."""
        self.no_more = False
        """No task will get another split."""
        self.by_demand = by_demand
        self.passed_over: list[SplitData] = []
        """Splits that were assigned, and are known."""
        self.is_mixed = False
        """Others were assigned beside known ones."""
        self._known = dict.fromkeys(known)
        self._want = want
        self._elapsed_ms = elapsed_ms
        self._bounded = bounded
        self._backlog = True
        self._asked = False
        self._count = 1
        self._came_ms: float | None = None
        self._quiet_ms: float | None = None

    @property
    def holds_back(self) -> bool:
        """Whether event time waits for splits that were not begun, here or in the driver."""
        undone = self._backlog or (self._bounded and not self.no_more)
        return undone or bool(self.waiting)

    @property
    def has_ended(self) -> bool:
        """Whether the task has begun all splits that it will ever get."""
        return self.no_more and not self.waiting

    def open(self, held: int) -> None:
        """The task is there, with splits that it had begun before."""
        self._asked = self.by_demand and not held
        self._want(1 if self._asked else 0, held)

    def assigned(self, splits: Iterable[SplitData], backlog: bool, no_more: bool) -> None:
        """The driver has handed out splits, or tells that there are no others."""
        for split in splits:
            self.received += 1
            self._asked, self._came_ms = False, self._elapsed_ms()
            if split.mark in self._known:
                self.passed_over.append(split)
            else:
                self.is_mixed = self.is_mixed or bool(self._known)
                identity = IdentifiedSplit(None, split.mark, split.data)
                self.waiting.append(SplitProgress(identity))
        self._backlog, self.no_more = backlog, no_more

    def look(self, reading: int, all_quiet: bool) -> float:
        """Ask for more if it is time to; returns after how long to look again.

        ``reading``: splits that are open; ``all_quiet``: none of them had anything.
        """
        if self._asked or self.no_more or not self.by_demand:
            return inf
        held = reading + len(self.waiting)
        if held <= self._count // 2:
            self._ask(self._paced(), held)
        elif all_quiet and not self.waiting:
            now_ms = self._elapsed_ms()
            since_ms = self._quiet_ms = now_ms if self._quiet_ms is None else self._quiet_ms
            if now_ms - since_ms < QUIET_MS:
                return QUIET_MS - (now_ms - since_ms)
            self._ask(1, held)
        if not all_quiet or self._asked:
            self._quiet_ms = None
        return inf

    def _paced(self) -> int:
        """How many to ask for, by how long the last ones took."""
        if self._came_ms is not None:
            took_ms = self._elapsed_ms() - self._came_ms
            if took_ms < FAST_MS:
                self._count = min(2 * self._count, MOST)
            elif took_ms > SLOW_MS:
                self._count = 1
        return self._count

    def _ask(self, count: int, held: int) -> None:
        self._asked = True
        self._want(count, held)


class FinishedSplits:
    """Splits that were read to their ends, until a completed checkpoint covers that.

    A savepoint covers nothing unless the job ends with it: a later failure goes back behind it.
    Until they are covered they stay in the task's state, with their ends as positions: a run that
    is restored finishes them again, for the one before may have had no time to tell of them.
    """

    def __init__(self, source: Source) -> None:
        self._tell = _listener(source)
        self._ended: list[SplitProgress] = []
        self._held: dict[int, list[SplitProgress]] = {}
        """By the first checkpoint after the end."""

    @property
    def uncovered(self) -> list[SplitProgress]:
        return [*(split for held in self._held.values() for split in held), *self._ended]

    def add(self, split: object, end: Callable[[], SplitProgress], checkpoints: bool) -> None:
        """A split has ended, there; in a job with checkpoints or in one without."""
        if self._tell is None:
            return
        if checkpoints:
            self._ended.append(end())
        else:
            self._tell([split])

    def snapshot(self, moment: SnapshotMoment) -> None:
        """A checkpoint is taken: it holds that these have ended."""
        if self._ended and (not moment.is_savepoint or moment.stop.ends):
            self._held[moment.checkpoint] = self._ended
            self._ended = []

    def completed(self, checkpoint: int) -> None:
        """It is stored, and so are all before it."""
        covered = [taken for taken in self._held if taken <= checkpoint]
        splits = [ended.split.split for taken in covered for ended in self._held.pop(taken)]
        if splits and self._tell is not None:
            self._tell(splits)


def _listener(source: Source) -> Callable[[Sequence[object]], None] | None:
    """What learns of splits that nobody reads again; None: the source does not want to know."""
    is_given = type(source).splits_finished is not Source.splits_finished
    return source.splits_finished if is_given else None
