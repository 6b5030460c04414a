"""Files of Iceberg tables are on disk before the catalog points at them."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.lake_kit import checkpoint, feed
from tests.core.chain.sink_lab import open_sink, sink_context

pytest.importorskip("pyiceberg")

from sqlalchemy.orm import Session

from headgate.connectors.iceberg.sink import IcebergSink
from tests.connectors.iceberg import kit


class Disk:
    """Knows what was flushed, and looks whenever the catalog is about to be changed."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settled: set[int] = set()
        self.looks = 0
        sync, commit = os.fsync, Session.commit

        def fsync(descriptor: int) -> None:
            self.settled.add(os.fstat(descriptor).st_ino)
            sync(descriptor)

        def commit_settled(session: Session) -> Any:
            self.looks += 1
            found = (place / "warehouse").rglob("*")
            assert {path for path in found if path.stat().st_ino not in self.settled} == set()
            return commit(session)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Session, "commit", commit_settled)


@pytest.mark.parametrize("keys", [(), ("n",)])
def test_all_that_a_commit_names_is_on_disk_before_it(
    tmp_path: Path, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    sink = IcebergSink(
        kit.settings(tmp_path),
        kit.NAME,
        schema=kit.SCHEMA,
        create=True,
        partition_by=["word"],
        mode="upsert" if keys else "append",
        keys=keys,
    )
    task = open_sink(sink, sink_context())
    disk.looks = 0
    for number in (1, 2):
        feed(task, (number, "a"), (number + 1, "b"))
        checkpoint(task, number)
        task.checkpoint_completed(number)
    task.close()
    assert disk.looks >= 2
    assert {row["n"] for row in kit.rows(tmp_path)} == {1, 2, 3}


def test_files_of_a_class_that_the_user_names_are_left_to_it(tmp_path: Path) -> None:
    kit.make_table(tmp_path)
    own = {**kit.settings(tmp_path), "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    with closing(IcebergSink(own, kit.NAME).address.open()) as catalog:
        assert type(catalog.load().io).__name__ == "PyArrowFileIO"
    with closing(IcebergSink(kit.settings(tmp_path), kit.NAME).address.open()) as catalog:
        assert type(catalog.load().io).__name__ == "SettledFileIO"
