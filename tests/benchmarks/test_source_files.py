"""The parts of the sections for files of ``bench sources`` that need no Spark."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import source_files
from headgate.functions.source import Source
from tests.connectors.kit import read_to_end, task_context


@pytest.mark.parametrize("name", ["parquet", "text"])
def test_job_and_yardstick_read_the_same_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def job(source: Source, rows: int, checkpoints: Path) -> float:
        timed: Any = source_files.TimedSource(source)
        (split,) = timed.create_enumerator(1, None).discover()
        reader = timed.open(split, None, task_context())
        meter = source_files.RecordCounter()
        meter.take(read_to_end(reader))
        reader.close()
        counted.append(meter.report()["records"])
        return 100.0

    monkeypatch.setattr(source_files, "_job", job)
    monkeypatch.setattr(source_files, "ROUNDS", 1)
    section = {"parquet": source_files.parquet_section, "text": source_files.text_section}[name]
    figures = section(0.001)
    assert counted == [figures[f"{name}_rows"]] * 2
    assert figures[f"{name}_records_per_s"] == 100
    assert set(source_files.FILE_MEANINGS) >= set(figures) - {f"{name}_rows"}
