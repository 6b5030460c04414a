"""Latencies of markers: the last ones count. Row 167."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.statistics import KEPT, LATELY_MS, Latencies


def test_without_markers_all_is_zero() -> None:
    assert Latencies(lambda: 0.0).percentiles() == (0.0, 0.0)


@given(st.lists(st.floats(-10, 1e6), min_size=1, max_size=50))
def test_percentiles_are_among_what_was_measured_and_in_order(measured: list[float]) -> None:
    latencies = Latencies(lambda: 0.0)
    for latency_ms in measured:
        latencies.measured(latency_ms)
    p50_ms, p99_ms = latencies.percentiles()
    assert {p50_ms, p99_ms} <= {max(0.0, latency_ms) for latency_ms in measured}
    assert p50_ms <= p99_ms <= max(0.0, *measured, 0.0)


def test_old_ones_are_forgotten_but_counted() -> None:
    latencies = Latencies(lambda: 0.0)
    latencies.measured(999.0)
    for _ in range(KEPT):
        latencies.measured(1.0)
    whole = latencies.histogram()
    assert whole is not None and whole.count == KEPT + 1
    assert latencies.percentiles() == (1.0, 1.0)


def test_a_slow_start_is_forgotten_after_half_a_minute_however_few_markers_come() -> None:
    now_ms = [0.0]
    latencies = Latencies(lambda: now_ms[0])
    latencies.measured(9_000.0)
    now_ms[0] = LATELY_MS - 1_000
    latencies.measured(20.0)
    assert latencies.percentiles()[1] == 9_000.0
    now_ms[0] = LATELY_MS + 1
    assert latencies.percentiles()[1] == 20.0
    now_ms[0] = 3 * LATELY_MS
    whole = latencies.histogram()
    assert latencies.percentiles() == (0.0, 0.0), "nothing is known of the present"
    assert whole is not None and whole.count == 2
