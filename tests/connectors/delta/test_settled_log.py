"""What a Delta table has is on disk when the job goes on, whoever has committed it."""

import os
from pathlib import Path

import pytest

from tests.connectors.lake_kit import checkpoint, feed, restored
from tests.core.chain.sink_lab import open_sink, sink_context

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from headgate.connectors.delta.folder import DeltaFolder
from headgate.connectors.delta.sink import DeltaSink
from tests.connectors.delta import kit

MODES = pytest.mark.parametrize("mode", ["append", "upsert"])


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The inodes of what was flushed."""
    found: set[int] = set()
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        found.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def sink_of(path: Path, mode: str) -> DeltaSink:
    keys = ["n"] if mode == "upsert" else []
    return DeltaSink(path, mode=mode, keys=keys, schema=kit.SCHEMA, create=True)


def unsettled(path: Path, settled: set[int]) -> set[str]:
    """Of the newest version: its entry of the log, and the files of the table."""
    newest = DeltaTable(str(path))
    names = {kit.log_file(newest.version()), *newest.file_uris()}
    return {name for name in names if (path / name).stat().st_ino not in settled}


@MODES
def test_a_commit_is_on_disk_when_it_is_done(tmp_path: Path, mode: str, settled: set[int]) -> None:
    path = kit.make_table(tmp_path / "table")
    task = open_sink(sink_of(path, mode), sink_context())
    for number in (1, 2):
        feed(task, (1, "a"), (number, "b"))
        checkpoint(task, number)
        task.checkpoint_completed(number)
        assert unsettled(path, settled) == set()
    task.close()


@MODES
def test_a_commit_whose_task_died_right_after_it_is_on_disk_when_the_next_one_goes_on(
    tmp_path: Path, mode: str, settled: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kit.make_table(tmp_path / "table")
    os.utime(path / kit.log_file(0), (0, 0))
    task = open_sink(sink_of(path, mode), sink_context(now_ms=kit.now_ms))
    feed(task, (1, "a"), (2, "b"))
    state = checkpoint(task, 1)
    with monkeypatch.context() as dying:
        dying.setattr(DeltaFolder, "settle_log", die)
        with pytest.raises(KeyboardInterrupt):
            task.checkpoint_completed(1)
    task.close()
    assert kit.log_file(1) in unsettled(path, settled)
    open_sink(sink_of(path, mode), sink_context(restored=restored(state), attempt=1)).close()
    assert unsettled(path, settled) == set()
    assert (path / kit.log_file(0)).stat().st_ino not in settled, "it is older than the lot"


def die(*given: object, **more: object) -> None:
    raise KeyboardInterrupt


def test_a_table_that_the_sink_creates_is_on_disk_before_it_is_used(
    tmp_path: Path, settled: set[int]
) -> None:
    open_sink(sink_of(tmp_path / "table", "append"), sink_context()).close()
    assert unsettled(tmp_path / "table", settled) == set()
    assert tmp_path.stat().st_ino in settled, "the name of the table's folder"
