"""The splits of one source in the driver: found by its enumerator, handed out to its tasks.

Driven by ``JobRun``, in every attempt anew. Law: a split is unassigned or was sent to one task, and
``state`` holds the unassigned ones with the position of the enumerator behind which they were
found. So a checkpoint whose triggers are sent in the same step has every split once: here, or in
the state of the task that it was sent to before. By demand, no task waits while a split does; else
each split goes at once to the task with the fewest. Tasks learn when there are no more.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.messages import SplitsAssigned
from headgate.functions.source import SplitEnumerator

MESSAGE_BYTES: Final = 1024 * 1024
"""A message with more than this has one split."""


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source whose splits the driver hands out, in one attempt."""

    uid: str
    name: str
    slots: Mapping[str, int]
    """Of its tasks that are run, in their order."""
    by_demand: bool
    create: Callable[[bytes], SplitEnumerator]
    """Makes the enumerator; it gets the position of an earlier one, pickled."""
    restored: SourceState | None = None


class SplitAssignment:
    """Of one source in one attempt."""

    def __init__(self, run: str, source: PlannedSource) -> None:
        self.source = source
        self._run = run
        self._position = b"" if source.restored is None else source.restored.position
        self._unassigned = deque(() if source.restored is None else source.restored.splits)
        self._held: dict[str, int] = {}  # of tasks that have reported, what they had and got
        self._wanted: dict[str, int] = {}  # in the order of asking
        self._notices: dict[str, tuple[bool, bool]] = {}  # the last of each task
        self._has_looked = self._is_complete = False

    @property
    def unassigned(self) -> int:
        """Splits that no task has yet."""
        return len(self._unassigned)

    def state(self) -> SourceState:
        """For a checkpoint whose triggers are sent now."""
        return SourceState(
            self.source.uid, self.source.name, self._position, tuple(self._unassigned)
        )

    def wanted(self, task: str, count: int, held: int) -> list[tuple[int, SplitsAssigned]]:
        """A task has opened, or wants more; what is to be sent."""
        if task not in self.source.slots:
            return []
        if task not in self._held:
            self._held[task] = held
            self._notices[task] = True, False  # what a task takes for granted
        if count > 0:
            self._wanted[task] = count
        return self._hand_out()

    def discovered(
        self, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> list[tuple[int, SplitsAssigned]]:
        """The enumerator has found these, and is at ``position``; ``is_last``: it has found all."""
        self._position = position
        self._unassigned += splits
        self._has_looked = True
        self._is_complete = self._is_complete or is_last
        return self._hand_out()

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        assert not (self._unassigned and self._wanted), "a task waits while a split does"
        all_here = len(self._held) == len(self.source.slots)
        assert self.source.by_demand or not all_here or not self._unassigned
        for _, no_more in self._notices.values():
            assert not no_more or (self._is_complete and not self._unassigned)

    def _hand_out(self) -> list[tuple[int, SplitsAssigned]]:
        given: dict[str, list[SplitData]] = {}
        if self.source.by_demand:
            while self._unassigned and self._wanted:
                task = next(iter(self._wanted))
                given[task] = self._take(self._wanted.pop(task))
        elif self._unassigned and len(self._held) == len(self.source.slots):
            given = self._spread()
        backlog = bool(self._unassigned) or not self._has_looked
        notice = backlog, self._is_complete and not backlog
        messages = []
        for task in self._held:
            if task in given or self._notices[task] != notice:
                self._notices[task] = notice
                messages += self._messages(task, given.get(task, []), notice)
        return messages

    def _spread(self) -> dict[str, list[SplitData]]:
        """Each split to the task with the fewest, of several the first."""
        given: dict[str, list[SplitData]] = {}
        tasks = [(self._held[task], place, task) for place, task in enumerate(self.source.slots)]
        heapify(tasks)
        while self._unassigned:
            held, place, task = tasks[0]
            given.setdefault(task, []).append(self._unassigned.popleft())
            self._held[task] = held + 1
            heapreplace(tasks, (held + 1, place, task))
        return given

    def _take(self, count: int) -> list[SplitData]:
        """For one task; near the end the shares get smaller, so that all end at the same time."""
        fair = -(-len(self._unassigned) // len(self.source.slots))
        return [self._unassigned.popleft() for _ in range(min(count, fair))]

    def _messages(
        self, task: str, splits: list[SplitData], notice: tuple[bool, bool]
    ) -> list[tuple[int, SplitsAssigned]]:
        parts: list[list[SplitData]] = [[]]
        size = 0
        for split in splits:
            size += len(split.data)
            if parts[-1] and size > MESSAGE_BYTES:
                parts.append([])
                size = len(split.data)
            parts[-1].append(split)
        slot = self.source.slots[task]
        first = [
            (slot, SplitsAssigned(self._run, task, tuple(part), backlog=True, no_more=False))
            for part in parts[:-1]
        ]
        return [*first, (slot, SplitsAssigned(self._run, task, tuple(parts[-1]), *notice))]
