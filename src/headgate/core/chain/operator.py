"""The operator contract: bundles, watermarks and ends of input come in, an output takes the rest.

Life of an operator: ``set_up`` (knows its output), ``open``, elements, ``end_input`` for each
input, ``finish`` (the last records), ``close``. ``close`` is always called, also after a failure
and when ``open`` was never reached. All of it happens on the task's own thread.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, Protocol

from headgate.base.elements import Bundle, Key, LatencyMarker, Record, StreamStatus, Watermark
from headgate.base.fields import FieldShape
from headgate.base.figures import AsyncFigures, BatchFigures
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.loops.steps import Step
from headgate.core.state.reading import StateReader
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import SplitLag

if TYPE_CHECKING:
    from headgate.core.chain.left_out import LateDrops, RecordFailures


class Output(Protocol):
    """What an operator writes to, a bundle at a time. Nobody changes a bundle that was handed on.

    Law: an output without a tag takes only the main records, one with a tag only those emitted for
    an equal tag; it drops the rest. Watermarks, statuses and latency markers go to all.
    """

    watermark_ms: int
    """The last watermark that passed."""

    def collect(self, bundle: Bundle) -> None:
        """Records of the main output."""

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        """Records of the side output with this tag."""

    def emit_watermark(self, watermark: Watermark) -> None: ...

    def emit_status(self, status: StreamStatus) -> None: ...

    def emit_marker(self, marker: LatencyMarker) -> None: ...


class PollResult(Enum):
    """How a poll ended."""

    RECORDS = "some records went out"
    NOTHING = "nothing now; see wait_ms"
    PAUSED = "nothing until the other sources of its group have come nearer"
    ENDED = "all splits are read"


class Operator:
    """Base of all operators; does nothing with records, forwards the rest."""

    inputs = 1

    output: Output
    context: OperatorContext
    reuses_objects = False
    """The user has promised that functions keep nothing of what they return."""
    failures: "RecordFailures | None" = None
    """What becomes of records that fail; None: the job fails."""
    late: "LateDrops | None" = None
    """What it has dropped because it came too late; None: nothing is too late for it."""

    def set_up(self, output: Output) -> None:
        """The output is known; called once, from the tail of the chain to its head."""
        self.output = output

    def open(self, context: OperatorContext) -> None:
        """Before the first element."""
        self.context = context

    def process(self, bundle: Bundle, number: int) -> None:
        """Records of input ``number``; the bundle belongs to others too and must not be changed."""
        raise NotImplementedError

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether it is of use to take records with so many fields apart for this operator."""
        return False

    def as_step(self, again: Callable[[Record], NoReturn]) -> Step | None:
        """What it does to a record, as a part of another operator's loop; None: it has its own.

        ``again``: runs it for a record for which the step has failed.
        """
        return None

    def selection(self) -> Collection[int] | None:
        """Which inputs to read next; None: any. Asked before every element."""
        return None

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        """What takes the keys of the records of an input; None: they have none."""
        return None

    def watermark_advanced(self, watermark: Watermark) -> None:
        """Event time of all inputs has moved on."""
        self.output.emit_watermark(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        """The inputs have fallen idle, or are active again."""
        self.output.emit_status(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        """Forwarded at once; user functions never see it."""
        self.output.emit_marker(marker)

    def end_input(self, number: int) -> None:
        """Nothing follows on this input."""

    def key_ended(self) -> None:
        """Batch, on a keyed stream: no record of the key at hand follows, and its time is over.

        Timers fire, results go out, and its state is forgotten; the next key begins anew.
        """

    def finish(self) -> None:
        """All inputs have ended: send what was kept back."""

    # Checkpoints. At ``open`` the state of an earlier run is in ``context.restored``.

    def before_barrier(self, moment: SnapshotMoment) -> None:
        """A checkpoint is about to be taken; what is sent now goes before its barrier.

        Head first. With unaligned barriers too, which overtake what is sent here.
        """

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        """What the operator has now; after ``before_barrier`` of all operators of the chain."""
        return OperatorSnapshot()

    def checkpoint_completed(self, checkpoint: int) -> None:
        """It is stored for good, and with it what was prepared for it and for earlier ones.

        Not called for savepoints that the job survives. May come late or never; then the next
        one counts, or the next run finds in ``restored`` what was prepared.
        """

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """What was prepared for it belongs to the next one."""

    @property
    def awaits_checkpoint(self) -> bool:
        """After ``finish``: whether it must not be closed before one more is complete."""
        return False

    # Figures, asked for now and then.

    def async_calls(self) -> AsyncFigures | None:
        """Its asynchronous calls, if it makes any; asked from any thread, at any moment."""
        return None

    def batch_calls(self) -> BatchFigures | None:
        """Its calls in batches, if it makes any; asked from any thread, at any moment."""
        return None

    def state_bytes(self) -> int | None:
        """About the bytes of its state; None: not known. Asked between two elements."""
        return None

    def state_reader(self) -> StateReader | None:
        """What reads its keyed state for somebody outside of the task; None: it has none."""
        return None

    def close(self) -> None:
        """Give back everything; idempotent."""


class PolledOperator(Operator):
    """The head of a source task: it has no input and is polled for records."""

    inputs = 0

    @property
    def splits(self) -> int:
        """How many splits it still reads; asked from any thread, at any moment."""
        return 0

    @property
    def records_per_second(self) -> float | None:
        """What its source gives at most, in all tasks together; None: nobody has said."""
        return None

    def lag(self) -> SplitLag | None:
        """What is left to be read, as far as it is known. Asked between two polls."""
        return None

    def poll(self, limit: int) -> PollResult:
        """Send on at most about ``limit`` records; never blocks."""
        raise NotImplementedError
