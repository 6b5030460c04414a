"""Records and watermarks stay in line from task to task: nobody but its own generator makes a
record late, however bundles are cut, channels are read and the clock ticks."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.base.messages import TimeAnnounced
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import TimePlan
from headgate.core.egress.router import RoundRobin
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.timestamps import TimestampsOperator
from headgate.core.task.task import StepResult, Task
from headgate.functions.watermarks import AlignmentGroup, WatermarkOutput
from tests.core.chain.time_kit import ScriptedGenerator, bounded, custom
from tests.core.operators.kit import ScriptedSource
from tests.core.task.kit import Lab, step_until

INTERVAL_MS = 20


class Watcher(Operator):
    """Notes which records come behind a watermark that they do not exceed."""

    def __init__(self) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.on_time: list[Any] = []
        self.too_late: list[Any] = []

    def process(self, bundle: Bundle, number: int) -> None:
        assert bundle.timestamps is not None
        for record, time in zip(bundle.records, bundle.timestamps, strict=True):
            assert time == record[0], "a record keeps its own time"
            (self.too_late if time <= self.watermark_ms else self.on_time).append(record)
        self.output.collect(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        assert watermark.timestamp_ms > self.watermark_ms, "event time never goes back"
        self.watermark_ms = watermark.timestamp_ms
        super().watermark_advanced(watermark)


class Punctuated:
    """A generator with a bound that speaks for every record."""

    def __init__(self, bound_ms: int) -> None:
        self.bound_ms = bound_ms
        self.highest = MIN_WATERMARK_MS

    def make(self) -> ScriptedGenerator:
        return ScriptedGenerator(self.on_event)

    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        self.highest = max(self.highest, timestamp)
        output.emit_watermark(Watermark(self.highest - self.bound_ms - 1))


def plan_of(bound_ms: int, punctuated: bool) -> TimePlan:
    if punctuated:
        return custom(Punctuated(bound_ms).make, interval_ms=INTERVAL_MS)
    return bounded(bound_ms, interval_ms=INTERVAL_MS)


def late_by_definition(times: list[Any], bound_ms: int) -> list[Any]:
    """With a watermark after every record: those at or below the highest less bound and one."""
    late, highest = [], MIN_WATERMARK_MS
    for record in times:
        if record[0] <= highest - bound_ms - 1:
            late.append(record)
        highest = max(highest, record[0])
    return late


producers = st.lists(
    st.lists(st.lists(st.integers(0, 50), max_size=5), max_size=5), min_size=1, max_size=3
)


@given(
    bound_ms=st.integers(0, 10),
    punctuated=st.booleans(),
    made=producers,
    readers=st.integers(1, 2),
    turns=st.lists(st.integers(0, 5), max_size=60),
)
def test_a_record_is_late_only_where_it_was_late_from_the_start(
    bound_ms: int, punctuated: bool, made: list[Any], readers: int, turns: list[int]
) -> None:
    splits = [
        tuple([(time, index, a, b) for b, time in enumerate(poll)] for a, poll in enumerate(split))
        for index, split in enumerate(made)
    ]
    with Lab(segments=128) as lab:
        near = [Watcher() for _ in splits]
        far = [Watcher() for _ in range(readers)]
        tasks: list[Task] = []
        for index, split in enumerate(splits):
            writer = lab.writer(f"p{index}", readers, RoundRobin())
            tasks.append(
                lab.task(
                    lambda split=split: SourceOperator(ScriptedSource(), (split,)),  # type: ignore[misc]
                    lambda: TimestampsOperator(plan_of(bound_ms, punctuated)),
                    lambda index=index: near[index],  # type: ignore[misc]
                    writers=(writer,),
                )
            )
        for number in range(readers):
            names = [f"p{index}" for index in range(len(splits))]
            gate = lab.gate(*names, subpartition=number)
            tasks.append(lab.task(lambda number=number: far[number], gates=((gate,),)))  # type: ignore[misc]
        _run_in_turns(lab, tasks, turns)
    for watcher, split in zip(near, splits, strict=True):
        records = [record for poll in split for record in poll]
        if punctuated:
            assert watcher.too_late == late_by_definition(records, bound_ms)
        else:
            assert set(watcher.too_late) <= set(late_by_definition(records, bound_ms))
    assert {record for operator in far for record in operator.too_late} <= {
        r for operator in near for r in operator.too_late
    }
    assert {w.watermark_ms for w in (*near, *far)} == {MAX_WATERMARK_MS}
    arrived = sorted(
        record for operator in far for record in (*operator.too_late, *operator.on_time)
    )
    assert arrived == sorted(record for split in splits for poll in split for record in poll)


def _run_in_turns(lab: Lab, tasks: list[Task], turns: list[int]) -> None:
    """The tasks that the list names make a step each, and time passes; then all to their end."""
    left = list(tasks)

    def step(task: Task) -> None:
        if task.step() is StepResult.DONE:
            task.close(None)
            left.remove(task)

    for turn in turns:
        lab.timers.pass_ms(7)
        if left:
            step(left[turn % len(left)])
    for _ in range(2000):
        if not left:
            return
        lab.timers.pass_ms(7)
        for task in list(left):
            step(task)
    raise AssertionError("they do not come to an end")


def test_a_task_that_waits_for_its_group_goes_on_when_that_is_announced() -> None:
    plan = bounded(alignment=AlignmentGroup("group", drift_ms=10))
    watcher = Watcher()
    make: list[Callable[[], Operator]] = [
        lambda: SourceOperator(ScriptedSource(), (([(5,)], [(9,)], [(40,)]),), plan),
        lambda: watcher,
    ]
    with Lab() as lab:
        task = lab.task(*make)
        step_until(task, StepResult.IDLE)
        assert watcher.on_time == [(5,)]
        assert lab.times == [("group", MIN_WATERMARK_MS), ("group", 4)], (
            "it tells that it has begun"
        )
        task.obey(TimeAnnounced("run", "group", 4))
        step_until(task, StepResult.IDLE)
        assert watcher.on_time == [(5,), (9,), (40,)]
        task.obey(TimeAnnounced("run", "group", None))
        step_until(task, StepResult.DONE)
        task.close(None)
