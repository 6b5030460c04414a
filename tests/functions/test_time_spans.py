"""Spans of time as a user writes them."""

import pytest

from headgate.base.errors import PlanInvalid
from headgate.functions.time import Duration, Time, whole_ms


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
