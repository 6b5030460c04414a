"""Metrics of users' functions reach Prometheus whatever their names, or one sentence says why."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.base.messages import TaskFigures, UserFigure
from tests.observe.kit import MIDDLE, SOURCE, figures
from tests.observe.still_job import STARTED_AT_MS, StillJob

pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headgate.observe.prometheus import exposition
from headgate.observe.user_metrics import MAX_METRICS, clean_name, warn_once

VALUES: dict[str, dict[str, int | float]] = {
    "counter": {"count": 5},
    "gauge": {"value": 2.5},
    "meter": {"count": 7, "rate": 1.5},
    "distribution": {"count": 2, "sum": 9, "min": 4, "max": 5},
}


@pytest.fixture(autouse=True)
def _tell_again() -> Iterator[None]:
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def figure(
    name: str,
    kind: str = "counter",
    scope: tuple[str, ...] = (),
    operator: str = "map",
    **values: float,
) -> UserFigure:
    return UserFigure(operator, scope, name, kind, {**values} or VALUES[kind])


def task(*user: UserFigure, vertex: int = MIDDLE, subtask: int = 0) -> TaskFigures:
    return structs.replace(figures(vertex, subtask), user=user)


def samples(*jobs: StillJob, subtasks: bool = False) -> dict[str, list[float]]:
    """What Prometheus reads of users' metrics, the same in both formats."""
    found: list[dict[str, list[float]]] = []
    for accept, parse in (
        ("", parse_text),
        ("application/openmetrics-text", parse_openmetrics),
    ):
        found.append({})
        text = exposition(jobs, subtasks=subtasks, accept=accept).decode()
        seen = set()
        for family in parse(text):
            for sample in family.samples:
                if sample.name.startswith("headgate_user_"):
                    found[-1].setdefault(sample.name, []).append(sample.value)
                    key = (sample.name, *sorted(sample.labels.items()))
                    assert key not in seen, f"{key} is there twice"
                    seen.add(key)
    assert found[0] == found[1]
    return found[0]


def test_each_kind_has_its_type() -> None:
    kinds = [figure(kind, kind, ("of", "mine")) for kind in VALUES]
    prefix = "headgate_user_of_mine"
    assert samples(StillJob([task(*kinds)])) == {
        f"{prefix}_counter": [5],
        f"{prefix}_gauge": [2.5],
        f"{prefix}_gauge_min": [2.5],
        f"{prefix}_gauge_max": [2.5],
        f"{prefix}_meter_total": [7],
        f"{prefix}_distribution_count": [2],
        f"{prefix}_distribution_sum": [9],
        f"{prefix}_distribution_min": [4],
        f"{prefix}_distribution_max": [5],
    }
    text = exposition([StillJob([task(*kinds)])]).decode()
    assert f"# TYPE {prefix}_counter gauge" in text, "dec() lets it fall"
    assert f"# TYPE {prefix}_meter_total counter" in text
    assert f"# TYPE {prefix}_distribution summary" in text
    assert 'operator="map"' in text


def test_subtasks_are_merged_by_sum_and_extremes() -> None:
    tasks = [
        task(figure("g", "gauge", value=3), figure("d", "distribution"), subtask=0),
        task(
            figure("g", "gauge", value=5),
            figure("d", "distribution", count=1, sum=1, min=1, max=1),
            subtask=1,
        ),
    ]
    merged = samples(StillJob(tasks))
    assert merged["headgate_user_g"] == [8]
    assert merged["headgate_user_g_min"] == [3]
    assert merged["headgate_user_g_max"] == [5]
    assert merged["headgate_user_d_count"] == [3]
    assert merged["headgate_user_d_min"] == [1]
    assert merged["headgate_user_d_max"] == [5]
    each = samples(StillJob(tasks), subtasks=True)
    assert each["headgate_user_g"] == [3, 5]
    assert "headgate_user_g_max" not in each


@pytest.mark.parametrize(
    ("scope", "name", "expected"),
    [
        ((), "seen", "headgate_user_seen"),
        (("a b",), "c-d", "headgate_user_a_b_c_d"),
        ((), "99th", "headgate_user_99th"),
        (("größe",), "é1", "headgate_user_gr__e__1"),
        ((), "events_total", "headgate_user_events"),
        (("ü",), "x:y", "headgate_user___x_y"),
        ((), "температура", None),
        ((), " ", None),
        ((), "", None),
        ((), "_", None),
    ],
)
def test_names_are_made_valid(scope: tuple[str, ...], name: str, expected: str | None) -> None:
    assert clean_name((*scope, name)) == expected


def test_name_of_which_nothing_is_left_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    job = StillJob([task(figure("温度", "gauge"), figure("ok"))])
    assert [samples(job) for _ in range(3)] == [{"headgate_user_ok": [5]}] * 3
    (record,) = caplog.records
    assert record.getMessage() == (
        "metric '温度' of operator 'map' in job 'unnamed': it is not shown to Prometheus, "
        "because nothing is left of its name: use ASCII letters"
    )


def test_names_that_collide_after_cleaning_leave_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for order in (1, -1):
        both = [figure("a b", count=1), figure("a_b", count=2)][::order]
        assert samples(StillJob([task(*both)])) == {"headgate_user_a_b": [1]}
    assert len(caplog.records) == 1
    assert "headgate_user_a_b is the metric 'a b' already" in caplog.text


def test_same_name_of_another_kind_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tasks = [task(figure("x", "meter"), vertex=MIDDLE), task(figure("x", "gauge"), vertex=SOURCE)]
    assert samples(StillJob(tasks)) == samples(StillJob(tasks[::-1]))
    assert [*samples(StillJob(tasks))] == [
        "headgate_user_x",
        "headgate_user_x_min",
        "headgate_user_x_max",
    ]
    assert "headgate_user_x belongs to the gauge headgate_user_x" in caplog.text


def test_names_that_a_summary_needs_are_its_own() -> None:
    found = samples(StillJob([task(figure("d", "distribution"), figure("d_count", count=77))]))
    assert found["headgate_user_d_count"] == [2]
    assert len(found) == 4


def test_of_two_jobs_the_older_one_keeps_the_name() -> None:
    old = StillJob([task(figure("x", "gauge"))], job_id="b")
    new = StillJob([task(figure("x", "meter"))], job_id="a", started_at_ms=STARTED_AT_MS + 1)
    same = StillJob([task(figure("x", "gauge"))], job_id="c", started_at_ms=STARTED_AT_MS + 2)
    assert samples(new, old, same)["headgate_user_x"] == [2.5, 2.5]


def test_values_that_are_no_finite_numbers_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    values = (math.nan, math.inf, 3.0)
    tasks = [task(figure("g", "gauge", value=value), subtask=n) for n, value in enumerate(values)]
    assert samples(StillJob(tasks))["headgate_user_g"] == [3]
    assert samples(StillJob(tasks[:2])) == {}
    assert len(caplog.records) == 1
    assert "metric 'g' of operator 'map'" in caplog.text


def test_a_metric_for_each_key_is_cut_and_told(caplog: pytest.LogCaptureFixture) -> None:
    many = [figure(f"key{number:05}") for number in range(MAX_METRICS + 10)]
    found = samples(StillJob([task(*many)]))
    assert len(found) == MAX_METRICS
    assert "headgate_user_key00000" in found
    assert len(caplog.records) == 1
    assert "has more than 1,000 metrics of its functions; Prometheus gets the first" in caplog.text


NAMES = st.text(max_size=6) | st.sampled_from(["x", "x_total", "x_count", "x_min", "x_sum", "x y"])


@given(
    st.lists(
        st.tuples(
            NAMES,
            st.sampled_from(sorted(VALUES)),
            st.sampled_from(["map", "filter"]),
            st.integers(0, 1),
        ),
        max_size=8,
        unique_by=lambda it: (it[0], it[2], it[3]),
    )
)
def test_any_names_can_be_scraped(found: list[tuple[str, str, str, int]]) -> None:
    tasks = [
        task(
            *(figure(name, kind, (), operator) for name, kind, operator, at in found if at == part),
            subtask=part,
        )
        for part in (0, 1)
    ]
    names = samples(StillJob(tasks))
    assert samples(StillJob(tasks[::-1])) == names
