"""The benchmark of growth: its points, what it leaves out, and a real point on Spark."""

import json
from dataclasses import asdict
from importlib.util import find_spec

import pytest

from benchmarks import scale
from benchmarks.scale import (
    POINT_BYTES,
    SECTIONS,
    KeyedRecordReader,
    Point,
    points_of,
    progress_of,
    run_scale_bench,
    show_scale,
)


def test_every_section_varies_what_it_is_named_after_and_bounds_what_it_sends() -> None:
    varied = {section: points_of(section, 1_000_000, None) for section in SECTIONS}
    assert [point.parallelism for point in varied["parallelism"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [point.keys for point in varied["keys"]] == [10**power for power in range(2, 8)]
    assert [point.record_bytes for point in varied["sizes"]] == [10**p for p in range(1, 8)]
    assert [point.exchanges for point in varied["exchanges"]] == [1, 2, 3, 4, 5]
    assert all(point.records >= point.keys for point in varied["keys"])
    assert all(point.records * point.record_bytes <= POINT_BYTES for point in varied["sizes"])
    assert points_of("parallelism", 160, 128) == [Point(parallelism=128, records=1280)]


def test_a_point_that_does_not_fit_into_the_free_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "_free_bytes", lambda: 1 << 30)
    notes: list[str] = []
    result = run_scale_bench("parallelism", 1000, 2, 1, notes.append)
    assert "GB are free" in result["parallelism"][0]["left_out"]
    assert "left out" in notes[0]
    show_scale(result)
    assert "GB are free" in " ".join(capsys.readouterr().out.split())


def test_the_sources_of_a_job_give_all_keys_and_records_of_the_size() -> None:
    point = Point(parallelism=2, keys=10, record_bytes=100, records=40)
    reader = KeyedRecordReader(point, progress_of("job"), 1, 20)
    records = [*(reader.poll(7) or []), *(reader.poll(100) or [])]
    assert [key for key, _ in records] == [*range(5, 10), *range(10), *range(5)]
    assert {len(payload) for _, payload in records} == {98}
    assert reader.poll(1) is None


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_a_point_counts_every_record_and_has_all_figures() -> None:
    result = run_scale_bench("parallelism", 2000, 2, 1, lambda text: None)
    (row,) = result["parallelism"]
    assert asdict(Point(records=2000)).items() <= row.items()
    assert row["records_per_s"] > 0 < row["cpu_ns_per_record"]
    assert row["start_s"] > 0 < row["private_mb"]
    json.dumps(result)
