"""The source protocols: what a connector implements and a source task reads.

A source is cut into splits (files, ranges, partitions of a topic) when the job starts; each split
is read by one task through a reader of its own. Law: ``poll`` never blocks, and the position that a
reader tells after a poll is where a new reader goes on without loss and without repetition.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext

Position: TypeAlias = object
"""Where a reader stands in its split; picklable; None: at the beginning."""


class SplitReader(Protocol):
    """Reads one split; lives on the thread of its task.

    A reader may also have ``position_at(moment)``, asked instead of ``position`` at a checkpoint,
    and ``checkpoint_completed(checkpoint)``.
    """

    def poll(self, limit: int) -> "Sequence[Record] | Bundle | Watermark | StreamStatus | None":
        """Up to ``limit`` records that are there now; None: the split has ended.

        An empty answer means: nothing now. A Bundle brings timestamps with the records. A source
        that knows event time itself may say so between them: a Watermark, or a StreamStatus.
        """

    def wait_ms(self) -> float:
        """After an empty poll: when to ask again."""

    def position(self) -> Position:
        """Behind the last record that ``poll`` has returned."""

    def close(self) -> None:
        """Give back everything; always called."""


class Source(Protocol):
    """Describes where records come from; travels to the tasks, so it holds nothing open.

    It may also say ``rewinds`` and ``finds_more`` (see ``api.source``), and have
    ``passed_over(split)``: a split of this run that an earlier one has read to its end.
    """

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself."""

    def splits(self, parallelism: int) -> Sequence[object]:
        """Called once, in the driver, when the job starts; each split goes to one task."""

    def open(self, split: object, position: Position, context: OperatorContext) -> SplitReader:
        """Called in the task that reads the split."""


def rewinds(source: object) -> bool:
    """Whether its readers go on from a position, as exactly once needs it."""
    return bool(getattr(source, "rewinds", True))


def why_not_rewound(source: object, name: str) -> str | None:
    """What to say if checkpoints are wanted of a source that cannot be read again; None: it can."""
    if rewinds(source):
        return None
    advice = getattr(source, "rewind_advice", "") or "take no checkpoints of this job"
    return f"source {name!r} cannot be read again from where a checkpoint was taken: {advice}"
