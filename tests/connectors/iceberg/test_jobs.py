"""An Iceberg table is followed into another one by real workers: killed, stopped, rescaled."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.job_kit import CopyJob, copy_through_trouble

pytest.importorskip("pyiceberg")

from headgate.connectors.iceberg.sink import IcebergSink
from headgate.connectors.iceberg.source import IcebergSource
from tests.connectors.iceberg import kit


class TableCopy(CopyJob):
    """Each table has a catalog of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.followed = kit.make_table(folder / "followed")
        self.written = kit.make_table(folder / "written")

    def append(self, numbers: range) -> None:
        rows = pa.table({"n": pa.array(numbers, pa.int64()), "word": [""] * len(numbers)})
        with kit.table(self.followed) as table:
            table.append(rows)

    def source(self) -> IcebergSource:
        return IcebergSource(kit.settings(self.followed), kit.NAME, follow=True, discover_ms=50)

    def sink(self) -> IcebergSink:
        return kit.append_sink(self.written)

    def copied(self) -> list[int]:
        return kit.numbers(self.written)


def test_each_row_is_copied_once_over_a_killed_worker_a_savepoint_and_another_parallelism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy_through_trouble(TableCopy(tmp_path), tmp_path, before=1, after=2)
