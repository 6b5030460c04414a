"""The operator that assigns timestamps: what goes out, when, and what is not passed on."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, LatencyMarker, Watermark
from headgate.base.fields import TUPLES, FieldShape, RecordFields
from headgate.base.shapes import field_shape
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import TimePlan
from headgate.core.operators.timestamps import TimedOperator, TimestampsOperator
from headgate.functions.watermarks import TimestampAssigner, WatermarkOutput
from tests.core.chain.time_kit import (
    ACTIVE,
    IDLE,
    HandClock,
    Line,
    ScriptedGenerator,
    bounded,
    custom,
    open_with,
    records,
    timed,
)

END = Watermark(MAX_WATERMARK_MS)


def test_watermarks_come_at_intervals_and_not_with_records() -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(2, interval_ms=100))
    line = open_with(operator, clock)
    operator.process(records(10, 30, 20), 0)
    assert line.take() == timed(10, 30, 20)
    clock.pass_ms(99)
    assert line.take() == []
    clock.pass_ms(1)
    assert line.take() == [Watermark(27)]
    clock.pass_ms(100)
    assert line.take() == [], "event time stands still"
    operator.process(records(31), 0)
    clock.pass_ms(100)
    assert line.take() == [*timed(31), Watermark(28)]


def test_with_the_interval_0_there_is_only_the_end() -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(interval_ms=0))
    line = open_with(operator, clock)
    operator.process(records(10), 0)
    clock.pass_ms(500)
    assert clock.waiting == 0
    operator.finish()
    assert line.seen == [*timed(10), END]


def test_of_what_comes_from_before_only_the_end_counts() -> None:
    operator = TimestampsOperator(bounded())
    line = open_with(operator, HandClock())
    operator.watermark_advanced(Watermark(5))
    operator.status_changed(IDLE)
    operator.status_changed(ACTIVE)
    assert line.take() == []
    operator.process(records(3), 0)
    operator.watermark_advanced(END)
    operator.finish()
    assert line.take() == [*timed(3), END], "the end is told once"


def test_after_a_source_that_has_applied_the_strategy_all_is_passed_on() -> None:
    operator = TimedOperator()
    line = open_with(operator, HandClock())
    operator.process(Bundle(["a", "b"], [10, 30]), 0)
    operator.watermark_advanced(Watermark(9))
    operator.status_changed(IDLE)
    assert line.take() == [("a", 10), ("b", 30), Watermark(9), IDLE]


def test_latency_markers_pass() -> None:
    operator = TimestampsOperator(bounded())
    line = open_with(operator, HandClock())
    operator.marker_received(LatencyMarker(1, 2, 3))
    assert line.seen == [LatencyMarker(1, 2, 3)]


@pytest.mark.parametrize("how", ["finish", "close"])
def test_after_the_end_no_timer_does_anything(how: str) -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(interval_ms=10, idle_ms=30))
    line = open_with(operator, clock)
    operator.process(records(7), 0)
    getattr(operator, how)()
    line.take()
    clock.pass_ms(100)
    assert line.seen == []
    assert clock.waiting == 0


def test_a_stream_without_records_falls_idle_and_is_active_before_the_next() -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(interval_ms=100, idle_ms=50))
    line = open_with(operator, clock)
    clock.pass_ms(30)
    operator.process(records(10), 0)
    clock.pass_ms(49)
    assert line.take() == timed(10)
    clock.pass_ms(1)
    assert line.take() == [Watermark(9), IDLE], "what is known comes before the silence"
    clock.pass_ms(500)
    assert line.take() == []
    operator.process(records(20), 0)
    assert line.take() == [ACTIVE, *timed(20)]
    clock.pass_ms(50)
    assert line.take()[-1] == IDLE


def test_a_stream_that_never_had_a_record_falls_idle_too() -> None:
    clock = HandClock()
    line = open_with(TimestampsOperator(bounded(idle_ms=50)), clock)
    clock.pass_ms(50)
    assert line.seen == [IDLE]


def test_time_under_backpressure_does_not_make_idle() -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(interval_ms=0, idle_ms=50))
    line = open_with(operator, clock)
    operator.process(records(1), 0)
    line.take()
    clock.held_up_ms = 40.0
    clock.pass_ms(60)
    assert line.take() == []
    clock.pass_ms(30)
    assert line.take() == [IDLE]


def test_a_short_rest_is_not_checked_again_and_again_under_backpressure() -> None:
    clock = HandClock()
    line = open_with(TimestampsOperator(bounded(interval_ms=0, idle_ms=50)), clock)
    clock.held_up_ms = 1e-6
    clock.pass_ms(50)
    rests = [at - clock.now_ms for at, _ in clock._due]
    assert rests == [1.0], "it looks again after a millisecond"
    clock.pass_ms(1)
    assert line.take() == [IDLE]


def test_an_idle_stream_is_active_again_for_its_end() -> None:
    clock = HandClock()
    operator = TimestampsOperator(bounded(interval_ms=0, idle_ms=5))
    line = open_with(operator, clock)
    clock.pass_ms(5)
    operator.finish()
    assert line.seen == [IDLE, ACTIVE, END]


def test_a_generator_of_the_user_is_asked_at_intervals() -> None:
    clock = HandClock()
    marks = iter([Watermark(3), Watermark(8)])

    def now_and_then(output: WatermarkOutput) -> None:
        output.emit_watermark(next(marks))

    operator = TimestampsOperator(
        custom(lambda: ScriptedGenerator(now_and_then=now_and_then), interval_ms=10)
    )
    line = open_with(operator, clock)
    clock.pass_ms(20)
    operator.finish()
    assert line.seen == [Watermark(3), Watermark(8), END]


def test_a_generator_that_marked_itself_idle_is_still_asked() -> None:
    clock = HandClock()
    answers = iter([lambda o: o.mark_idle(), lambda o: None, lambda o: o.emit_watermark(END)])
    generator = ScriptedGenerator(now_and_then=lambda output: next(answers)(output))
    line = open_with(TimestampsOperator(custom(lambda: generator, interval_ms=10)), clock)
    clock.pass_ms(30)
    assert line.seen == [IDLE, ACTIVE, END]


def test_the_assigners_error_tells_what_to_do() -> None:
    operator = TimestampsOperator(bounded(assigner=lambda record, before: "now"))
    open_with(operator, HandClock())
    with pytest.raises(TypeError, match="returned 'now', a str; return milliseconds"):
        operator.process(records(1), 0)


def on_every_third(event: Any, timestamp: int, output: WatermarkOutput) -> None:
    if timestamp % 3 == 0:
        output.emit_watermark(Watermark(timestamp - 4))


happenings = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8) | st.integers(1, 30))


@given(st.integers(0, 10), st.booleans(), happenings)
def test_records_and_watermarks_stay_in_line_however_bundles_are_cut(
    bound_ms: int, own: bool, happened: list[Any]
) -> None:
    """What a stream of single records would give, with the clock ticking at the same places."""
    plan = custom(lambda: ScriptedGenerator(on_every_third)) if own else bounded(bound_ms)

    def lived(cut: bool) -> list[Any]:
        clock, operator = HandClock(), TimestampsOperator(plan)
        line = open_with(operator, clock)
        for what in happened:
            if isinstance(what, int):
                clock.pass_ms(20 * what)
            elif cut:
                for time in what:
                    operator.process(records(time), 0)
            else:
                operator.process(records(*what), 0)
        operator.finish()
        return line.seen

    assert lived(cut=True) == lived(cut=False)


@dataclass
class Visit:
    user: str
    at: Any


class TimeOfVisit(TimestampAssigner):
    def extract_timestamp(self, value: Visit, record_timestamp: int) -> int:
        at: int = value.at
        return at


class Apart(Line):
    """Takes records with a user apart."""

    def __init__(self) -> None:
        super().__init__()
        self.bundles: list[Bundle] = []

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        return "user" in shape.names and count == 2

    def collect(self, bundle: Bundle) -> None:
        self.bundles.append(bundle.copy())
        super().collect(bundle)


def visits(*times: Any) -> Bundle:
    shape = field_shape(Visit, ("user", "at"))
    assert shape is not None
    users = [f"user {number}" for number, _ in enumerate(times)]
    return Bundle.of_fields(RecordFields([users, list(times)], len(times), None, shape))


def opened_apart(operator: Operator) -> Apart:
    line = Apart()
    operator.set_up(line)
    operator.open(HandClock().context())
    return line


def test_records_that_are_taken_apart_get_their_times_from_a_field() -> None:
    operator = TimestampsOperator(bounded(assigner=TimeOfVisit()))
    line = opened_apart(operator)
    bundle = visits(5, 9, 7)
    assert bundle.fields is not None
    assert operator.takes_fields(bundle.fields.shape, 2)
    operator.process(bundle, 0)
    (sent,) = line.bundles
    assert sent.fields is not None and sent.timestamps == [5, 9, 7]
    assert sent.records == visits(5, 9, 7).records
    assert sent.timestamps is not sent.records
    with pytest.raises(TypeError, match="returned 'noon'"):
        operator.process(visits(5, "noon"), 0)
    operator.process(visits(3.5), 0)
    assert line.bundles[-1].timestamps == [3]


@pytest.mark.parametrize(
    "plan",
    [
        custom(ScriptedGenerator, assigner=TimeOfVisit()),
        bounded(assigner=lambda visit, before: visit.at + 1),
        bounded(assigner=lambda visit, before: visit.day),
        bounded(assigner=lambda visit, before: before),
    ],
)
def test_where_times_are_computed_or_generators_look_records_are_wanted(plan: TimePlan) -> None:
    operator = TimestampsOperator(plan)
    opened_apart(operator)
    bundle = visits(5)
    assert bundle.fields is not None
    assert not operator.takes_fields(bundle.fields.shape, 2)


def test_an_operator_without_strategy_passes_fields_on() -> None:
    bundle = visits(5)
    assert bundle.fields is not None
    for operator in (TimedOperator(), TimestampsOperator(bounded(assigner=None))):
        line = opened_apart(operator)
        assert operator.takes_fields(bundle.fields.shape, 2)
        assert not operator.takes_fields(TUPLES, 2)
        operator.process(bundle.copy(), 0)
        assert line.bundles[0].fields is not None
