"""The parts of ``bench sources`` that need no Spark."""

import pytest

from benchmarks import sources
from benchmarks.sources import WAYS, SignalMeter, SignalSource
from tests.connectors.kit import nothing_leaks, read_to_end, read_until, task_context


@pytest.mark.parametrize("way", WAYS)
def test_records_that_a_thread_puts_are_measured(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLE_S", 0)
    meter = SignalMeter()
    with nothing_leaks():
        reader = SignalSource(way, 0.01, 10).open(0, None, task_context())
        meter.take(read_until(reader, bool))
        meter.take(read_to_end(reader))
        reader.close()
    report = meter.report()
    assert report["records"] == 10
    assert 0 < report["p50_ms"] <= report["p99_ms"]
    assert report["idle_cpu_percent"] >= 0
    assert report["idle_task_percent"] >= 0


def test_the_median_second_counts() -> None:
    meter = SignalMeter()
    meter.take([[(0.0, 5.0, 1.0), (1.0, 5.002, 1.0005), (2.0, 5.5, 1.4), (3.0, 5.504, 1.401)], 0])
    report = meter.report()
    assert report["idle_cpu_percent"] == 0.4
    assert report["idle_task_percent"] == 0.1


def test_a_reader_can_be_closed_before_its_thread_is_through() -> None:
    with nothing_leaks():
        SignalSource("wake", 60, 10).open(0, None, task_context()).close()
        reader = SignalSource("wake", 60, 10).open(0, None, task_context())
        assert reader.poll(10) == []
        reader.close()


def test_every_section_explains_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_round", lambda way, seconds: dict.fromkeys(sources.FIGURES, 1))
    figures = sources.run_sources_bench(1.0, "idle")
    assert set(sources.MEANINGS) >= set(figures) - {"seconds"}
