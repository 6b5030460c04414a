"""Every operator, cut at any point and restored, goes on as if nothing had happened."""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headgate.core
from headgate.base.elements import Watermark
from headgate.base.settings import StateSettings
from headgate.core.chain.operator import Operator, PolledOperator
from headgate.core.chain.user_function import StatefulOperator
from headgate.core.chain.watermarks import TimePlan, silent
from headgate.core.columns.operators import (
    BatchesOperator,
    BufferingOperator,
    PartialsOperator,
    RecordsOperator,
)
from headgate.core.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    KeyedProcessOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import AggregateOperator, ReduceOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.sorted_input import SortedInput
from headgate.core.operators.timestamps import TimedOperator, TimestampsOperator
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
    TwoInputOperator,
)
from headgate.core.state.backend import Backends
from headgate.core.window.operator import (
    CoGroupCall,
    JoinedWindowOperator,
    SidedKey,
    WindowOperator,
)
from headgate.core.window.spec import Listed, WindowCall, WindowPlan
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    count_assigner,
)
from headgate.functions.evictors import CountEvictor
from headgate.functions.function import OutputTag
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headgate.functions.triggers import ContinuousEventTimeTrigger, CountTrigger, EventTimeTrigger
from headgate.host.rocksdb.backend import RocksBackends
from tests.core.chain.restore_kit import ALL, END, MOMENT, Clock, OperatorTasks, Send, stored_state
from tests.core.window.kit import LISTED, SUMS, plan


def first(record: Any) -> Any:
    return record[0]


class Numbered:
    """Numbers what it is called for; how many there were is state of the task."""

    def __init__(self, written: list[Any] | None = None) -> None:
        self.written = written

    def initialize_state(self, context: Any) -> None:
        states = context.get_operator_state_store()
        self.counts = states.get_list_state(ListStateDescriptor("count"))
        self.everybody = states.get_union_list_state(ListStateDescriptor("everybody"))
        self.count = sum(self.counts.get())
        assert context.is_restored() is bool(list(self.everybody.get()))

    def snapshot_state(self, context: Any) -> None:
        assert context.get_checkpoint_id() == MOMENT.checkpoint
        self.counts.update([self.count])
        self.everybody.update(["I"])

    def map(self, value: Any) -> Any:
        self.count += 1
        return value, self.count

    def filter(self, value: Any) -> bool:
        self.count += 1
        return self.count % 3 != 0

    def flat_map(self, value: Any) -> Any:
        yield self.map(value)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.map(value)
        yield OutputTag("side"), self.map(value)

    def invoke(self, value: Any, context: Any) -> None:
        assert self.written is not None
        self.written.append((None, self.map(value), None))

    def map1(self, value: Any) -> Any:
        return "left", self.map(value)

    def map2(self, value: Any) -> Any:
        return "right", self.map(value)

    def flat_map1(self, value: Any) -> Any:
        return [self.map1(value)]

    def flat_map2(self, value: Any) -> Any:
        return [self.map2(value)]

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return [self.map1(value)]

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return [self.map2(value)]


class Counted:
    """Counts by key, and has timers of both kinds."""

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("count"))
        self.sums = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda first, second: first + second)
        )
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))

    def map(self, value: Any) -> Any:
        self.counts.update((self.counts.value() or 0) + 1)
        self.sums.add(value[1])
        self.kept.add(value)
        return value, self.counts.value(), self.sums.get(), len(list(self.kept.get()))

    def filter(self, value: Any) -> bool:
        return self.map(value)[1] % 2 == 0

    def flat_map(self, value: Any) -> Any:
        yield self.map(value)

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        late = ctx.timestamp() <= timers.current_watermark()
        timers.register_event_time_timer(ctx.timestamp() + 5)
        timers.register_processing_time_timer(timers.current_processing_time() + 7)
        yield self.map(value), late

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        watermark_ms = ctx.timer_service().current_watermark()
        yield ctx.get_current_key(), ctx.time_domain(), timestamp, self.counts.value(), watermark_ms

    def map1(self, value: Any) -> Any:
        return "left", self.map(value)

    def map2(self, value: Any) -> Any:
        return "right", self.map(value)

    def flat_map1(self, value: Any) -> Any:
        return [self.map1(value)]

    def flat_map2(self, value: Any) -> Any:
        return [self.map2(value)]

    process_element1 = process_element2 = process_element


RULES = MapStateDescriptor("rules")


class Ruled:
    """Has rules, which come by broadcast."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        rules = dict(ctx.get_broadcast_state(RULES).items())
        yield value, rules

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        yield "rule", value


class RuledByKey(Ruled, Counted):
    """The same with counts and timers; it is told how far event time is."""

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.current_watermark()
        yield from super().process_broadcast_element(value, ctx)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield from Counted.process_element(self, value, ctx)
        yield from Ruled.process_element(self, value, ctx)
        yield ctx.current_watermark()


class Pair:
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left, right, ctx.timestamp()


class CountedWindows:
    """A window function with state of its own, by key and by task."""

    def initialize_state(self, context: Any) -> None:
        states = context.get_operator_state_store()
        self.fired = states.get_list_state(ListStateDescriptor("fired"))

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("count"))

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        self.counts.update((self.counts.value() or 0) + 1)
        self.fired.add(key)
        fired = sum(fired_key == key for fired_key in self.fired.get())
        yield key, context.window(), tuple(elements), self.counts.value(), fired


class Together(Counted):
    def co_group(self, first: Any, second: Any) -> Any:
        key = (first or second)[0][0]
        return [self.map((key, len(first) + len(second))), (first, second)]


ONE = (
    Send([(("a", 1), 1), (("b", 2), 3), (("a", 3), 2)]),
    Send([(("c", 3), 7), (("a", 4), 12)]),
    Watermark(5),
    Clock(5),
    Send([(("b", 5), 2), (("a", 6), 6), (("d", 1), 4)]),  # two of them late
    Clock(3),
    Watermark(11),
    Send([(("a", 7), 8), (("b", 8), 14), (("c", 9), 13)]),
    Clock(10),
    Watermark(13),
    Send([(("a", 10), 30), (("d", 2), 9), (("b", 1), 12)]),
    Watermark(25),
    Send([(("c", 4), 24), (("b", 4), 27)]),
    Clock(100),
    END,
)
"""What happens to an operator with one input."""


def on_two(script: Sequence[Any]) -> list[Any]:
    """The same with two inputs in turns."""
    sides = iter([0, 1] * len(script))
    return [
        Send(step.rows, next(sides)) if isinstance(step, Send) else step
        for step in [*script[:3], Send([(("a", 50), 6), (("b", 60), 7)]), *script[3:]]
    ]


TWO = on_two(ONE)


@dataclass(frozen=True)
class Case:
    """An operator, and whether its tasks can be more or fewer after a restore."""

    make: Callable[[], Operator]
    keys_of: Sequence[Any] = (first,)
    rescales: bool = True
    """Keyed, with no state but by key: so there is no order between keys either."""
    script: Sequence[Any] = ONE
    written: list[Any] = field(default_factory=list)


def windows(assigner: Any, *more: Any, bundled: bool = True, **named: Any) -> Callable[[], Any]:
    return lambda: WindowOperator(plan(assigner, *more, **named), bundled)


def co_grouped() -> JoinedWindowOperator:
    call = WindowCall("apply", CoGroupCall(Together()))
    key_of = SidedKey(first, first)
    windows = TumblingEventTimeWindows(10)
    return JoinedWindowOperator(WindowPlan(key_of, windows, EventTimeTrigger(), Listed(), call))


WITH_STATE = WindowCall("process", CountedWindows())
SLIDES = SlidingEventTimeWindows(10, 5)
WRITTEN: list[Any] = []
LATE = {"late_tag": "late"}

CASES = {
    "map": Case(lambda: MapOperator(Numbered()), (None,), False),
    "filter": Case(lambda: FilterOperator(Numbered()), (None,), False),
    "flat map": Case(lambda: FlatMapOperator(Numbered()), (None,), False),
    "process": Case(lambda: ProcessOperator(Numbered()), (None,), False),
    "sink": Case(lambda: SinkFunctionOperator(Numbered(WRITTEN)), (None,), False, written=WRITTEN),
    "keyed map": Case(lambda: MapOperator(Counted(), first)),
    "keyed filter": Case(lambda: FilterOperator(Counted(), first)),
    "keyed flat map": Case(lambda: FlatMapOperator(Counted(), first)),
    "keyed process": Case(lambda: KeyedProcessOperator(Counted(), first)),
    "reduce": Case(lambda: ReduceOperator(lambda a, b: (a[0], a[1] + b[1]), first, False)),
    "sum": Case(lambda: AggregateOperator("sum", 1, first, False)),
    "co-map": Case(lambda: CoMapOperator(Numbered()), (None, None), False, TWO),
    "keyed co-map": Case(
        lambda: CoMapOperator(Counted(), (first, first)), (first, first), script=TWO
    ),
    "co-flat-map": Case(lambda: CoFlatMapOperator(Numbered()), (None, None), False, TWO),
    "co-process": Case(lambda: CoProcessOperator(Numbered()), (None, None), False, TWO),
    "keyed co-process": Case(
        lambda: KeyedCoProcessOperator(Counted(), first, first), (first, first), script=TWO
    ),
    "broadcast": Case(lambda: BroadcastProcessOperator(Ruled()), (None, ALL), False, TWO),
    "keyed broadcast": Case(
        lambda: KeyedBroadcastProcessOperator(RuledByKey(), first), (first, ALL), script=TWO
    ),
    "interval join": Case(
        lambda: IntervalJoinOperator(Pair(), first, first, Interval(-4, 3, ("left", "right"))),
        (first, first),
        script=TWO,
    ),
    "co-group": Case(co_grouped, (first, first), script=TWO),
    "tumbling": Case(windows(TumblingEventTimeWindows(10), SUMS, **LATE)),
    "sliding": Case(windows(SLIDES, LISTED, **LATE)),
    "sliding, with lateness": Case(windows(SLIDES, SUMS, lateness_ms=6, **LATE)),
    "sliding, with lateness, one by one": Case(
        windows(SLIDES, SUMS, lateness_ms=6, bundled=False, **LATE)
    ),
    "sliding, with state": Case(windows(SLIDES, LISTED, WITH_STATE, **LATE), rescales=False),
    "sessions": Case(windows(EventTimeSessionWindows(4), SUMS, **LATE)),
    "sessions, one by one": Case(windows(EventTimeSessionWindows(4), SUMS, bundled=False, **LATE)),
    "sessions, with lateness": Case(windows(EventTimeSessionWindows(4), LISTED, lateness_ms=5)),
    "by the clock": Case(windows(TumblingProcessingTimeWindows(6), SUMS)),
    "by the clock, one by one": Case(windows(TumblingProcessingTimeWindows(6), bundled=False)),
    "sessions by the clock": Case(windows(ProcessingTimeSessionWindows(6), SUMS)),
    "by number": Case(windows(count_assigner(3, None))),
    "by number, sliding": Case(windows(count_assigner(3, 2))),
    "all, by a count": Case(windows(GlobalWindows(), trigger=CountTrigger(2))),
    "continuous": Case(
        windows(TumblingEventTimeWindows(20), trigger=ContinuousEventTimeTrigger(4))
    ),
    "with an evictor": Case(
        windows(TumblingEventTimeWindows(10), evictor=CountEvictor(2), lateness_ms=3, **LATE)
    ),
}

ELSEWHERE = {
    "AsyncWaitOperator": "test_async_restored.py",
    "MergedPartialsOperator": "../columns/test_operators.py",
    "SinkOperator": "test_sinks.py",
    "SourceOperator": "test_source_restored.py",
    "TwoPhaseSinkOperator": "test_sinks.py",
    "WindowJoinOperator": "../columns/test_window_join.py",
}
"""Operators whose state has tests of its own."""

BASES = {
    FunctionOperator,
    BufferingOperator,
    PolledOperator,
    StatefulOperator,
    TwoInputOperator,
}
WITHOUT = {
    *(BatchesOperator, PartialsOperator, RecordsOperator),  # what they hold leaves before a barrier
    *(SortedInput, TimedOperator, TimestampsOperator),
}
"""Operators that leave nothing; see below."""


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Backends]:
    made = RocksBackends(StateSettings(rocksdb_folder=str(tmp_path)))
    yield made
    made.close()


Others = Mapping[int, tuple[int, Backends | None]]
"""After how many steps other tasks are restored from stored state: how many, and their backends."""


def run(case: Case, others: Others, size: int = 1) -> list[list[Any]]:
    """What is sent in each step."""
    tasks = OperatorTasks(case.make, case.keys_of, size)
    seen: list[list[Any]] = []
    for number, action in enumerate(case.script):
        if number in others:
            states = tasks.stored_states()
            tasks.close()
            size, backends = others[number]
            tasks = OperatorTasks(case.make, case.keys_of, size, tasks.clock, states, backends)
            tasks.clock.move_to(tasks.clock.now_ms)
            watermarks = [step for step in case.script[:number] if isinstance(step, Watermark)]
            for before in watermarks[:-1]:  # sources begin anew with event time, and were further
                tasks.apply(before)
            assert tasks.seen == [], "nothing is sent twice"
        tasks.apply(action)
        seen.append([*tasks.seen, *case.written])
        tasks.seen.clear()
        case.written.clear()
    tasks.close()
    return seen


@pytest.mark.parametrize("name", CASES)
def test_an_operator_that_is_cut_anywhere_and_restored_sends_the_same(name: str) -> None:
    case = CASES[name]
    look = list if case.keys_of[0] is None else comparable  # between keys there is no order
    undisturbed = look(run(case, {}))
    assert any(undisturbed), "a case that sends nothing shows nothing"
    for cut in range(1, len(case.script)):
        assert look(run(case, {cut: (1, None)})) == undisturbed, f"cut after {cut} steps"


KEYED = [name for name, case in CASES.items() if case.rescales]


def comparable(seen: list[list[Any]]) -> list[Counter[str]]:
    """Each step without the order between keys."""
    return [Counter(map(repr, step)) for step in seen]


def distinct(seen: list[list[Any]]) -> list[set[str]]:
    """What the broadcast side sends comes once from each task."""
    return [set(map(repr, step)) for step in seen]


@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (2, 3)])
def test_keys_find_their_state_in_more_or_fewer_tasks(name: str, sizes: tuple[int, int]) -> None:
    case = CASES[name]
    look: Any = distinct if ALL in case.keys_of else comparable
    undisturbed = look(run(case, {}))
    before, after = sizes
    for cut in range(1, len(case.script)):
        found = look(run(case, {cut: (after, None)}, before))
        assert found == undisturbed, f"cut after {cut} steps"


@pytest.mark.parametrize("name", KEYED)
def test_what_one_backend_has_left_the_other_goes_on_with(name: str, on_disk: Backends) -> None:
    case = CASES[name]
    there_and_back = {7: (1, on_disk), 11: (1, None)}
    assert comparable(run(case, there_and_back)) == comparable(run(case, {}))


def operators_of_core() -> set[type[Operator]]:
    """All there are."""
    for module in pkgutil.walk_packages(headgate.core.__path__, "headgate.core."):
        importlib.import_module(module.name)
    found: set[type[Operator]] = set()
    waiting = [Operator]
    while waiting:
        kinds = [kind for kind in waiting.pop().__subclasses__() if kind not in found]
        waiting += kinds
        found.update(kind for kind in kinds if kind.__module__.startswith("headgate.core."))
    return found


def test_no_operator_is_forgotten() -> None:
    covered = {type(case.make()) for case in CASES.values()} | BASES | WITHOUT
    uncovered = {kind.__name__ for kind in operators_of_core() - covered}
    assert uncovered == set(ELSEWHERE)
    here = Path(__file__).parent
    assert all((here / test).exists() for test in ELSEWHERE.values())


def test_the_assigner_of_timestamps_leaves_nothing() -> None:
    for make in (partial(TimestampsOperator, TimePlan(silent)), TimedOperator):
        tasks = OperatorTasks(make)
        tasks.apply(Send([("a", 1)]))
        assert tasks.stored_states() == [([], None, False, None, ())]
        tasks.close()


def test_a_batch_takes_no_checkpoint() -> None:
    tasks = OperatorTasks(lambda: SortedInput(lambda: MapOperator(Counted(), first), (first,)))
    with pytest.raises(AssertionError, match="a batch job takes no checkpoints"):
        tasks.stored_states()
    tasks.close()


def test_an_operator_whose_function_keeps_nothing_leaves_nothing() -> None:
    tasks = OperatorTasks(lambda: MapOperator(str))
    tasks.apply(Send([(1, None)]))
    assert tasks.stored_states() == [([], None, True, None, ())]
    tasks.close()


def test_timers_that_were_due_while_the_job_was_down_fire_after_the_restore() -> None:
    for name in ("keyed process", "by the clock", "by the clock, one by one"):
        case = CASES[name]
        tasks = OperatorTasks(case.make, case.keys_of)
        tasks.apply(Send([(("a", 1), 1)]))
        states, clock = tasks.stored_states(), tasks.clock
        tasks.close()
        clock.mails.clear()
        clock.now_ms += 1_000_000
        again = OperatorTasks(case.make, case.keys_of, 1, clock, states)
        assert again.seen == []
        again.apply(Clock(0))
        assert len(again.seen) == 1, name
        again.apply(Clock(1_000_000))
        assert len(again.seen) == 1, "once"
        again.close()


def test_after_the_end_of_event_time_it_begins_anew() -> None:
    """A job that was drained and goes on later must not take all that is new for late."""
    case = CASES["tumbling"]
    tasks = OperatorTasks(case.make, case.keys_of)
    for action in ONE:
        tasks.apply(action)
    states = tasks.stored_states()
    tasks.close()
    again = OperatorTasks(case.make, case.keys_of, 1, None, states)
    again.apply(Send([(("a", 1), 1)]))
    again.apply(Watermark(20))
    assert [(tag, record) for tag, record, _ in again.seen] == [(None, ("a", 1))]
    again.close()


def test_of_tasks_that_were_not_equally_far_the_slowest_counts() -> None:
    case = CASES["tumbling"]
    tasks = OperatorTasks(case.make, case.keys_of, 2)
    for operator, watermark_ms in zip(tasks.operators, (100, 40), strict=True):
        operator.watermark_advanced(Watermark(watermark_ms))
    again = OperatorTasks(case.make, case.keys_of, 1, None, tasks.stored_states())
    again.apply(Send([(("a", 1), 45), (("a", 2), 39)]))
    assert [tag for tag, *_ in again.seen] == ["late"]
    again.close()
    tasks.close()


def test_a_snapshot_that_is_being_written_does_not_see_what_comes_after_it() -> None:
    case = CASES["keyed process"]
    tasks = OperatorTasks(case.make, case.keys_of)
    tasks.apply(Send([(("a", 1), 1)]))
    snapshot = tasks.operators[0].snapshot(MOMENT)
    tasks.apply(Send([(("a", 2), 2)]))
    assert snapshot.keyed is not None
    groups = list(snapshot.keyed.groups())
    snapshot.close()
    state = stored_state(tasks.operators[0])._replace(groups=groups)
    again = OperatorTasks(case.make, case.keys_of, 1, None, [state])
    again.apply(Send([(("a", 3), 3)]))
    assert again.seen[0][1][0][1:] == (2, 4, 2)
    again.close()
    tasks.close()


def test_a_function_that_fails_leaves_no_snapshot_open() -> None:
    class Failing(Counted):
        def snapshot_state(self, context: Any) -> None:
            raise ValueError("not now")

    tasks = OperatorTasks(lambda: MapOperator(Failing(), first), (first,))
    tasks.apply(Send([(("a", 1), 1)]))
    with pytest.raises(ValueError, match="not now"):
        tasks.stored_states()
    keyed: Any = tasks.operators[0]._keyed  # type: ignore[attr-defined]
    assert all(type(spaces.view) is dict for spaces in keyed.backend._spaces.values())
    tasks.close()


def test_functions_that_listen_are_told_what_became_of_checkpoints() -> None:
    class Listening(Together):
        notified: list[Any] = []  # noqa: RUF012 - one list for all

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            self.notified.append(checkpoint_id)

        def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
            self.notified.append(-checkpoint_id)

    call = WindowCall("apply", CoGroupCall(Listening()))
    many = WindowPlan(
        SidedKey(first, first), TumblingEventTimeWindows(10), EventTimeTrigger(), LISTED, call
    )
    for operator in (MapOperator(Listening(), first), JoinedWindowOperator(many)):
        tasks = OperatorTasks(lambda operator=operator: operator)  # type: ignore[misc]
        tasks.operators[0].checkpoint_completed(3)
        tasks.operators[0].checkpoint_aborted(4)
        assert Listening.notified == [3, -4]
        Listening.notified.clear()
        tasks.close()
