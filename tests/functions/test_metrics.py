"""Counters, gauges, meters and distributions of a user's own."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from headgate.base.messages import Metrics, TaskFigures, TaskState, UserFigure
from headgate.control.frames import LENGTH, TO_DRIVER, encode
from headgate.functions.metrics import MetricGroup


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group(clock: Clock) -> MetricGroup:
    return MetricGroup(clock)


def figures(group: MetricGroup) -> dict[str, dict[str, float]]:
    return {".".join((*metric.scope, metric.name)): metric.values for metric in read(group)}


def read(group: MetricGroup, problems: list[tuple[str, str]] | None = None) -> list[UserFigure]:
    found = [] if problems is None else problems
    figures = group.read("op", lambda metric, problem: found.append((metric, problem)))
    return [figure for figure in figures if figure is not None]


def test_a_counter_counts_up_and_down(group: MetricGroup) -> None:
    counter = group.counter("lines")
    counter.inc()
    counter.inc(5)
    counter.dec()
    counter.dec(2)
    assert counter.get_count() == 3
    assert read(group) == [UserFigure("op", (), "lines", "counter", {"count": 3})]


def test_a_gauge_is_asked_when_figures_are_read(group: MetricGroup) -> None:
    waiting = [1, 2]
    group.gauge("waiting", lambda: len(waiting))
    waiting.append(3)
    assert figures(group) == {"waiting": {"value": 3}}


def test_a_gauge_may_be_replaced(group: MetricGroup) -> None:
    group.gauge("share", lambda: 1)
    group.gauge("share", lambda: 0.5)
    assert figures(group) == {"share": {"value": 0.5}}


class Unshown(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("not even that")


def fail(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda: 1 / 0, "ZeroDivisionError('division by zero')"),
        (lambda: fail(SystemExit(1)), "SystemExit(1)"),
        (lambda: fail(Unshown()), "Unshown"),
        (lambda: "7", "TypeError('a str is no number')"),
        (lambda: None, "TypeError('NoneType is no number')"),
        (lambda: [1], "TypeError('list is no number')"),
        (lambda: 10**400, "OverflowError('int too large to convert to float')"),
    ],
)
def test_a_gauge_that_gives_no_number_is_left_out_and_reported(
    group: MetricGroup, answer: Any, problem: str
) -> None:
    group.add_group("part").gauge("bad", answer)
    group.counter("good").inc()
    for _ in range(2):  # it is asked again: it may have needed a first record
        problems: list[tuple[str, str]] = []
        assert [figure.name for figure in read(group, problems)] == ["good"]
        assert problems == [("part.bad", problem)]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1),
        (np.int64(4), 4),
        (np.float32(0.5), 0.5),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 4), 0.25),
        (2**70, 2.0**70),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
    ],
)
def test_numbers_of_all_kinds_travel(group: MetricGroup, value: Any, number: float) -> None:
    group.gauge("g", lambda: value)
    group.counter("c").inc(value)
    gauge, counter = sorted(carried(group), key=lambda figure: figure.kind, reverse=True)
    assert gauge.values == {"value": number}
    assert type(gauge.values["value"]) is type(number)
    assert counter.values == {"count": number}


def test_a_number_that_is_none_and_names_of_all_kinds_travel(group: MetricGroup) -> None:
    group.gauge("g", lambda: math.nan)
    (nan,) = carried(group)
    assert math.isnan(nan.values["value"])
    strange = MetricGroup(lambda: 0)
    strange.add_group("a\ud800").counter("n" * 1000)
    (figure,) = carried(strange)
    assert figure.scope == ("a\\ud800",)
    assert figure.name == "n" * 200


def carried(group: MetricGroup) -> list[UserFigure]:
    """Read here and decoded at the driver."""
    task = TaskFigures("0.0", 0, 0, TaskState.RUNNING, user=tuple(read(group)))
    found = TO_DRIVER.decode(encode(Metrics("run", [task]))[LENGTH.size :])
    assert isinstance(found, Metrics)
    return list(found.figures[0].user)


def test_a_meter_tells_the_mean_rate_over_its_span(group: MetricGroup, clock: Clock) -> None:
    meter = group.meter("events", 10)
    for second in range(30):
        clock.now = second * 1000
        meter.mark_event(2 if second < 15 else 4)
    assert meter.get_count() == 15 * 2 + 15 * 4
    assert meter.get_rate() == pytest.approx(4, rel=0.11)
    clock.now += 20_000
    assert meter.get_rate() == pytest.approx(0, abs=2.1)


def test_a_meter_that_has_just_begun_has_no_rate(group: MetricGroup) -> None:
    meter = group.meter("events")
    meter.mark_event()
    assert meter.get_rate() == 0.0
    assert figures(group) == {"events": {"count": 1, "rate": 0.0}}


def test_a_meter_keeps_few_marks_however_many_events(group: MetricGroup, clock: Clock) -> None:
    meter = group.meter("events", 60)
    for clock.now in range(0, 600_000, 10):
        meter.mark_event()
    assert meter.get_rate() == pytest.approx(100, rel=0.05)
    assert len(meter._marks) < 70


def test_a_distribution_knows_count_sum_and_bounds(group: MetricGroup) -> None:
    sizes = group.distribution("sizes")
    assert figures(group) == {"sizes": {"count": 0, "sum": 0}}
    for size in (5, -2, 9):
        sizes.update(size)
    assert figures(group) == {"sizes": {"count": 3, "sum": 12, "min": -2, "max": 9}}


def test_groups_have_scopes_and_are_the_same_when_asked_for_again(group: MetricGroup) -> None:
    inner = group.add_group("shop").add_group("country", "se")
    inner.counter("orders").inc()
    assert group.add_group("shop").add_group("country", "se") is inner
    assert inner.get_scope_components() == ["shop", "country", "se"]
    assert figures(group) == {"shop.country.se.orders": {"count": 1}}


def test_the_same_name_is_the_same_figure(group: MetricGroup) -> None:
    assert group.counter("n") is group.counter("n")
    assert group.meter("m") is group.meter("m")
    assert group.distribution("d") is group.distribution("d")


def test_a_name_has_one_kind(group: MetricGroup) -> None:
    group.counter("n")
    group.gauge("g", lambda: 1)
    with pytest.raises(ValueError, match="'n' is that of a counter already; choose another"):
        group.meter("n")
    with pytest.raises(ValueError, match="'n' is that of a counter already"):
        group.gauge("n", lambda: 1)
    with pytest.raises(ValueError, match="'g' is that of a gauge already"):
        group.counter("g")


def test_bad_names_and_gauges_are_refused(group: MetricGroup) -> None:
    with pytest.raises(ValueError, match="text that is not empty"):
        group.counter("")
    with pytest.raises(ValueError, match="text that is not empty"):
        group.add_group("")
    with pytest.raises(TypeError, match="give a callable"):
        group.gauge("g", 3)  # type: ignore[arg-type]


def test_a_group_knows_whether_it_holds_anything(group: MetricGroup) -> None:
    inner = group.add_group("a")
    assert not group.has_figures
    inner.gauge("g", lambda: 1)
    assert group.has_figures
