"""Base classes for sources and sinks of your own; connectors are built on the same ones.

A source is cut into splits, and each split is read by one task through a reader. A sink makes a
writer in each of its tasks; one that commits in two phases makes a committer, too. Law: all
descriptions travel to the tasks, so that they hold no open file or socket; what is made of them in
the task may.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.source import Position
from headgate.functions.context import SnapshotMoment


class DeliveryGuarantee(Enum):
    """How often a sink writes a record if a job fails and is restarted."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class SplitReader(ABC):
    """Reads one split. ``poll`` never blocks."""

    gives_away = False
    """True: what ``poll`` returns is not kept here, so it need not be copied."""

    @abstractmethod
    def poll(self, limit: int) -> Sequence[Record] | Bundle | Watermark | StreamStatus | None:
        """Up to ``limit`` records that are there; empty: nothing now; None: the split has ended.

        A Bundle brings timestamps with the records. Between records a Watermark says how far event
        time is, a StreamStatus whether it is idle; both count if the source has no strategy.
        """

    def wait_ms(self) -> float:
        """After an empty poll: when to ask again."""
        return 10.0

    def position(self) -> Position:
        """Behind the last record that ``poll`` has returned; picklable.

        It goes into checkpoints, and ``open`` of the source gets it back: a new reader goes on from
        there without loss and without repetition.
        """
        return None

    def position_at(self, moment: SnapshotMoment) -> Position:
        """The same, asked at a checkpoint; ``moment`` tells which one."""
        return self.position()

    def checkpoint_completed(self, checkpoint: int) -> None:  # noqa: B027 - few have whom to tell
        """It is stored: nothing from before its position will be asked for again."""

    def close(self) -> None:  # noqa: B027 - most readers have nothing to give back
        """Give back everything; always called."""


class Source(ABC):
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
    rewind_advice = ""
    """What to do about ``rewinds`` being False, in a few words."""
    finds_more: bool | None = None
    """Whether splits that a restored job did not have before are new data.

    True: they are read from their beginning, as new files are. False: ``splits`` only cuts the same
    data in another way, so the old splits are read to their ends. None: not said; a job that is
    restored with another parallelism and other splits is refused.
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

    @abstractmethod
    def splits(self, parallelism: int) -> Sequence[object]:
        """Called once, in the driver, when the job starts; each split goes to one task."""

    @abstractmethod
    def open(self, split: object, position: Position, context: OperatorContext) -> SplitReader:
        """Called in the task that reads the split; ``position`` is None at the beginning."""


class SinkWriter(ABC):
    """Takes the records of one task of a sink."""

    @abstractmethod
    def write(self, records: list[Record]) -> None:
        """The next records, in order; they must not be changed."""

    def flush(self) -> None:  # noqa: B027 - a writer that keeps nothing back has nothing to do
        """Let go of everything that was kept back: at checkpoints, and at the end of the input."""

    def close(self) -> None:  # noqa: B027
        """Give back everything; always called."""


class Sink(ABC):
    """Where records go to.

    ::

        class Lines(Sink):
            def create_writer(self, context):
                return LineWriter(f"part-{context.task.subtask}.txt")

        stream.sink_to(Lines())
    """

    @property
    def default_name(self) -> str:
        """What it is and where it writes: the operator's name, unless ``name()`` says another."""
        return type(self).__name__

    @abstractmethod
    def create_writer(self, context: OperatorContext) -> SinkWriter:
        """Called in each task of the sink."""


class CommittingSinkWriter(SinkWriter):
    """Writes so that nobody sees it, until its committables are committed."""

    @abstractmethod
    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        """Committables for all that was written since the last call: small, picklable values.

        Called at each checkpoint, after ``flush``, and at the end of the input, with None. They
        are kept in the checkpoint. What they stand for must outlive the task and its process.
        """

    def unfinished(self) -> Sequence[Record]:
        """Committables that count only if a new run goes on from this checkpoint.

        For writers that write on beyond it, for instance to the same file. Called after
        ``prepare_commit``; most have none.
        """
        return ()


class Committer(ABC):
    """Makes visible what was prepared.

    It is called after the checkpoint that holds the committables is complete. If it fails the job
    is restarted, and the new run calls ``commit_again``.
    """

    @abstractmethod
    def commit(self, committables: Sequence[Record]) -> None:
        """When it returns, all of them must be visible for good."""

    def commit_again(self, committables: Sequence[Record]) -> None:
        """The same with those of an earlier run; some or all may be visible already."""
        self.commit(committables)

    def close(self) -> None:  # noqa: B027
        """Give back everything; always called."""


class TwoPhaseCommittingSink(Sink):
    """A sink whose records become visible with a checkpoint, each exactly once.

    Without checkpoints everything is committed when the job ends. Committing must be idempotent:
    what is visible already stays as it is.

    ::

        class Staged(TwoPhaseCommittingSink):
            def create_writer(self, context):
                return StagedWriter()      # prepare_commit() closes a file, returns its name

            def create_committer(self, context):
                return Renamer()           # commit(names) gives the files their final names

        stream.sink_to(Staged())
    """

    @abstractmethod
    def create_writer(self, context: OperatorContext) -> CommittingSinkWriter:
        """Called in each task of the sink, after what an earlier run had prepared is committed."""

    @abstractmethod
    def create_committer(self, context: OperatorContext) -> Committer:
        """Called in each task of the sink, first."""
