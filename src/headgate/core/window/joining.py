"""Two streams in the same windows: what window joins and co-groups add to the window operator.

The operator has two inputs. A record goes into the windows as ``(side, record)`` with side 0 or 1,
which is also what assigners, triggers and evictors see; when a window fires, its contents are
parted again. Law: pairs meet only within one key and one window.
"""

from collections.abc import Callable, Iterable, Iterator

from headgate.base.elements import Bundle, Key, LatencyMarker, Record, StreamStatus, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.chain.user_function import iterable
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import WindowPlan
from headgate.functions.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    SnapshotMoment,
)
from headgate.functions.window import Window

Sided = tuple[int, Record]


class JoinedWindowOperator(Operator):
    """A window operator with two inputs."""

    inputs = 2

    def __init__(self, plan: WindowPlan) -> None:
        self.windows = WindowOperator(plan)

    def set_up(self, output: Output) -> None:
        super().set_up(output)
        self.windows.reuses_objects = self.reuses_objects
        self.windows.failures = self.failures
        self.windows.set_up(output)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.windows.open(context)
        self.late = self.windows.late

    def process(self, bundle: Bundle, number: int) -> None:
        sided = [(number, record) for record in bundle.records]
        self.windows.process(Bundle(sided, bundle.timestamps), 0)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self.windows.watermark_advanced(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self.windows.status_changed(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        self.windows.marker_received(marker)

    def key_ended(self) -> None:
        self.windows.key_ended()

    def finish(self) -> None:
        self.windows.end_input(0)
        self.windows.finish()

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self.windows.before_barrier(moment)

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        return self.windows.snapshot(moment)

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.windows.checkpoint_completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self.windows.checkpoint_aborted(checkpoint)

    @property
    def awaits_checkpoint(self) -> bool:
        return self.windows.awaits_checkpoint

    def close(self) -> None:
        self.windows.close()


class SidedKey:
    """The key of a record, by the selector of the side that it comes from."""

    def __init__(self, first: Callable[[Record], Key], second: Callable[[Record], Key]) -> None:
        self._selectors = first, second

    def __call__(self, sided: Sided) -> Key:
        return self._selectors[sided[0]](sided[1])


class CoGroupCall:
    """Calls ``co_group(first, second)`` of the user's function for the contents of a window."""

    method = "co_group"

    def __init__(self, function: object) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._call: Callable[..., Record] = getattr(self.function, self.method, self.function)  # type: ignore[arg-type]
        begin = getattr(self.function, "open", None)
        if begin is not None:
            begin(runtime_context)

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._tell("initialize_state", context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._tell("snapshot_state", context)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._tell("notify_checkpoint_complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._tell("notify_checkpoint_aborted", checkpoint_id)

    def apply(self, key: Key, window: Window, inputs: Iterable[Sided]) -> Iterable[Record]:
        """What the window operator calls."""
        return self.joined(*_parted(inputs))

    def joined(self, first: list[Record], second: list[Record]) -> Iterable[Record]:
        """The results for one key and window."""
        return iterable(self._call(first, second), "a co_group function")

    def _tell(self, method: str, what: object) -> None:
        """The user's function, if it wants to know."""
        call = getattr(self.function, method, None)
        if call is not None:
            call(what)


class FlatJoinCall(CoGroupCall):
    """Calls ``join(first, second)`` for each pair; it gives any number of results."""

    method = "join"

    def joined(self, first: list[Record], second: list[Record]) -> Iterator[Record]:
        call = self._call
        for left in first:
            for right in second:
                yield from iterable(call(left, right), "a flat join function")


class JoinCall(CoGroupCall):
    """Calls ``join(first, second)`` for each pair; it gives one result."""

    method = "join"

    def joined(self, first: list[Record], second: list[Record]) -> Iterator[Record]:
        call = self._call
        for left in first:
            for right in second:
                yield call(left, right)


def _parted(inputs: Iterable[Sided]) -> tuple[list[Record], list[Record]]:
    sides: tuple[list[Record], list[Record]] = [], []
    for side, record in inputs:
        sides[side].append(record)
    return sides
