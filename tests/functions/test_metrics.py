"""Counters, gauges, meters and distributions of a user's own."""

import pytest

from headgate.base.messages import UserFigure
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
    return {".".join((*metric.scope, metric.name)): metric.values for metric in group.read()}


def test_a_counter_counts_up_and_down(group: MetricGroup) -> None:
    counter = group.counter("lines")
    counter.inc()
    counter.inc(5)
    counter.dec()
    counter.dec(2)
    assert counter.get_count() == 3
    assert group.read() == [UserFigure("", (), "lines", "counter", {"count": 3})]


def test_a_gauge_is_asked_when_figures_are_read(group: MetricGroup) -> None:
    waiting = [1, 2]
    group.gauge("waiting", lambda: len(waiting))
    waiting.append(3)
    assert figures(group) == {"waiting": {"value": 3}}


def test_a_gauge_may_be_replaced(group: MetricGroup) -> None:
    group.gauge("share", lambda: 1)
    group.gauge("share", lambda: 0.5)
    assert figures(group) == {"share": {"value": 0.5}}


@pytest.mark.parametrize("answer", [lambda: 1 / 0, lambda: "many"])
def test_a_gauge_that_fails_is_left_out_and_not_asked_again(
    group: MetricGroup, answer: object
) -> None:
    calls = []
    group.gauge("bad", lambda: calls.append(1) or answer())  # type: ignore[operator]
    group.counter("good").inc()
    assert figures(group) == {"good": {"count": 1}}
    assert figures(group) == {"good": {"count": 1}}
    assert calls == [1]


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
