"""A process dies, the disk is full, a right is missing: no complete checkpoint is harmed."""

import subprocess
import sys
from pathlib import Path

from headgate.host.checkpoints.checkpoint_store import CheckpointStore, open_store
from headgate.host.checkpoints.pieces import verify
from tests.host.checkpoint_kit import JOB, LARGE, names, take_next
from tests.host.processes import ROOT

LATER_MS = 10**15


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tests.host.checkpoint_child", *map(str, words)]


def run(*words: object) -> list[str]:
    done = subprocess.run(
        command(*words), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_all_complete(storage: CheckpointStore) -> int:
    """Every checkpoint with metadata can be read to the last byte; how many there are."""
    complete = [found for found in storage.list_checkpoints(JOB) if found.is_complete]
    for found in complete:
        assert found.metadata is not None
        assert verify(found.location, found.metadata).problems == ()
    return len(complete)


def test_a_process_that_dies_at_any_step_harms_no_complete_checkpoint(tmp_path: Path) -> None:
    source = tmp_path / "000001.sst"
    source.write_bytes(LARGE)
    folder = tmp_path / "checkpoints"
    lines = [[int(word) for word in line.split()] for line in run("steps", folder, source)]
    deaths = [code for _, code, _ in lines if code]
    assert len(deaths) > 25, "there are that many steps"
    newest = [number for _, _, number in lines]
    assert newest == sorted(newest)
    assert len({*newest}) > 2, "it died before and after the end of a checkpoint"

    storage = open_store(str(folder))
    assert check_all_complete(storage) >= 1
    assert not [found for found in storage.list_checkpoints(JOB) if found.problem]
    storage.clean_abandoned(JOB, LATER_MS)
    complete = check_all_complete(storage)
    assert len(list((folder / JOB).glob("chk-*"))) == complete
    latest = storage.restore_candidates(JOB).latest
    assert latest is not None and latest.checkpoint == newest[-1]


def test_a_killed_process_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with subprocess.Popen(
        command("endless", folder), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            reported = [int(child.stdout.readline()) for _ in range(3)]
        finally:
            child.kill()
    storage = open_store(str(folder))
    latest = storage.restore_candidates(JOB).latest
    assert latest is not None and latest.checkpoint is not None
    assert latest.checkpoint >= reported[-1] == 3
    assert check_all_complete(storage) >= 3


def test_a_full_disk_is_told_and_older_checkpoints_stay(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    storage = open_store(str(folder))
    take_next(storage)
    (tmp_path / "table.sst").write_bytes(LARGE)
    before = names(folder)
    lines = run("full", folder)
    assert [line.partition(":")[0] for line in lines] == [
        "large piece",
        "many pieces",
        "at the end",
        "a piece alone",
        "shared file",
        "metadata",
    ]
    for line in lines:
        assert "StorageUnusable" in line
        assert "File too large; make room there" in line
        assert "chk-50" in line or "shared" in line
    assert names(folder) == before
    assert check_all_complete(storage) == 1


def test_a_missing_right_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir(mode=0o555)
    lines = run("stranger", folder)
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("StorageUnusable")
        assert "Permission denied; give the user of the job the right" in line
