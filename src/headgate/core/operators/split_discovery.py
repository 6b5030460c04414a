"""How the driver finds the splits of a source: by its enumerator, or in the list that it gave once.

Made when the job is planned, used at the start of every attempt. Law: of a list, a run that goes on
from a checkpoint finds what no run before has known; a list that cuts the same data in another way
is refused, as ``assign_splits`` does for splits that are dealt out at the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.errors import StateBroken, raise_user_error
from headgate.core.operators.source_splits import (
    IdentifiedSplit,
    SplitProgress,
    check_same_cut,
    identify_splits,
    marks_of,
    unpickled,
    write_splits,
)
from headgate.functions.source import Position, Source, SplitEnumerator

LISTED_BYTES: Final = 16 * 1024 * 1024
"""A list that is larger is not kept in the driver and in every checkpoint."""

HAD_ENUMERATOR: Final = (
    "it had an enumerator when the checkpoint was taken, and has none now, so that nobody knows "
    "which of its splits were read; let it have one, or give the operator another uid and read "
    "everything again"
)


@dataclass(frozen=True, slots=True)
class SplitDiscovery:
    """How the splits of one source of the job are found."""

    source: Source
    operator: str
    """Its name, for errors."""
    parallelism: int
    listed: tuple[IdentifiedSplit, ...] | None = None
    """What ``splits`` has returned; None: the source has an enumerator."""

    @property
    def by_demand(self) -> bool:
        """Whether tasks ask for splits one by one; else they get them at once, evenly."""
        return self.source.splits_end

    def create(self, position: bytes) -> SplitEnumerator:
        """The enumerator of an attempt; ``position`` is pickled, and empty at the beginning.

        Raises StateBroken, or UserFunctionFailed if the source does.
        """
        begun = unpickled(position, "the position of its enumerator") if position else None
        known = _listed_position(begun)
        if self.listed is not None:
            if begun is not None and known is None:
                raise StateBroken(HAD_ENUMERATOR)
            return ListedSplits(self.listed, self.parallelism, self.source.finds_more, begun)
        if known is not None:
            return NewSplits(self._create(None), known[1])
        if isinstance(begun, NewPosition):
            return NewSplits(self._create(begun.inner), begun.known)
        return self._create(begun)

    def _create(self, position: Position) -> SplitEnumerator:
        try:
            enumerator = self.source.create_enumerator(self.parallelism, position)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self.operator, "in create_enumerator()")
        if enumerator is None:
            raise StateBroken(
                f"create_enumerator() of {type(self.source).__name__} returned none, and returned "
                f"one when the job was planned; let it return one always, or never"
            )
        return enumerator


def find_splits(
    source: Source, operator: str, parallelism: int
) -> tuple[tuple[object, ...], SplitDiscovery | None]:
    """The splits that are dealt out when the job starts, or how the driver finds them later.

    Those of a source without an enumerator are handed out by demand if they end and there are more
    of them than tasks. Raises what the source raises, with the name of the operator.
    """
    doing = "in create_enumerator()"
    try:
        enumerator = source.create_enumerator(parallelism, None)
        if enumerator is not None:
            enumerator.close()
            return (), SplitDiscovery(source, operator, parallelism)
        doing = "in splits()"
        splits = tuple(source.splits(parallelism))
    except (Exception, SystemExit) as error:
        raise_user_error(error, operator, doing)
    listed = _listed(source, splits, parallelism)
    if listed is None:
        return splits, None
    return (), SplitDiscovery(source, operator, parallelism, listed)


def _listed(
    source: Source, splits: tuple[object, ...], parallelism: int
) -> tuple[IdentifiedSplit, ...] | None:
    """The splits, if they are to be handed out by demand; None: they are dealt out."""
    ends = source.splits_end and source.bounded
    if not ends or source.finds_more is False or len(splits) <= parallelism:
        return None
    try:
        listed = tuple(identify_splits(splits))
    except StateBroken:  # they travel with the code, in which more can be pickled
        return None
    is_small = all(split.data for split in listed)
    return listed if is_small and sum(len(s.data) for s in listed) <= LISTED_BYTES else None


class ListedSplits(SplitEnumerator):
    """Finds the splits of a list, all at once. Its position: how many tasks, and all marks."""

    def __init__(
        self,
        listed: Sequence[IdentifiedSplit],
        parallelism: int,
        finds_more: bool | None,
        position: Position,
    ) -> None:
        self._listed = listed
        self._parallelism = parallelism
        self._finds_more = finds_more
        self._before, marks = _listed_position(position) or (parallelism, b"")
        self._known = dict.fromkeys(marks_of(marks))

    def discover(self) -> Sequence[object]:
        new = [split for split in self._listed if split.mark not in self._known]
        if self._known and new and self._finds_more is None and self._before != self._parallelism:
            check_same_cut(self._known, self._listed, self._before, self._parallelism)
        self._known.update((split.mark, None) for split in new)
        return new

    def position(self) -> Position:
        return _LISTED, self._parallelism, b"".join(self._known)


@dataclass(frozen=True, slots=True)
class NewPosition:
    """The position of an enumerator whose source had a list before, with the marks of that."""

    inner: Position
    known: bytes


class NewSplits(SplitEnumerator):
    """Leaves out what was in a list: those splits were read, or are restored."""

    def __init__(self, inner: SplitEnumerator, known: bytes) -> None:
        self._inner = inner
        self._known = known

    @property
    def interval_ms(self) -> int | None:  # type: ignore[override] # as the inner one has it now
        return self._inner.interval_ms

    def discover(self) -> Sequence[object]:
        known = dict.fromkeys(marks_of(self._known))
        found = identify_splits(self._inner.discover(), kept_bytes=inf)
        return [split for split in found if split.mark not in known]

    def position(self) -> Position:
        return NewPosition(self._inner.position(), self._known)

    def close(self) -> None:
        self._inner.close()


_LISTED: Final = "listed"


def _listed_position(position: Position) -> tuple[int, bytes] | None:
    """How many tasks there were, and the marks of all splits that any run has known."""
    if isinstance(position, tuple) and len(position) == 3 and position[0] == _LISTED:
        return position[1], position[2]
    return None


def dealt_state(state: SourceState) -> bytes:
    """What the driver held of a source, beside what tasks did, for tasks that get all at once.

    Raises StateBroken if it had an enumerator.
    """
    listed: tuple[int, bytes] | None = (0, b"")
    if state.position:
        listed = _listed_position(unpickled(state.position, "the position of its enumerator"))
    if listed is None:
        raise StateBroken(HAD_ENUMERATOR)
    rows = [SplitProgress(IdentifiedSplit(None, split.mark, split.data)) for split in state.splits]
    return write_splits(rows, listed[1], of_driver=True)


def pickled_splits(found: Sequence[object]) -> list[SplitData]:
    """Raises StateBroken if one cannot be pickled."""
    listed = [split for split in found if isinstance(split, IdentifiedSplit)]
    identified = listed or identify_splits(found, kept_bytes=inf)
    return [SplitData(split.mark, split.data) for split in identified]
