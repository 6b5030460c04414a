"""Sinks: operators without output, around a user's function or a sink with a writer of lists.

They write as records come, so that after a failure some are written twice; ``two_phase`` has those
that commit with checkpoints. Law: what was written before a barrier is there when the snapshot of
its checkpoint is taken.
"""

from collections.abc import Callable
from typing import Protocol

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import SnapshotMoment
from headgate.core.operators.basic import FunctionOperator
from headgate.core.operators.process import timed


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
        self._plain = not hasattr(self._guest.function, "invoke")

    def process(self, bundle: Bundle, number: int) -> None:
        call, context = self._call, self._context
        if self._plain:
            for record in bundle.records:
                call(record)
            return
        for record, timestamp in timed(bundle):
            context.set(timestamp)
            call(record, context)


class SinkWriter(Protocol):
    """Writes the records of one task; lives on its thread."""

    def write(self, records: list[Record]) -> None:
        """Take these records, without changing them; may block."""

    def flush(self) -> None:
        """Everything written must be there now: at each checkpoint, and at the end of the input."""

    def close(self) -> None:
        """Give back everything; always called, also without ``flush`` after a failure."""


class Sink(Protocol):
    """Describes where records go; travels to the tasks and makes a writer in each."""

    def create_writer(self, context: OperatorContext) -> SinkWriter: ...


class SinkOperator(Operator):
    """Hands whole bundles to the writer of a sink, which must not change the records.

    A writer that has ``finish`` learns of the end of its input, after the last ``flush``.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._writer = self._sink.create_writer(context)

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._writer is not None
        self._writer.write(bundle.records)

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
