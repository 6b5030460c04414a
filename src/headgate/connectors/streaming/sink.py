"""A named output of a job, which a streaming query of Spark reads.

Records wait in parts that no entry of the log names until the checkpoint that covers them is
complete. Law: a commit is one entry, named by the writer and the number of its lot, so that
anybody may repeat it; each record is in one entry. A writer waits while too much is unread.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headgate.base.elements import Record
from headgate.base.errors import PartLost, StreamUnfit
from headgate.connectors.arrow.staged_rows import StagedLot, StagedRowsWriter
from headgate.connectors.paths import AnyPath
from headgate.connectors.streaming.stream_end import MOST_BYTES, StreamEnd, stream_end
from headgate.connectors.streaming.stream_log import (
    LogEntry,
    LogPart,
    StreamLog,
    part_prefix,
    run_of,
    writer_name,
)
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, TwoPhaseCommittingSink

log = logging.getLogger(__name__)

MOST_CHECKPOINTS: Final = 100
LOOK_S: Final = 0.1
"""Between two looks at what is unread, while a writer waits."""
WARN_S: Final = 30.0
"""A writer that has waited for so long says so, once."""


class StreamingOutput(TwoPhaseCommittingSink):
    """Records as rows that a streaming query of Spark reads.

    ::

        totals.sink_to(StreamingOutput("totals", "id long, total double"))

        df = spark.readStream.format("headgate").option("job", "shop").option("output", "totals")

    Rows become visible with the checkpoint that covers them. One query reads an output at a time;
    a new query takes over from an older one. Writers begin no new rows while those of more than
    ``most_checkpoints`` checkpoints, or more than ``most_bytes``, are unread: of all tasks
    together. For ``path`` see ``StreamingInput``.
    """

    def __init__(
        self,
        name: str,
        schema: object,
        *,
        path: "AnyPath | None" = None,
        most_bytes: int = MOST_BYTES,
        most_checkpoints: int = MOST_CHECKPOINTS,
    ) -> None:
        limits = {"most_bytes": most_bytes, "most_checkpoints": most_checkpoints}
        self.stream = stream_end("output", name, schema, path, limits)

    @property
    def default_name(self) -> str:
        return f"Spark output {self.stream.name}"

    def create_writer(self, context: ConnectorContext) -> "OutputWriter":
        assert isinstance(self.stream.schema, pa.Schema)
        return OutputWriter(self.stream, context)

    def create_committer(self, context: ConnectorContext) -> "OutputCommitter":
        return OutputCommitter(self.stream, context)


class OutputStage:
    """Writes parts of one task, which are named by the lot that will name them."""

    def __init__(self, stream: StreamEnd, writer: str) -> None:
        self._log = stream.log()
        self.table = log_id(self._log, stream)
        self.writer = writer
        self.number = 1
        """The number of the lot that is gathered."""

    def write(self, rows: pa.Table) -> Sequence[LogPart]:
        prefix = part_prefix(self.writer, self.number)
        return self._log.write_parts(prefix, rows.schema, rows.to_batches())

    def discard(self, files: Sequence[LogPart]) -> None:
        self._log.drop_parts(files)


class OutputWriter(StagedRowsWriter):
    """Gathers records, if there is room in the log."""

    def __init__(self, stream: StreamEnd, context: ConnectorContext) -> None:
        run = stream.start, context.task.attempt
        self._lots = OutputStage(stream, writer_name(run, context.task.subtask))
        super().__init__(stream.schema, self._lots, context, name=self._lots.writer)
        self._room = OutputRoom(stream, context)

    def write(self, records: list[Record]) -> None:
        self._room.wait()
        super().write(records)

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[StagedLot]:
        self._room.has_looked = False
        lots = super().prepare_commit(moment)
        self._lots.number += len(lots)
        return lots


class OutputRoom:
    """Keeps a writer from running ahead of the query; it looks once for each lot.

    What the query has begun to read counts as read: Spark commits a micro-batch with the next one,
    for which it waits until there are more rows.
    """

    def __init__(self, stream: StreamEnd, context: ConnectorContext) -> None:
        self.has_looked = False
        self._sleep = context.sleep
        self._stream = stream
        self._log = stream.log()
        self._unread: dict[tuple[str, int], LogEntry] = {}

    def wait(self) -> None:
        """Until the query has read enough; raises TaskCancelled."""
        since: float | None = time.monotonic()
        while not self.has_looked:
            self.has_looked = self._is_there()
            if self.has_looked:
                return
            if since is not None and time.monotonic() - since >= WARN_S:
                since = None
                self._warn()
            self._sleep(LOOK_S)

    def _warn(self) -> None:
        log.warning(
            "%s holds the job back, and its checkpoints: %d bytes of %d checkpoints are unread in "
            "%s; start the query that reads it, or give it a larger most_bytes and "
            "most_checkpoints",
            self._stream.shown,
            self._bytes(),
            self._checkpoints(),
            self._log.folder.shown(),
        )

    def _is_there(self) -> bool:
        before, self._unread = self._unread, {}
        taken = self._log.taken()
        for origin, numbers in self._log.entries().items():
            for number in numbers:
                if number <= taken.get(origin, 0):
                    continue
                entry = before.get((origin, number)) or self._log.read_entry(origin, number)
                if entry is not None:
                    self._unread[origin, number] = entry
        stream = self._stream
        return self._bytes() <= stream.most_bytes and self._checkpoints() <= stream.most_batches

    def _bytes(self) -> int:
        return sum(entry.bytes for entry in self._unread.values())

    def _checkpoints(self) -> int:
        """However many tasks have written; what ends an input counts as one."""
        found = {(run_of(entry.origin), entry.checkpoint) for entry in self._unread.values()}
        return len(found)


class OutputCommitter(Committer):
    """Appends an entry for each lot."""

    def __init__(self, stream: StreamEnd, context: ConnectorContext) -> None:
        self._stream = stream
        self._run = stream.start, context.task.attempt
        self._log = stream.log()
        self._has_tidied = False
        log_id(self._log, stream)  # what is wrong with it is said at the start
        self._restored = 0 if context.restored is None else int(context.restored.checkpoint)
        if self._restored:
            stream.check_place(self._log, self._restored)

    def commit(self, committables: Sequence[Any]) -> None:
        own = log_id(self._log, self._stream)
        self._check_owner()
        for lot in committables:
            assert isinstance(lot, StagedLot), lot
            if lot.table != own:
                raise StreamUnfit(
                    f"{self._stream.shown}: the checkpoint belongs to another log than the one in "
                    f"{self._log.folder.shown()}; set execution.checkpointing.dir as it was when "
                    f"the checkpoint was taken, or give the output the same path=..."
                )
            entry = LogEntry(lot.writer, lot.number, lot.files, lot.checkpoint)
            if not self._log.has(entry):
                self._check_parts(entry)
                self._log.append(entry)
            if lot.checkpoint and run_of(lot.writer) == self._run:
                self._drop_dead_parts()

    def commit_again(self, committables: Sequence[Any]) -> None:
        shown = self._log.committed()
        for lot in committables:
            assert isinstance(lot, StagedLot), lot
            if (run_of(lot.writer) or shown.run) < shown.run:
                raise StreamUnfit(self._stream.gone_back(self._log, self._restored, shown))
        self.commit(committables)

    def _drop_dead_parts(self) -> None:
        """Remove what killed tasks left: this run has a checkpoint, so no earlier one goes on."""
        if not self._has_tidied:
            self._log.drop_dead_parts(self._run)
            self._has_tidied = True

    def _check_owner(self) -> None:
        owner = self._log.owner()
        if owner is not None and owner.token != self._stream.owner:
            raise StreamUnfit(self._stream.taken_over(self._log, owner))

    def _check_parts(self, entry: LogEntry) -> None:
        there = self._log.parts()
        for part in entry.parts:
            if part.name not in there:
                raise PartLost(
                    self._log.folder.shown(f"parts/{part.name}"),
                    "is not there, and its records wait for their commit: somebody has removed it; "
                    "go on from an older checkpoint",
                )


def log_id(log: StreamLog, stream: StreamEnd) -> str:
    """Raises StreamUnfit if there is no log."""
    info = log.info()
    if info is None:
        raise StreamUnfit(f"{stream.shown}: its log {log.folder.shown()} is gone")
    return info.log
