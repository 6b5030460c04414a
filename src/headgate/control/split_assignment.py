"""The splits of one source in the driver: found by its enumerator, handed out to its tasks.

Driven by ``JobRun``, in every attempt anew. Law: a split is unassigned or was sent to one task, and
``state`` holds the unassigned ones with the position of the enumerator after which they were
found. So a checkpoint whose triggers are sent in the same step has every split once: here, or in
the state of the task that it was sent to before. By demand, no task waits while a split does; else
each split goes at once to the task with the fewest. Tasks learn when there are no more. A task of
an endless source that has nothing to read is told how far the others are; nothing of it while a
split is unassigned, or not yet counted in what its task has reported (``SourceTime``).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import Final

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.messages import SourceTimeAnnounced, SourceTimeReported, SplitsAssigned
from headgate.functions.source import SplitEnumerator

MESSAGE_BYTES: Final = 1024 * 1024
"""A message with more than this has one split."""


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source whose splits the driver hands out, in one attempt."""

    uid: str
    name: str
    slots: Mapping[str, int]
    """Slots of its tasks that are run, in their order."""
    by_demand: bool
    create: Callable[[bytes], SplitEnumerator]
    """Makes the enumerator; it gets the position of an earlier one, pickled."""
    restored: SourceState | None = None


@dataclass(slots=True)
class _TaskTime:
    """How far a task is, as it has reported, and what it was told of the others."""

    sent: int = 0
    """Splits, all in all."""
    received: int = 0
    """The splits that the last report counts."""
    watermark_ms: int = MIN_WATERMARK_MS
    rests: bool = False
    told_ms: int = MIN_WATERMARK_MS
    told_rest: bool = False
    followed: bool = False


@dataclass(slots=True)
class SourceTime:
    """Event time of a source over all its tasks. Law: none rests ahead of a split that is known.

    What a task that rests is told, the tasks that read have emitted before, and all splits that the
    driver knows are theirs.
    """

    tasks: dict[str, _TaskTime] = field(default_factory=dict)
    """The tasks that have not ended."""

    def reported(self, report: SourceTimeReported) -> None:
        """A task has moved on, fallen to rest, or got splits."""
        task = self.tasks.get(report.task)
        if task is None:
            return
        if report.received != task.received or not report.rests:
            task.told_ms, task.told_rest = MIN_WATERMARK_MS, False
        task.received, task.rests = report.received, report.rests
        task.watermark_ms = report.watermark_ms

    def announcements(self, run: str, unassigned: int) -> list[tuple[str, SourceTimeAnnounced]]:
        """What tasks are to be told now; ``unassigned``: splits that no task has."""
        reading = [task.watermark_ms for task in self.tasks.values() if not task.rests]
        resting = [task.watermark_ms for task in self.tasks.values() if task.rests]
        is_open = unassigned or any(task.sent > task.received for task in self.tasks.values())
        told_ms = min(reading) if reading else max(resting, default=MIN_WATERMARK_MS)
        all_rest, followed = not reading, bool(reading and resting)
        messages = []
        for name, task in self.tasks.items():
            is_news = task.rests and not is_open
            is_news = is_news and (told_ms > task.told_ms or all_rest > task.told_rest)
            if is_news:
                task.told_ms, task.told_rest = told_ms, all_rest
            if is_news or (not task.rests and task.followed != followed):
                task.followed = followed
                message = SourceTimeAnnounced(run, name, task.told_ms, task.told_rest, followed)
                messages.append((name, message))
        return messages


class SplitAssignment:
    """The splits of one source in one attempt."""

    def __init__(self, run: str, source: PlannedSource) -> None:
        self.source = source
        self._run = run
        self._position = b"" if source.restored is None else source.restored.position
        self._unassigned = deque(() if source.restored is None else source.restored.splits)
        self._held: dict[str, int] = {}  # of tasks that have reported, what they had and got
        self._wanted: dict[str, int] = {}  # in the order of asking
        self._notices: dict[str, tuple[bool, bool]] = {}  # the last of each task
        self._has_looked = self._is_complete = False
        self._time = SourceTime({task: _TaskTime() for task in source.slots})

    @property
    def unassigned(self) -> int:
        """Splits that no task has yet."""
        return len(self._unassigned)

    def state(self) -> SourceState:
        """The state for a checkpoint whose triggers are sent now."""
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

    def time_reported(self, report: SourceTimeReported) -> list[tuple[int, SourceTimeAnnounced]]:
        """A task has moved on, fallen to rest, or got splits; what is to be sent."""
        self._time.reported(report)
        return self._announce()

    def task_ended(self, task: str) -> list[tuple[int, SourceTimeAnnounced]]:
        """It holds nobody back any more."""
        return [] if self._time.tasks.pop(task, None) is None else self._announce()

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
            if task in given and task in self._time.tasks:
                self._time.tasks[task].sent += len(given[task])
            if task in given or self._notices[task] != notice:
                self._notices[task] = notice
                messages += self._messages(task, given.get(task, []), notice)
        return messages

    def _announce(self) -> list[tuple[int, SourceTimeAnnounced]]:
        announced = self._time.announcements(self._run, self.unassigned)
        return [(self.source.slots[task], message) for task, message in announced]

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
        """Splits for one task; shares get smaller near the end, so that all end together."""
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
