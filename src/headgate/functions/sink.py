"""The sink contract, for connectors and sinks of your own.

A sink makes a writer in each of its tasks; one that commits in two phases makes a committer, too.
Law: a sink travels to the tasks and holds nothing open; what it makes there may.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Generic

from headgate.base.elements import Record
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.type_variables import IN


class DeliveryGuarantee(Enum):
    """How often a sink writes a record if a job fails and is restarted."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class SinkWriter(ABC, Generic[IN]):
    """Takes the records of one task of a sink."""

    @abstractmethod
    def write(self, records: list[IN]) -> None:
        """The next records, in order; they must not be changed."""

    def flush(self) -> None:
        """Let go of everything that was kept back: at checkpoints, and at the end of the input."""

    def close(self) -> None:
        """Give back everything; always called."""


class Sink(ABC, Generic[IN]):
    """Where records go to.

    ::

        class Lines(Sink):
            def create_writer(self, context):
                return LineWriter(f"part-{context.task.subtask}.txt")

        stream.sink_to(Lines())
    """

    takes_batches = False
    """Whether its writers take the Arrow batches of a stream of columns instead of its rows."""

    @property
    def default_name(self) -> str:
        """What it is and where it writes: the operator's name, unless ``name()`` says another."""
        return type(self).__name__

    @abstractmethod
    def create_writer(self, context: ConnectorContext) -> SinkWriter[IN]:
        """Called in each task of the sink."""


class CommittingSinkWriter(SinkWriter[IN]):
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
        """Commit those of an earlier run, of which some or all may be visible already."""
        self.commit(committables)

    def close(self) -> None:  # noqa: B027
        """Give back everything; always called."""


class TwoPhaseCommittingSink(Sink[IN]):
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
    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter[IN]:
        """Called in each task of the sink, after what an earlier run had prepared is committed."""

    @abstractmethod
    def create_committer(self, context: ConnectorContext) -> Committer:
        """Called in each task of the sink, first."""
