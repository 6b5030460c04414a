"""Sinks that commit in two phases: prepared with a checkpoint, committed when it is complete.

The writer hands out *committables*: values that say what is to be committed, such as the names of
closed files. Law: a committable is committed after a checkpoint that holds it is complete, never
before; every snapshot holds all that are not committed, so that a new run commits what it finds
there before it writes anything. Without checkpoints everything is committed at the end.
"""

import pickle
from collections.abc import Sequence
from typing import Final, Protocol

from headgate.base.elements import Bundle, Record
from headgate.base.errors import StateBroken
from headgate.base.moved import loads
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot, SnapshotMoment
from headgate.core.operators.sinks import SinkWriter

STATE_VERSION: Final = 1


class CommittingWriter(SinkWriter, Protocol):
    """A writer whose records count only when they were committed; lives on its task's thread."""

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        """What is to be committed of all that was written since the last time.

        After ``flush``. ``moment`` is None at the end of the input.
        """

    def unfinished(self) -> Sequence[Record]:
        """What only a new run has to commit that goes on from here; after ``prepare_commit``."""


class Committer(Protocol):
    """Commits what writers of the sink have prepared."""

    def commit(self, committables: Sequence[Record]) -> None:
        """When it returns, all of them count."""

    def commit_again(self, committables: Sequence[Record]) -> None:
        """The same with those of an earlier run, some or all of which may count already."""

    def close(self) -> None:
        """Give back everything; always called."""


class TwoPhaseSink(Protocol):
    """Describes where records go; travels to the tasks and makes a writer and a committer there."""

    def create_writer(self, context: OperatorContext) -> CommittingWriter: ...

    def create_committer(self, context: OperatorContext) -> Committer: ...


class TwoPhaseSinkOperator(Operator):
    """Keeps what its writer has prepared until it may be committed."""

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink
        self._writer: CommittingWriter | None = None
        self._committer: Committer | None = None
        self._prepared: dict[int, list[Record]] = {}  # by the first checkpoint that holds them
        self._ready: list[Record] = []  # prepared at the end, held by no checkpoint yet
        self._broken: BaseException | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._committer = self._sink.create_committer(context)
        if context.restored is not None:
            found = [one for state in context.restored.sinks for one in _read(state)]
            if found:
                self._committer.commit_again(found)
        self._writer = self._sink.create_writer(context)

    def process(self, bundle: Bundle, number: int) -> None:
        if self._broken is not None:
            raise self._broken
        assert self._writer is not None
        self._writer.write(bundle.records)

    def finish(self) -> None:
        self._ready += self._prepare(None)
        if not self.context.checkpoints:
            self._commit_up_to(None)

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        prepared = self._ready + self._prepare(moment)
        self._ready = []
        if prepared:
            self._prepared.setdefault(moment.checkpoint, []).extend(prepared)
        assert self._writer is not None
        held = [one for lot in self._prepared.values() for one in lot]
        held += self._writer.unfinished()
        return OperatorSnapshot(sink=_written(held, self.context.operator) if held else None)

    def checkpoint_completed(self, checkpoint: int) -> None:
        self._commit_up_to(checkpoint)

    @property
    def awaits_checkpoint(self) -> bool:
        return self.context.checkpoints and bool(self._ready or self._prepared)

    def close(self) -> None:
        writer, committer = self._writer, self._committer
        self._writer = self._committer = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if committer is not None:
                committer.close()

    def _prepare(self, moment: SnapshotMoment | None) -> list[Record]:
        if self._broken is not None:
            raise self._broken
        assert self._writer is not None
        try:
            self._writer.flush()
            return list(self._writer.prepare_commit(moment))
        except BaseException as error:
            # What was written may be lost to the next checkpoint: there must not be one.
            self._broken = error
            raise

    def _commit_up_to(self, checkpoint: int | None) -> None:
        """All that these checkpoints hold; None: all, and what none holds yet."""
        assert self._committer is not None
        lots = [lot for lot in self._prepared if checkpoint is None or lot <= checkpoint]
        due = [one for lot in lots for one in self._prepared[lot]]
        if checkpoint is None:
            due += self._ready
        if due:
            self._committer.commit(due)
        for lot in lots:
            del self._prepared[lot]
        if checkpoint is None:
            self._ready = []


def _written(held: list[Record], operator: str) -> bytes:
    try:
        return pickle.dumps((STATE_VERSION, held), 5)
    except Exception as error:
        raise StateBroken(
            f"operator {operator!r}: what the sink has prepared cannot be pickled ({error}); "
            f"return plain values from prepare_commit()"
        ) from error


def _read(state: bytes) -> list[Record]:
    try:
        version, held = loads(state)
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(f"what a sink has prepared cannot be read ({error!r})") from error
    if version != STATE_VERSION:
        raise StateBroken(
            f"what a sink has prepared has version {version}, this Headgate reads {STATE_VERSION}; "
            f"restore it with the Headgate that wrote it"
        )
    if not isinstance(held, list):
        raise StateBroken(f"what a sink has prepared is {type(held).__name__} and no list")
    return held
