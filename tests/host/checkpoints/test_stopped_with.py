"""The note of the savepoint that a job ends with."""

from pathlib import Path

import pytest

from headgate.base.errors import CheckpointMissing, StorageUnusable
from headgate.control.effects import DropCheckpoint, StoreCheckpoint
from headgate.host.checkpoints import job_checkpoints
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.job_checkpoints import (
    JobCheckpoints,
    StoppedWith,
    find_stop,
    note_stop,
)
from tests.host.checkpoint_kit import JOB, metadata_of, names


@pytest.fixture
def storage(tmp_path: Path) -> JobCheckpoints:
    return JobCheckpoints(JOB, str(tmp_path / "checkpoints"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "savepoint"


def test_only_a_savepoint_that_ends_the_job_is_noted(storage: JobCheckpoints, own: Path) -> None:
    storage.store(StoreCheckpoint(metadata_of(2), f"{own}-2"))
    assert storage.stopped_with() is None
    storage.store(StoreCheckpoint(metadata_of(9), f"{own}-9", ends_job=True))
    storage.store(StoreCheckpoint(metadata_of(10), f"{own}-10", ends_job=True))
    assert storage.stopped_with() == StoppedWith(10, f"{own}-10"), "the newest one"
    JobCheckpoints(JOB).store(StoreCheckpoint(metadata_of(3), f"{own}-3", ends_job=True))


def test_it_is_noted_behind_its_metadata(
    storage: JobCheckpoints, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(jobs: Folder, number: int, savepoint: Folder) -> None:
        assert names(own) == ["_metadata"]
        noted.append(number)

    noted: list[int] = []
    monkeypatch.setattr(job_checkpoints, "note_stop", note)
    storage.store(StoreCheckpoint(metadata_of(4), str(own), ends_job=True))
    assert noted == [4]


def test_it_goes_with_the_savepoint_or_with_the_job(
    storage: JobCheckpoints, own: Path, tmp_path: Path
) -> None:
    storage.store(StoreCheckpoint(metadata_of(4), str(own), ends_job=True))
    storage.drop(DropCheckpoint(metadata_of(4), str(own)))
    assert storage.stopped_with() is None and not own.exists()
    storage.store(StoreCheckpoint(metadata_of(5), str(own), ends_job=True))
    storage.close(keeps=True)
    assert storage.stopped_with() is not None
    storage.close(keeps=False)
    assert names(tmp_path) == ["savepoint/_metadata"], "which is its owner's"


def test_no_attempt_begins_from_an_older_one_while_it_cannot_be_taken_back(
    storage: JobCheckpoints, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Folder, name: str) -> None:
        raise StorageUnusable(folder.at(name), "Input/output error", "look")

    storage.store(StoreCheckpoint(metadata_of(4), str(own), ends_job=True))
    with monkeypatch.context() as broken:
        broken.setattr(Folder, "remove", refuse)
        with pytest.raises(StorageUnusable):
            storage.drop(DropCheckpoint(metadata_of(4), str(own)))
        with pytest.raises(StorageUnusable):
            storage.drop_above(3)
    storage.drop_above(3)
    assert storage.stopped_with() is None


def test_a_savepoint_that_is_not_there_any_more_is_told(storage: JobCheckpoints, own: Path) -> None:
    storage.store(StoreCheckpoint(metadata_of(4), str(own), ends_job=True))
    found = storage.stopped_with()
    assert found is not None
    assert found.resolve(JOB)[1] == metadata_of(4)
    with pytest.raises(CheckpointMissing, match="which is another one now"):
        StoppedWith(5, found.where).resolve(JOB)
    own.rename(f"{own}-moved")
    with pytest.raises(CheckpointMissing, match=r"was stopped with this savepoint.*--from"):
        found.resolve(JOB)


def test_no_password_is_written_down(tmp_path: Path) -> None:
    jobs = open_folder(str(tmp_path))
    note_stop(jobs, 4, Folder(jobs.system, "bucket/s", "s3://me:secret@bucket/s"))
    assert find_stop(jobs) == StoppedWith(4, "s3://******@bucket/s")
