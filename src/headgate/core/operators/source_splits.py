"""The splits of a source at a checkpoint, and who reads which of them in the next run.

Each task writes its splits that have not ended, with their positions, and the marks of all splits
that any run has known. Law: a split that has ended is not read again, one that has not goes on in
one task, and one that nobody knew is read from its beginning, unless the source says that its
splits only cut the same data in another way.
"""

import hashlib
import io
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.errors import StateBroken
from headgate.base.moved import first_bytes, loads
from headgate.functions.source import Position

MARK_BYTES: Final = 12
KEPT_BYTES: Final = 64 * 1024
"""A split that is larger is not written: the next run has it, and finds it by its mark."""


@dataclass(frozen=True, slots=True)
class IdentifiedSplit:
    """A split with what it is known by: equal splits of one run have different marks."""

    split: object
    mark: bytes
    data: bytes
    """The split itself, pickled; empty: it is too large."""


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """Where the reader of a split stands, and how far its event time was told."""

    marked: IdentifiedSplit
    position: Position = None
    watermark_ms: int = MIN_WATERMARK_MS


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """What one task has to do."""

    standings: list[SplitProgress]
    known: bytes
    """The marks of all splits that this run or an earlier one has known, side by side."""
    passed_over: list[object]
    """Splits of this run that would be the task's and have ended already."""


def identify_splits(splits: Iterable[object]) -> list[IdentifiedSplit]:
    """Of one run, in order; raises StateBroken if one cannot be pickled."""
    times: Counter[bytes] = Counter()
    found = []
    for split in splits:
        data, is_fast = _pickled(split)
        number = times[data]
        times[data] += 1
        first = first_bytes(data, split, is_fast)
        mark = hashlib.blake2b(b"%d:" % number + first, digest_size=MARK_BYTES).digest()
        found.append(IdentifiedSplit(split, mark, data if len(data) <= KEPT_BYTES else b""))
    return found


def write_splits(standings: Iterable[SplitProgress], known: bytes) -> bytes:
    """What a task leaves; raises StateBroken."""
    rows = [
        _Row(one.marked.mark, one.marked.data, _position(one.position), one.watermark_ms)
        for one in standings
    ]
    return msgspec.msgpack.encode(_State(known, rows))


def assign_splits(
    left: Sequence[bytes | None],
    marked: Sequence[IdentifiedSplit],
    subtask: int,
    parallelism: int,
    finds_more: bool | None,
) -> SplitAssignment:
    """The splits of one task, of what all old tasks have left and of those of this run.

    With the old number of tasks each gets its own again: one that had finished is not there to
    read. ``finds_more``: see ``Source``. Raises StateBroken.
    """
    tasks = [None if one is None else _read(one) for one in left]
    there = [state for state in tasks if state is not None]
    if not there:
        mine = [SplitProgress(one) for one in marked[subtask::parallelism]]
        return SplitAssignment(mine, _joined(one.mark for one in marked), [])
    known = dict.fromkeys(mark for state in there for mark in _parted(state.known))
    new = [] if finds_more is False else [one for one in marked if one.mark not in known]
    if new and finds_more is None and len(tasks) != parallelism:
        _check_same_cut(known, marked, len(tasks), parallelism)
    by_mark = {one.mark: one for one in marked}
    begun = [[] if state is None else _standings(state, by_mark) for state in tasks]
    if len(tasks) == parallelism:
        alive = [old for old, state in enumerate(tasks) if state is not None]
        mine = begun[subtask]
        if subtask in alive:
            mine = mine + [SplitProgress(one) for one in new[alive.index(subtask) :: len(alive)]]
    else:
        together = [one for some in begun for one in some] + [SplitProgress(one) for one in new]
        mine = together[subtask::parallelism]
    read = {one.marked.mark for some in begun for one in some} | {one.mark for one in new}
    over = [one.split for one in marked[subtask::parallelism] if one.mark not in read]
    return SplitAssignment(mine, _joined({**known, **dict.fromkeys(by_mark)}), over)


class _Row(msgspec.Struct, frozen=True, array_like=True):
    mark: bytes
    data: bytes
    position: bytes
    watermark_ms: int


class _State(msgspec.Struct, frozen=True, array_like=True):
    known: bytes
    rows: list[_Row]


def _check_same_cut(
    known: dict[bytes, None], marked: Sequence[IdentifiedSplit], before: int, now: int
) -> None:
    """New splits beside the old ones are new data; in their place they may be the old data."""
    gone = len(known) - sum(one.mark in known for one in marked)
    if gone:
        raise StateBroken(
            f"the source has other splits than before: {gone} are gone, others are new, and there "
            f"were {before} tasks and are {now} now; set finds_more = True on the source if the "
            f"new ones are new data, finds_more = False if splits() cuts the same data anew"
        )


def _standings(state: _State, by_mark: dict[bytes, IdentifiedSplit]) -> list[SplitProgress]:
    found = []
    for row in state.rows:
        marked = by_mark.get(row.mark)
        if marked is None:
            if not row.data:
                raise StateBroken(
                    "a split of the source is not there any more, and was too large to be kept in "
                    "the checkpoint; let splits() return the same splits as before"
                )
            marked = IdentifiedSplit(_unpickled(row.data, "a split"), row.mark, row.data)
        position = _unpickled(row.position, "a position") if row.position else None
        found.append(SplitProgress(marked, position, row.watermark_ms))
    return found


def _read(data: bytes) -> _State:
    try:
        return msgspec.msgpack.decode(data, type=_State)
    except Exception as error:
        raise StateBroken(f"the positions of a source cannot be read: {error}") from error


def _joined(marks: Iterable[bytes]) -> bytes:
    return b"".join(marks)


def _parted(marks: bytes) -> list[bytes]:
    return [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]


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
            f"the split {split!r} of the source cannot be written to a checkpoint "
            f"({type(error).__name__}: {error}); splits must be picklable"
        ) from error


def _position(position: Position) -> bytes:
    if position is None:
        return b""
    try:
        return pickle.dumps(position, 5)
    except Exception as error:
        raise StateBroken(
            f"the position {position!r} of a reader cannot be written to a checkpoint "
            f"({type(error).__name__}: {error}); positions must be picklable"
        ) from error


def _unpickled(data: bytes, what: str) -> object:
    try:
        return loads(data)
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"{what} of the source cannot be read ({type(error).__name__}: {error}); its class "
            f"must still be there under its old name"
        ) from error
