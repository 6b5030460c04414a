"""The splits of a source in its tasks: those the driver assigns, those that ended, checkpoints.

Law of checkpoints: each task writes its splits that have not ended, with their positions, and the
marks of all splits that any run has known. A split that has ended is not read again, one that has
not goes on in one task, and one that nobody knew is read from its beginning, unless the source says
that its splits only cut the same data in another way.

Law of assigned splits: a task asks for more only when it has read what it has, or nearly; one that
reads its splits slowly never holds one that it has not begun, so that others can read it. Splits
that are read fast are asked for in batches, and early, so that the task does not wait for the
driver. A task whose splits have had nothing for a while asks for another, so that no split waits
for ever for a quiet one.
"""

import hashlib
import io
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import msgspec

from headgate.base.checkpoints import SplitData
from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.errors import StateBroken
from headgate.base.moved import first_bytes, loads
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import Position, Source

MARK_BYTES: Final = 12
KEPT_BYTES: Final = 64 * 1024
"""A split that is larger is not written: the next run has it, and finds it by its mark."""
FAST_MS: Final = 20.0
"""A batch that is read in less time is followed by one of twice the size …"""
SLOW_MS: Final = 100.0
"""… and one that took longer by a single split."""
MOST: Final = 128
"""Splits that are asked for at a time."""
QUIET_MS: Final = 200.0
"""A task whose splits have had nothing for so long asks for another one."""


@dataclass(frozen=True, slots=True)
class IdentifiedSplit:
    """A split and the mark that identifies it in all runs; equal splits of a run differ in it."""

    split: object
    mark: bytes
    data: bytes
    """The split itself, pickled; empty: it is too large."""


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """The position of a split's reader, and the last watermark that went out for it."""

    split: IdentifiedSplit
    position: Position = None
    watermark_ms: int = MIN_WATERMARK_MS


@dataclass(frozen=True, slots=True)
class SplitShare:
    """What one task has to do."""

    splits: list[SplitProgress]
    known: bytes
    """The marks of all splits that this run or an earlier one has known, side by side."""
    passed_over: list[object]
    """Splits of this run that would be the task's and have ended already."""


def identify_splits(
    splits: Iterable[object], kept_bytes: float = KEPT_BYTES
) -> list[IdentifiedSplit]:
    """The splits of one run, in order; raises StateBroken if one cannot be pickled.

    A split of more than ``kept_bytes`` comes without its data.
    """
    times: Counter[bytes] = Counter()
    found = []
    for split in splits:
        data, is_fast = _pickled(split)
        number = times[data]
        times[data] += 1
        first = first_bytes(data, split, is_fast)
        mark = hashlib.blake2b(b"%d:" % number + first, digest_size=MARK_BYTES).digest()
        found.append(IdentifiedSplit(split, mark, data if len(data) <= kept_bytes else b""))
    return found


def was_listed(source: Source, split: object, known: bytes) -> bool:
    """Whether a run that listed all splits at its start had another one in this one's place.

    ``known``: the marks of that run; empty: there was none.
    """
    former = source.former_split(split) if known else None
    if former is None:
        return False
    (identified,) = identify_splits([former])
    return identified.mark in marks_of(known)


def write_splits(progress: Iterable[SplitProgress], known: bytes, of_driver: bool = False) -> bytes:
    """What a task leaves, or the driver, whose splits are not of any task; raises StateBroken."""
    rows = [
        _Row(
            at.split.mark,
            at.split.data,
            pickled_position(at.position, "a reader") if at.position is not None else b"",
            at.watermark_ms,
        )
        for at in progress
    ]
    return msgspec.msgpack.encode(_State(known, rows, of_driver))


def assign_splits(
    states: Sequence[bytes | None],
    splits: Sequence[IdentifiedSplit],
    subtask: int,
    parallelism: int,
    finds_more: bool | None,
) -> SplitShare:
    """The splits of one task, out of the states of all old tasks and the splits of this run.

    With the old parallelism each task gets its own splits again, and a task that had finished
    reads nothing. What the driver held is spread over those that read. ``finds_more``: see
    ``Source``. Raises StateBroken.
    """
    left = [None if state is None else _read(state) for state in states]
    tasks = [state for state in left if state is None or not state.of_driver]
    held = [state for state in left if state is not None and state.of_driver]
    if all(state is None for state in left):
        fresh = [SplitProgress(split) for split in splits[subtask::parallelism]]
        return SplitShare(fresh, b"".join(split.mark for split in splits), [])
    known = dict.fromkeys(mark for state in left if state is not None for mark in state.marks())
    new = [] if finds_more is False else [split for split in splits if split.mark not in known]
    if new and finds_more is None and len(tasks) != parallelism:
        check_same_cut(known, splits, len(tasks), parallelism)
    by_mark = {split.mark: split for split in splits}
    begun = [[] if task is None else _progress(task, by_mark) for task in tasks]
    unbegun = [at for state in held for at in _progress(state, by_mark)]
    in_all = [*(at for some in begun for at in some), *unbegun]
    others = [*unbegun, *map(SplitProgress, new)]
    if len(tasks) == parallelism:
        alive = [number for number, task in enumerate(tasks) if task is not None]
        mine = begun[subtask]
        if subtask in alive:
            mine = mine + others[alive.index(subtask) :: len(alive)]
    else:
        mine = [*in_all, *map(SplitProgress, new)][subtask::parallelism]
    read = {at.split.mark for at in in_all} | {split.mark for split in new}
    over = [split.split for split in splits[subtask::parallelism] if split.mark not in read]
    return SplitShare(
        mine, b"".join([*known, *(mark for mark in by_mark if mark not in known)]), over
    )


def marks_of(known: bytes) -> list[bytes]:
    """Marks that stand side by side, one by one."""
    return [known[at : at + MARK_BYTES] for at in range(0, len(known), MARK_BYTES)]


class _Row(msgspec.Struct, frozen=True, array_like=True):
    mark: bytes
    data: bytes
    position: bytes
    watermark_ms: int


class _State(msgspec.Struct, frozen=True, array_like=True):
    known: bytes
    rows: list[_Row]
    of_driver: bool = False

    def marks(self) -> list[bytes]:
        return marks_of(self.known)


def check_same_cut(
    known: Mapping[bytes, None], splits: Sequence[IdentifiedSplit], before: int, now: int
) -> None:
    """New splits beside the old ones are new data; in their place they may be the old data.

    Raises StateBroken.
    """
    gone = len(known) - sum(split.mark in known for split in splits)
    if gone:
        raise StateBroken(
            f"the source has other splits than before: {gone} are gone, others are new, and there "
            f"were {before} tasks and are {now} now; set finds_more = True on the source if the "
            f"new ones are new data, finds_more = False if splits() cuts the same data anew"
        )


def _progress(state: _State, by_mark: dict[bytes, IdentifiedSplit]) -> list[SplitProgress]:
    found = []
    for row in state.rows:
        split = by_mark.get(row.mark)
        if split is None:
            if not row.data:
                raise StateBroken(
                    "a split of the source is not there any more, and was too large to be kept in "
                    "the checkpoint; let splits() return the same splits as before"
                )
            split = IdentifiedSplit(unpickled(row.data, "a split"), row.mark, row.data)
        position = unpickled(row.position, "a position") if row.position else None
        found.append(SplitProgress(split, position, row.watermark_ms))
    return found


def saved_splits(data: bytes) -> list[tuple[bytes, bytes, int]]:
    """Splits and positions as they are pickled (empty: there is none), and watermarks (ms).

    Raises StateBroken.
    """
    return [(row.data, row.position, row.watermark_ms) for row in _read(data).rows]


def _read(data: bytes) -> _State:
    try:
        return msgspec.msgpack.decode(data, type=_State)
    except Exception as error:
        raise StateBroken(f"the positions of a source cannot be read: {error}") from error


def _pickled(split: object) -> tuple[bytes, bool]:
    """Its bytes, and whether they were written without a memo."""
    target = io.BytesIO()
    pickler = pickle.Pickler(target, 5)
    pickler.fast = True  # the same bytes whether equal parts are the same object or not
    try:
        pickler.dump(split)
        return target.getvalue(), True
    except (RecursionError, ValueError):  # it holds itself
        return pickle.dumps(split, 5), False
    except Exception as error:
        raise StateBroken(
            f"the split {split!r} of the source cannot be pickled, for a checkpoint or for the "
            f"task that reads it ({type(error).__name__}: {error}); splits must be picklable"
        ) from error


def pickled_position(position: Position, whose: str) -> bytes:
    """The position of a reader or an enumerator; raises StateBroken if it cannot be pickled."""
    try:
        return pickle.dumps(position, 5)
    except Exception as error:
        raise StateBroken(
            f"the position {position!r} of {whose} cannot be written to a checkpoint "
            f"({type(error).__name__}: {error}); positions must be picklable"
        ) from error


def unpickled(data: bytes, what: str) -> object:
    """``what`` of a source, out of a checkpoint or a message; raises StateBroken."""
    try:
        return loads(data)
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"{what} of the source cannot be read ({type(error).__name__}: {error}); its class "
            f"must still be there under its old name"
        ) from error


class AssignedSplits:
    """The splits that the driver has assigned to one task; used on the task's thread."""

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

    A savepoint covers nothing unless the job ends with it: a later failure goes back to before it.
    Until they are covered they stay in the task's state, with their ends as positions: a run that
    is restored finishes them again, for the one before may have had no time to tell of them.
    """

    def __init__(self, source: Source) -> None:
        self._notify = _listener(source)
        self._ended: list[SplitProgress] = []
        self._held: dict[int, list[SplitProgress]] = {}
        """By the first checkpoint after the end."""

    @property
    def uncovered(self) -> list[SplitProgress]:
        return [*(split for held in self._held.values() for split in held), *self._ended]

    def add(self, split: object, end: Callable[[], SplitProgress], checkpoints: bool) -> None:
        """A split has ended, there; in a job with checkpoints or in one without."""
        if self._notify is None:
            return
        if checkpoints:
            self._ended.append(end())
        else:
            self._notify([split])

    def snapshot(self, moment: SnapshotMoment) -> None:
        """A checkpoint is taken: it holds that these have ended."""
        if self._ended and (not moment.is_savepoint or moment.stop.ends):
            self._held[moment.checkpoint] = self._ended
            self._ended = []

    def completed(self, checkpoint: int) -> None:
        """It is stored, and so are all before it."""
        covered = [taken for taken in self._held if taken <= checkpoint]
        splits = [ended.split.split for taken in covered for ended in self._held.pop(taken)]
        if splits and self._notify is not None:
            self._notify(splits)


def _listener(source: Source) -> Callable[[Sequence[object]], None] | None:
    """What learns of splits that nobody reads again; None: the source does not want to know."""
    is_given = type(source).splits_finished is not Source.splits_finished
    return source.splits_finished if is_given else None
