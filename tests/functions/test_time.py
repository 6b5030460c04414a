"""Spans and points of time."""

import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import Duration, Instant, Time
from headgate.functions.time import whole_ms


def test_spans_count_in_milliseconds() -> None:
    spans = [Time.milliseconds(5), Time.seconds(2), Time.minutes(1), Time.hours(1), Time.days(1)]
    assert [span.to_milliseconds() for span in spans] == [5, 2000, 60_000, 3_600_000, 86_400_000]
    assert Time.seconds(60) == Time.minutes(1) < Time.hours(1)


def test_durations_count_in_nanoseconds() -> None:
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert Duration.of_millis(7).to_millis() == 7
    assert Duration.of_seconds(1, 500_000_000).to_millis() == 1500
    assert Duration.of_minutes(1) == Duration.of_seconds(60)
    assert Duration.of_hours(24) == Duration.of_days(1)


def test_instants_before_1970_round_down() -> None:
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant.of_epoch_milli(-1).to_epoch_milli() == -1
    assert Instant(2).to_epoch_milli() == 2000


def test_spans_are_whole_milliseconds_and_nanoseconds() -> None:
    assert Time.seconds(0.5).to_milliseconds() == 500  # type: ignore[arg-type]
    assert type(Time.seconds(0.5).to_milliseconds()) is int  # type: ignore[arg-type]
    assert Duration.of_seconds(0.5).to_millis() == 500  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="Time was given 0.5 milliseconds; give a whole number"):
        Time.milliseconds(0.5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="Duration was given '5' nanoseconds"):
        Duration("5")  # type: ignore[arg-type]


def test_a_span_is_made_by_name_and_written_with_its_unit() -> None:
    assert Time(milliseconds=7) == Time.milliseconds(7)
    assert str(Time(milliseconds=7)) == "7 ms"


@pytest.mark.parametrize("span", [Time.seconds(5), Duration.of_seconds(5)])
def test_a_time_and_a_duration_are_spans(span: object) -> None:
    assert whole_ms(span, "f() was given") == whole_ms(span, "f() was given", 1) == 5000


@pytest.mark.parametrize("span", [5, None, "5 s", Time])
def test_what_is_no_span_is_refused_with_an_example(span: object) -> None:
    with pytest.raises(PlanInvalid, match=r"f\(\) was given .*Time\.seconds\(5\)"):
        whole_ms(span, "f() was given")


def test_a_span_of_nothing_is_refused_where_time_must_pass() -> None:
    assert whole_ms(Time.milliseconds(-3), "f() was given") == -3
    with pytest.raises(PlanInvalid, match=r"f\(\) was given 0 ms; give 1 ms or more"):
        whole_ms(Time.milliseconds(0), "f() was given", 1)
