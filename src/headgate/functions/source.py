"""The source contract, for connectors and sources of your own.

A source is cut into splits (files, ranges, partitions of a topic), when the job starts or, with an
enumerator, while it runs; one task reads each split through a reader. Law: a source travels to the
tasks and holds nothing open; ``poll`` never blocks; a new reader goes on from an old one's position
without loss or repetition, and a new enumerator finds only what the old one has not returned. A
reader that has nothing is polled again when its descriptor is readable, when it was woken through
its context, or by the clock, whichever comes first.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

from headgate.base.elements import Bundle, StreamStatus, Watermark
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.type_variables import OUT

Position: TypeAlias = object
"""Where a reader is in its split; picklable; None: at the beginning."""


@dataclass(frozen=True, slots=True)
class SplitLag:
    """What a reader has not read yet; None: it does not know."""

    records: int | None = None
    bytes: int | None = None
    age_ms: float | None = None
    """How long ago the next record was written."""


class SplitReader(ABC, Generic[OUT]):
    """Reads one split. ``poll`` never blocks."""

    gives_away = False
    """True: what ``poll`` returns is not kept here, so it need not be copied."""

    @abstractmethod
    def poll(self, limit: int) -> Sequence[OUT] | Bundle | Watermark | StreamStatus | None:
        """Up to ``limit`` records that are there; empty: nothing now; None: the split has ended.

        A Bundle brings timestamps with the records. Between records a Watermark says how far event
        time is, a StreamStatus whether it is idle; both count if the source has no strategy.
        """

    def wait_ms(self) -> float:
        """After an empty poll: after how many milliseconds to poll again at the latest.

        ``math.inf``: not by the clock, but when the descriptor of ``fileno`` is readable or
        ``context.wake()`` was called; an idle reader then costs nothing.
        """
        return 10.0

    def fileno(self) -> int | None:
        """A descriptor that is readable when ``poll`` has something; None: there is none.

        Asked after an empty poll, and watched until it is readable or the source is polled for
        another reason: it may be another one each time. The reader owns it. If it is closed while
        nobody polls, by a thread of a library for instance, that must call ``context.wake()``. One
        that stays readable while polls find nothing is watched with pauses of 10 ms.
        """
        return None

    def position(self) -> Position:
        """The position after the last record that ``poll`` has returned; picklable.

        It goes into checkpoints, and ``open`` of the source gets it back: a new reader goes on from
        there without loss and without repetition.
        """
        return None

    def position_at(self, moment: SnapshotMoment) -> Position:
        """The position for a checkpoint; ``moment`` tells which one."""
        return self.position()

    def checkpoint_completed(self, checkpoint: int) -> None:
        """It is stored: nothing from before its position will be asked for again."""

    def lag(self) -> SplitLag | None:
        """How much is left in the split, for people who watch the job; None: not known.

        Asked about once a second, between two polls; it should return at once.
        """
        return None

    def close(self) -> None:
        """Give back everything; always called."""


class SplitEnumerator(ABC):
    """Finds the splits of a source while the job runs.

    It lives in the driver, on a thread of its own, so that it may block. If the first ``discover``
    raises, the job fails; a later one that raises, or one of a job that goes on from a checkpoint,
    is warned of and called again at the interval.
    """

    interval_ms: int | None = None
    """How long after a call of ``discover`` the next one comes; None: the first has found all."""

    @abstractmethod
    def discover(self) -> Sequence[object]:
        """Splits that no earlier call has returned, nor one before ``position``; picklable."""

    def position(self) -> Position:
        """Asked right after ``discover``; picklable.

        It goes into checkpoints with the splits that no task has yet, and a new enumerator that
        gets it back finds only what is new.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back everything; always called, on the same thread."""


class Source(ABC, Generic[OUT]):
    """Where records come from.

    ::

        class Lines(Source):
            def splits(self, parallelism):
                return glob.glob("logs/*.txt")

            def open(self, split, position, context):
                return LineReader(split, position or 0)

        env.from_source(Lines(), source_name="logs")
    """

    untimed = False
    """True: its readers never bring timestamps."""
    records_per_second: float | None = None
    """The most that all its tasks give together, to judge the job by; None: not known."""
    rewind_advice = ""
    """What to do about ``rewinds`` being False, in a few words."""
    finds_more: bool | None = None
    """Whether splits that a restored job did not have before are new data.

    True: they are read from their beginning, as new files are. False: ``splits`` only cuts the same
    data in another way, so the old splits are read to their ends. None: not said; a job that is
    restored with another parallelism and other splits is refused. What an enumerator finds is
    always new data.
    """

    @property
    def default_name(self) -> str:
        """What it reads, in a few words: the operator's name, unless it is given another."""
        return type(self).__name__

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself; a class attribute ``bounded = False`` says no."""
        return True

    @property
    def rewinds(self) -> bool:
        """Whether readers go on from a position; ``rewinds = False``: checkpoints are refused."""
        return True

    @property
    def splits_end(self) -> bool:
        """Whether a split ends by itself.

        A file does, also one of a folder that is followed; a partition of a topic does not. Splits
        that end are handed out by demand: a task gets the next one when it has (nearly) read its
        own. Others are handed out at once, evenly.
        """
        return self.bounded

    def splits(self, parallelism: int) -> Sequence[object]:
        """Called once, in the driver, when the job starts; each split goes to one task.

        Not called if there is an enumerator.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no splits; implement splits(), or create_enumerator()"
        )

    def create_enumerator(self, parallelism: int, position: Position) -> SplitEnumerator | None:
        """Called in the driver, at every start; it should return at once, and open nothing yet.

        ``position`` is None at the beginning. None (the default): ``splits`` finds all, once.
        """
        return None

    def splits_finished(self, splits: Sequence[object]) -> None:
        """Called in a task: these splits were read to their ends, and nobody reads them again.

        Only for splits that an enumerator has found. With checkpoints it is called when one that
        covers the ends is complete, for what stands for a split may be needed until then. A task
        that is restored may be given such a split once more, at its end, and is told again.
        """

    def former_split(self, split: object) -> object | None:
        """The split that held this one's records before the source had an enumerator.

        Asked if a job goes on from a checkpoint of a run that listed all splits at its start: what
        that run had listed is not read again. None (the default): the same split.
        """
        return None

    def passed_over(self, split: object) -> None:
        """Called in a task of a restored job: an earlier run has read this split to its end."""

    @abstractmethod
    def open(
        self, split: object, position: Position, context: ConnectorContext
    ) -> SplitReader[OUT]:
        """Called in the task that reads the split; ``position`` is None at the beginning."""


def why_not_rewound(source: object, name: str) -> str | None:
    """Why there can be no checkpoints of a source; None: its readers go on from a position."""
    if not isinstance(source, Source) or source.rewinds:
        return None
    advice = source.rewind_advice or "take no checkpoints of this job"
    return f"source {name!r} cannot be read again from where a checkpoint was taken: {advice}"


def sum_lags(lags: Sequence[SplitLag | None]) -> SplitLag | None:
    """The lags added up; the age is that of the oldest record. None: one of them is unknown.

    Readers may be the user's: what they return becomes numbers here, or raises.
    """
    known = [lag for lag in lags if lag is not None]
    if len(known) < len(lags):
        return None
    records = [lag.records for lag in known if lag.records is not None]
    sizes = [lag.bytes for lag in known if lag.bytes is not None]
    ages = [float(lag.age_ms) for lag in known if lag.age_ms is not None]
    return SplitLag(
        _total(records) if len(records) == len(known) else None,
        _total(sizes) if len(sizes) == len(known) else None,
        max(ages, default=None),
    )


def _total(counts: Sequence[int]) -> int:
    return min(sum(max(0, int(count)) for count in counts), 2**63 - 1)


def nothing_left(known: SplitLag) -> SplitLag:
    """All splits have ended."""
    return SplitLag(
        None if known.records is None else 0,
        None if known.bytes is None else 0,
        None if known.age_ms is None else 0.0,
    )
