"""A lake's table is followed into another one by real workers: killed, stopped, rescaled."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.job_kit import CopyJob, copy_through_trouble


class TableCopy(CopyJob):
    """Each table has a folder of its own."""

    def __init__(self, lake: Any, folder: Path) -> None:
        super().__init__()
        self.lake = lake
        self.followed = lake.make_table(folder / "followed")
        self.written = lake.make_table(folder / "written")

    def append(self, numbers: range) -> None:
        self.lake.add(self.followed, *numbers)

    def source(self) -> Any:
        return self.lake.source(self.followed, follow=True, discover_ms=50)

    def sink(self) -> Any:
        return self.lake.sink(self.written)

    def copied(self) -> list[int]:
        numbers: list[int] = self.lake.numbers(self.written)
        return numbers


def test_each_row_is_copied_once_over_a_killed_worker_a_savepoint_and_another_parallelism(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy_through_trouble(TableCopy(lake, tmp_path), tmp_path, before=1, after=2)
