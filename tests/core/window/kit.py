"""A lab for window operators: one task, a clock that stands still until the test moves it.

`plan` fills in what a test does not care about; `Lab` drives an operator by elements and by time.
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, cast

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.state.backend import Backends, KeyedBackend
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import Contents, Listed, Reduced, WindowCall, WindowPlan
from headgate.functions.context import TaskInfo
from headgate.functions.error_policy import ErrorPolicy
from tests.core.chain.kit import KeptOutput


class Collect:
    """A window function that tells all it knows: key, window, elements."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window(), tuple(elements)


class Bounds:
    """The same without the key, as a list."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [(window.start, window.end, *inputs)]


class CollectingAggregate:
    """Accumulates in place, and its result is its accumulator."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        acc_a.extend(acc_b)
        return acc_a


LISTED = Listed()
COLLECT = WindowCall("process", Collect())


def lateness(lab: "Lab") -> tuple[int, int, int]:
    """How many came too late and were dropped, and how late they and the last ones were."""
    late = lab.operator.late
    assert late is not None
    return late.count, late.most_ms, late.last_ms


def first(record: Any) -> Any:
    return record[0]


def second_sum(record: Any, other: Any) -> Any:
    return record[0], record[1] + other[1]


def add_in_place(record: list[Any], other: list[Any]) -> list[Any]:
    record[1] += other[1]
    return record


SUMS = Reduced(second_sum)


def plan(
    assigner: Any,
    contents: Contents = LISTED,
    function: WindowCall | None = COLLECT,
    trigger: Any = None,
    key_of: Callable[[Any], Any] = first,
    **more: Any,
) -> WindowPlan:
    if contents is not LISTED and function is COLLECT:
        function = None
    if trigger is None:
        trigger = assigner.get_default_trigger(None)
    return WindowPlan(key_of, assigner, trigger, contents, function, **more)


class Lab:
    """An open operator; what it sends is in ``output``."""

    def __init__(
        self,
        window_plan: WindowPlan,
        bundled: bool = True,
        reuse: bool = False,
        backends: Backends | None = None,
        now_ms: int = 0,
        on_error: ErrorPolicy = ErrorPolicy.FAIL,
    ) -> None:
        self.now_ms = now_ms
        self.operator = WindowOperator(window_plan, bundled)
        self.operator.reuses_objects = reuse
        self.output = KeptOutput()
        if on_error != ErrorPolicy.FAIL:
            failures = RecordFailures(on_error, "windows", self.output, True)
            failures.open(OperatorContext("windows", TaskInfo("job", "vertex", 0, 1), lambda: 0))
            self.operator.failures = failures
        self._mails: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.operator.set_up(self.output)
        self.operator.open(
            OperatorContext(
                "windows",
                TaskInfo("job", "vertex", 0, 1),
                lambda: self.now_ms,
                self._later,
                backends=backends or MemoryBackends(),
            )
        )

    def send(self, *pairs: tuple[Any, int | None]) -> None:
        """Records with their times, in one bundle."""
        self.operator.process(Bundle([record for record, _ in pairs], [at for _, at in pairs]), 0)

    def send_untimed(self, *records: Any) -> None:
        self.operator.process(Bundle(list(records)), 0)

    def watermark(self, time_ms: int) -> None:
        self.operator.watermark_advanced(Watermark(time_ms))

    def clock(self, now_ms: int) -> None:
        """It is later now: mails that are due come, one after the other."""
        while self._mails and self._mails[0][0] <= now_ms:
            at_ms, _, action = heapq.heappop(self._mails)
            self.now_ms = max(self.now_ms, int(at_ms))
            action()
        self.now_ms = now_ms

    def end(self) -> "Lab":
        """No more records."""
        self.watermark(MAX_WATERMARK_MS)
        self.operator.end_input(0)
        self.operator.finish()
        self.operator.close()
        return self

    def taken(self) -> list[Any]:
        """The records that came out since the last look."""
        records = self.output.records
        self.output.bundles.clear()
        return records

    def taken_timed(self) -> list[tuple[Any, int | None]]:
        timed = self.output.timed
        self.output.bundles.clear()
        return timed

    def kept(self) -> list[tuple[str, Any, Any]]:
        """Everything the operator holds in the state: name, window and key; and its timers."""
        backend = cast(MemoryBackend, self.operator._keyed.backend)  # type: ignore[union-attr]
        entries = [
            (name, namespace, key)
            for name, spaces in backend._spaces.items()
            for namespace, table in spaces.view.items()
            for key in table
        ]
        timers = [*backend.event_timers.items(), *backend.processing_timers.items()]
        return entries + [("timer", window, key) for _, key, window in timers]

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._mails, (self.now_ms + delay_ms, next(self._numbers), action))


class FixedBackends:
    """Backends that give every operator the same backend."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> Any:
        return self._backend


def restarted(lab: Lab, window_plan: WindowPlan, sliced: bool) -> Lab:
    """A new operator with the state of the old one; event time begins anew."""
    keyed_context: Any = lab.operator._keyed
    snapshot = keyed_context.backend.snapshot()
    parts = list(snapshot.groups())
    snapshot.close()
    backend = MemoryBackend(range(128), 128)
    backend.restore(parts)
    return Lab(window_plan, sliced, backends=FixedBackends(backend))
