"""The window operator, with one input or two: keys the records, and lets a keeper hold windows.

Which keeper depends on the plan and on the backend: whole bundles at a time where that can be done,
record by record otherwise. Law: all of them give the same results.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import length_hint

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Bundle,
    Key,
    Record,
    Watermark,
)
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.left_out import LateDrops, LateRecords
from headgate.core.chain.user_function import StatefulOperator, UserFunction, iterable
from headgate.core.window.general import GeneralKeeper, MergingKeeper, Parts, WindowKeeper
from headgate.core.window.restored import adopt, holds_general_state, settle_contents
from headgate.core.window.sessions import SessionKeeper, can_gather
from headgate.core.window.sliced import ClockKeeper, SlicedKeeper, can_clock, can_slice
from headgate.core.window.spec import Aggregated, Listed, Reduced, WindowPlan
from headgate.core.window.user_code import Answers, WindowTools
from headgate.functions.assigners import MergingWindowAssigner
from headgate.functions.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    TimeDomain,
)
from headgate.functions.window import Window


class WindowOperator(StatefulOperator):
    """Windows of the keys of one task."""

    def __init__(self, plan: WindowPlan, bundled: bool = True) -> None:
        """``bundled``: whole bundles at a time, if plan and backend allow it."""
        assert plan.function is not None or not isinstance(plan.contents, Listed)
        self._plan = plan
        self._bundled = bundled
        self._keyed: KeyedContext | None = None
        self._answers: Answers | None = None
        self._late: LateRecords | None = None
        self._keeper: WindowKeeper | None = None
        self._fold = _fold_function(plan)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        plan = self._plan
        self._keyed = keyed = KeyedContext(context, self._fire, self._flush)
        self._selection = KeySelection(
            plan.key_of, context.operator, keyed.backend.sweeps, context.key_type
        )
        self.late = LateDrops(context)
        self._late = LateRecords(plan.late_tag, self.output, self.late)
        collector = Collector(self.output, not self.reuses_objects)
        self._answers = Answers(plan, collector, self.failures)
        if self.failures is not None:
            self._streak, self._key_streak = self.failures.streak(), self.failures.streak()
        settle_contents(plan, context.record_type, keyed)
        if self._fold is not None:
            self._fold.open(context)
        self._answers.open(context, keyed)
        tools = WindowTools(keyed, context)
        parts = Parts(plan, context, keyed, tools, self._answers, self._late, self.reuses_objects)
        self._keeper = self._choose(parts)

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._plan.key_of

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._keeper is not None
        if not bundle.records:
            return
        if self.failures is None:
            self._keeper.process(bundle, self._selection.keys(bundle.records))
        else:
            bundle, keys = self._selection.keyed(bundle, self._key_streak)
            self._process_on(self._keeper, bundle, keys)
        self._flush()

    def _process_on(self, keeper: WindowKeeper, bundle: Bundle, keys: list[Key]) -> None:
        """Process a bundle, but skip records that fail. Such a record may be in some windows."""
        assert self._keyed is not None
        begin, times = 0, bundle.timestamps
        while begin < len(bundle.records):
            records = WatchedRecords(bundle.records[begin:])
            rest = Bundle(records, None if times is None else times[begin:])
            try:
                keeper.process(rest, keys[begin:])
                break
            except Exception as error:
                place = records.place
                if place is None:  # it is about all of them, such as timestamps that are missing
                    raise
                self._keyed.cursor.namespace = None
                self._streak.failed_at(error, bundle, begin + place)
                begin += place + 1
        self._streak.ended(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._advance(watermark.timestamp_ms)
        super().watermark_advanced(watermark)

    def key_ended(self) -> None:
        assert self._keyed is not None
        self._advance(MAX_WATERMARK_MS)
        self._keyed.key_ended()  # windows by the clock fire by its timers
        self._flush()
        self._advance(MIN_WATERMARK_MS)

    def user_functions(self) -> Iterable[UserFunction]:
        called = None if self._answers is None else self._answers.user_function
        return [function for function in (self._fold, called) if function is not None]

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for part in (self._keyed, self._keeper, self._fold, self._answers):
                if part is not None:
                    all_of_them.callback(part.close)

    def _choose(self, parts: Parts) -> WindowKeeper:
        plan, backend = parts.plan, parts.keyed.backend
        if self._bundled and not holds_general_state(backend):
            if can_slice(plan, backend):
                return SlicedKeeper(parts, self.output)
            if can_gather(plan, backend):
                return SessionKeeper(parts)
            if can_clock(plan, backend):
                return ClockKeeper(parts, self.output)
        merges = isinstance(plan.assigner, MergingWindowAssigner)
        keeper = MergingKeeper(parts) if merges else GeneralKeeper(parts)
        adopt(parts.keyed, keeper)
        return keeper

    def _advance(self, watermark_ms: int) -> None:
        assert self._keeper is not None
        self._keeper.advance(watermark_ms)
        self._flush()

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        assert self._keeper is not None
        # The tools have set timers of processing time a millisecond later than they were asked to.
        asked_ms = time_ms if domain is TimeDomain.EVENT_TIME else time_ms - 1
        self._keeper.fire(asked_ms, domain)

    def _flush(self) -> None:
        assert self._answers is not None and self._late is not None and self._keyed is not None
        self._answers.flush()
        self._late.flush(self._keyed.timers.watermark_ms)


class WatchedRecords(list[Record]):
    """A list that knows which of its records is at hand, by its last iterator: that costs nothing.

    Keepers take records one by one, in order; what fails is at the iterator's last record.
    """

    def __init__(self, records: list[Record]) -> None:
        super().__init__(records)
        self._last: Iterator[Record] | None = None

    def __iter__(self) -> Iterator[Record]:
        self._last = super().__iter__()
        return self._last

    @property
    def place(self) -> int | None:
        """Place of the record at hand; None: nobody has begun to take them."""
        taken = 0 if self._last is None else len(self) - length_hint(self._last)
        return taken - 1 if taken else None


def _fold_function(plan: WindowPlan) -> UserFunction | None:
    """The function that folds, which may have an ``open`` and a ``close`` too."""
    match plan.contents:
        case Reduced(function):
            return UserFunction(function, "reduce", "fold")
        case Aggregated(function):
            return UserFunction(function, "add", "fold")
        case Listed():
            return None


Sided = tuple[int, Record]


class JoinedWindowOperator(WindowOperator):
    """A window operator with two inputs.

    A record goes into the windows as ``(side, record)`` with side 0 or 1, which is also what
    assigners, triggers and evictors see; when a window fires, its contents are parted again. Law:
    pairs meet only within one key and one window.
    """

    inputs = 2

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return None  # the plan's takes records that know their side

    def process(self, bundle: Bundle, number: int) -> None:
        sided = [(number, record) for record in bundle.records]
        super().process(Bundle(sided, bundle.timestamps), 0)


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
