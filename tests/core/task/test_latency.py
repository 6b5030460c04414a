"""Latencies of markers: the last ones count. Row 167."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.statistics import KEPT, Latencies


def test_without_markers_all_is_zero() -> None:
    seen = Latencies().statistics()
    assert (seen.markers, seen.p50_ms, seen.p99_ms, seen.max_ms) == (0, 0.0, 0.0, 0.0)


@given(st.lists(st.floats(-10, 1e6), min_size=1, max_size=50))
def test_percentiles_are_among_what_was_measured_and_in_order(measured: list[float]) -> None:
    latencies = Latencies()
    for latency_ms in measured:
        latencies.measured(latency_ms)
    seen = latencies.statistics()
    assert seen.markers == len(measured)
    assert {seen.p50_ms, seen.p99_ms, seen.max_ms} <= {
        max(0.0, latency_ms) for latency_ms in measured
    }
    assert seen.p50_ms <= seen.p99_ms <= seen.max_ms == max(0.0, *measured, 0.0)


def test_old_ones_are_forgotten_but_counted() -> None:
    latencies = Latencies()
    latencies.measured(999.0)
    for _ in range(KEPT):
        latencies.measured(1.0)
    seen = latencies.statistics()
    assert seen.markers == KEPT + 1
    assert seen.max_ms == 1.0
