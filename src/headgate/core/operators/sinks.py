"""Sinks: operators without output, around a user function, a writer, or a writer and a committer.

The first two write records as they come, so some are written twice after a failure. Law: what was
written before a barrier is there when its checkpoint's snapshot is taken. Two-phase sinks prepare
*committables*, such as the names of closed files, with a checkpoint. Law: a committable is
committed after a checkpoint that holds it has completed, never before; every snapshot holds all
that are uncommitted, and a new run commits those before it writes anything. Without checkpoints
everything is committed at the end.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from operator import length_hint
from typing import Final

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Record
from headgate.base.errors import ConnectorError, HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.operators.one_input import FunctionOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    Sink,
    SinkWriter,
    TwoPhaseCommittingSink,
)

STATE_VERSION: Final = 1


class SinkContext:
    """What ``invoke`` learns beside the value."""

    __slots__ = ("_now_ms", "_timestamp")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._timestamp: int | None = None

    def timestamp(self) -> int:
        """The record's event time; the smallest of all times if it has none."""
        return MIN_WATERMARK_MS if self._timestamp is None else self._timestamp

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._now_ms()

    def set(self, timestamp: int | None) -> None:
        self._timestamp = timestamp


class SinkFunctionOperator(FunctionOperator):
    """``invoke(value, context)`` for each record; a plain callable gets the value alone."""

    method = "invoke"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._context = SinkContext(context.now_ms)
        self._plain = not hasattr(self._function.function, "invoke")
        self._streak = None if self.failures is None else self.failures.streak()

    def process(self, bundle: Bundle, number: int) -> None:
        source = iter(bundle.records)
        entries = zip(source, bundle.timestamps or repeat(None))  # noqa: B905 - repeat has no end
        while True:
            try:
                self._invoke(source, entries)
                break
            except Exception as error:
                if self._streak is None:
                    raise
                place = len(bundle.records) - length_hint(source) - 1
                self._streak.failed_at(error, bundle, place)
        if self._streak is not None:
            self._streak.ended(bundle)

    def _invoke(
        self, records: Iterator[Record], entries: Iterator[tuple[Record, int | None]]
    ) -> None:
        call, context = self._call, self._context
        if self._plain:
            for record in records:
                call(record)
            return
        for record, timestamp in entries:
            context.set(timestamp)
            call(record, context)


class RejectedRecords:
    """Records that a writer has named by ``context.malformed`` because it cannot write them."""

    def __init__(self, failures: RecordFailures | None) -> None:
        self._streak = None if failures is None else failures.streak()
        self._count = 0

    def within(self, context: OperatorContext) -> OperatorContext:
        """The context that the writer is made with."""
        return context if self._streak is None else replace(context, malformed=self._take)

    def write(self, writer: SinkWriter, records: list[Record]) -> None:
        """Write a batch. An error that names no record fails the job, whatever the policy."""
        if self._streak is None:
            writer.write(records)
            return
        before = self._count
        try:
            writer.write(records)
        except Exception as error:
            if isinstance(error, HeadgateError):
                raise
            raise ConnectorError(
                f"{type(writer).__name__} has failed to write {len(records):,} records "
                f"({type(error).__name__}: {error}) and does not say at which one, so that its "
                f"error policy cannot leave that out; let write() name the record by "
                f"context.malformed(record, error), or check records in a map() before the sink"
            ) from error
        if self._count - before < len(records):
            self._streak.passed()

    def _take(self, record: object, error: Exception) -> None:
        assert self._streak is not None
        self._streak.unfit(record, error)
        self._count += 1


class SinkOperator(Operator):
    """Hands whole bundles to the writer of a sink, which must not change the records.

    A writer that has ``finish`` learns of the end of its input, after the last ``flush``.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._rejected = RejectedRecords(self.failures)
        self._writer = self._sink.create_writer(self._rejected.within(context))

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._writer is not None
        self._rejected.write(self._writer, bundle.records)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        assert self._writer is not None
        self._writer.flush()

    def finish(self) -> None:
        assert self._writer is not None
        self._writer.flush()
        end = getattr(self._writer, "finish", None)
        if end is not None:
            end()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class TwoPhaseSinkOperator(Operator):
    """Keeps what its writer has prepared until it may be committed."""

    def __init__(self, sink: TwoPhaseCommittingSink) -> None:
        self._sink = sink
        self._writer: CommittingSinkWriter | None = None
        self._committer: Committer | None = None
        self._prepared: dict[int, list[Record]] = {}  # by the first checkpoint that holds them
        self._ready: list[Record] = []  # prepared at the end, held by no checkpoint yet
        self._broken: BaseException | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._committer = self._sink.create_committer(context)
        if context.restored is not None:
            found = [value for state in context.restored.sinks for value in _read(state)]
            if found:
                self._committer.commit_again(found)
        self._rejected = RejectedRecords(self.failures)
        self._writer = self._sink.create_writer(self._rejected.within(context))

    def process(self, bundle: Bundle, number: int) -> None:
        if self._broken is not None:
            raise self._broken
        assert self._writer is not None
        self._rejected.write(self._writer, bundle.records)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        if self.failures is not None:  # the letters of what is rejected now belong before it
            assert self._writer is not None
            self._writer.flush()

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
        held = [value for values in self._prepared.values() for value in values]
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
        covered = [taken for taken in self._prepared if checkpoint is None or taken <= checkpoint]
        due = [value for taken in covered for value in self._prepared[taken]]
        if checkpoint is None:
            due += self._ready
        if due:
            self._committer.commit(due)
        for taken in covered:
            del self._prepared[taken]
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
