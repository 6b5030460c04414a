"""Base classes for sources and sinks of your own; connectors are built on the same ones.

A source is cut into splits, and each split is read by one task through a reader. A sink makes a
writer in each of its tasks. Law: both descriptions travel to the tasks, so that they hold no open
file or socket; readers and writers are made in the task and may.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.source import Position


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
        """Behind the last record that ``poll`` has returned; picklable."""
        return None

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

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself; a class attribute ``bounded = False`` says no."""
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
        """Let go of everything that was kept back: at the end of the input."""

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

    @abstractmethod
    def create_writer(self, context: OperatorContext) -> SinkWriter:
        """Called in each task of the sink."""
