"""Where records of a program end that runs here: lists, which every attempt of the job shares.

Law: in a run with faults a record counts once its checkpoint is complete, or at the end of the job,
and once only, however often it is committed; otherwise it counts when it is written.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

from headgate.api.types.types import TypeInformation
from headgate.base.elements import Record
from headgate.base.values import own
from headgate.connectors.formats.record_text import printed_text
from headgate.connectors.print_sink import format_prefix
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink
from headgate.testing.outside import ByReference

Batch: TypeAlias = tuple[int, int, list[Record]]
"""The number of the writer, its own among those of the writer, and the records."""


class StreamOutput(ByReference):
    """What has come out of a stream."""

    def __init__(self, name: str, staged: bool = False) -> None:
        """``staged``: records wait for their checkpoint, or the end, as a run may be repeated."""
        self.name = name
        self.staged = staged
        self.records: list[Record] = []
        self._writers = count(1)
        self._committed: set[tuple[int, int]] = set()

    def next_writer(self) -> int:
        """A number that no other writer has."""
        return next(self._writers)

    def take(self, records: Sequence[Record]) -> None:
        """These count."""
        self.records += records

    def commit(self, batch: Batch) -> None:
        """These count, unless they do already."""
        writer, number, records = batch
        if (writer, number) not in self._committed:
            self._committed.add((writer, number))
            self.take(records)


class PrintedOutput(StreamOutput):
    """What was printed: the lines, with the number of the task, and the records."""

    def __init__(self, name: str, staged: bool, echo: Callable[[str], None]) -> None:
        super().__init__(name, staged)
        self.lines: list[str] = []
        self._echo_line = echo

    def take(self, records: Sequence[Record]) -> None:
        """Pairs of line and record."""
        for line, record in records:
            self.lines.append(line)
            self.records.append(record)
            self._echo_line(line)


class OutputSink(TwoPhaseCommittingSink):
    """Ends in an output."""

    def __init__(self, output: StreamOutput) -> None:
        self.output = output

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        return StreamOutputWriter(self.output)

    def create_committer(self, context: ConnectorContext) -> Committer:
        return StreamOutputCommitter(self.output)


class PrintedSink(OutputSink):
    """The lines that ``print`` would print."""

    def __init__(self, output: PrintedOutput, identifier: str | None) -> None:
        super().__init__(output)
        self.identifier = identifier
        self.type_info: TypeInformation | None = None

    def for_type(self, type_info: TypeInformation | None) -> "PrintedSink":
        """The same for records that a program has declared to be of this type."""
        self.type_info = type_info
        return self

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        task = context.task
        prefix = format_prefix(self.identifier, task.subtask, task.parallelism)
        text = printed_text(self.type_info)
        return StreamOutputWriter(self.output, lambda record: (prefix + text(record), own(record)))


class StreamOutputWriter(CommittingSinkWriter):
    """Of one task."""

    def __init__(
        self, output: StreamOutput, made: Callable[[Record], Record] | None = None
    ) -> None:
        """``made``: what becomes of a record."""
        self._output = output
        self._staged = output.staged
        self._made = made or own  # whoever has sent it may still change it
        self._writer = output.next_writer()
        self._number = 0
        self._records: list[Record] = []

    def write(self, records: list[Record]) -> None:
        taken = [self._made(record) for record in records]
        if self._staged:
            self._records += taken
        else:
            self._output.take(taken)

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Batch]:
        if not self._records:
            return ()
        self._number += 1
        records, self._records = self._records, []
        return [(self._writer, self._number, records)]


class StreamOutputCommitter(Committer):
    """Of one task."""

    def __init__(self, output: StreamOutput) -> None:
        self._output = output

    def commit(self, committables: Sequence[Any]) -> None:
        for batch in committables:
            self._output.commit(batch)
