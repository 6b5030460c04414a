"""Of two drivers of a job one goes on, and the other one leaves everything as it is."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import fs

from headgate.base.checkpoint_errors import CheckpointError, StorageUnusable
from headgate.base.job_errors import JobTakenOver
from headgate.control.checkpoint_effects import Discard, Drop, Store
from headgate.host import checkpoint_folder, job_storage
from headgate.host.checkpoint_folder import Folder, open_folder
from headgate.host.driver_claim import DriverClaim
from headgate.host.job_storage import JobStorage
from tests.host.checkpoint_kit import ObjectStore, folder_of, metadata_of, names

JOB = "orders"


@pytest.fixture(params=["local", "objects"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param == "local":
        return open_folder(str(tmp_path / JOB))
    monkeypatch.setattr(checkpoint_folder, "FLAT", frozenset({"py::objects"}))
    return folder_of(fs.PyFileSystem(ObjectStore()), f"bucket/{JOB}")


def storage_of(folder: Path, *, claims: bool = True) -> JobStorage:
    one = JobStorage(JOB, str(folder))
    if claims:
        one.claim()
    return one


def test_the_last_driver_has_the_job(jobs: Folder) -> None:
    first, second = DriverClaim(jobs, JOB), DriverClaim(jobs, JOB)
    first.take()
    first.check()
    second.take()
    second.check()
    with pytest.raises(JobTakenOver, match="another driver has taken over job 'orders'"):
        first.check()
    second.release()
    assert jobs.entries() == []


def test_of_drivers_that_begin_together_at_most_one_has_the_job(tmp_path: Path) -> None:
    jobs = open_folder(str(tmp_path / JOB))
    claims = [DriverClaim(jobs, JOB) for _ in range(4)]
    together = threading.Barrier(len(claims))

    def begin(claim: DriverClaim) -> None:
        together.wait(10)
        with suppress(CheckpointError):  # one was removed while it was being put
            claim.take()
            taken.append(claim)

    taken: list[DriverClaim] = []
    threads = [threading.Thread(target=begin, args=(claim,)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sum(owns(claim) for claim in taken) <= 1


def owns(claim: DriverClaim) -> bool:
    try:
        claim.check()
    except (JobTakenOver, StorageUnusable):
        return False
    return True


def test_a_folder_that_is_gone_altogether_is_trouble_with_the_storage(tmp_path: Path) -> None:
    claim = DriverClaim(open_folder(str(tmp_path / JOB)), JOB)
    claim.take()
    (tmp_path / JOB).rename(tmp_path / "unmounted")
    with pytest.raises(StorageUnusable, match="orders: is gone"):
        claim.check()
    (tmp_path / "unmounted").rename(tmp_path / JOB)
    claim.check()


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.store(Store(metadata_of(4))),
        lambda one: one.drop(Drop(metadata_of(3))),
        lambda one: one.discard(Discard(9, ())),
        lambda one: one.clean(),
        lambda one: one.close(keeps=True),
        lambda one: one.close(keeps=False),
    ],
)
def test_a_driver_that_was_frozen_changes_nothing_of_its_successor(
    tmp_path: Path, act: Callable[[JobStorage], None]
) -> None:
    old = storage_of(tmp_path)
    old.store(Store(metadata_of(3)))
    new = storage_of(tmp_path)
    (tmp_path / JOB / "chk-9").mkdir()
    (tmp_path / JOB / "chk-9" / "half").write_bytes(b"x")
    before = names(tmp_path)
    with pytest.raises(JobTakenOver):
        act(old)
    assert names(tmp_path) == before
    new.close(keeps=False)
    assert not (tmp_path / JOB).exists()


def test_what_is_stored_while_another_one_claims_the_job_is_told_to_nobody_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, complete, new = storage_of(tmp_path), job_storage.complete, []

    def slow(*given: object) -> None:
        new.append(storage_of(tmp_path))
        complete(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(job_storage, "complete", slow)
    with pytest.raises(JobTakenOver):
        old.store(Store(metadata_of(3)))
    with pytest.raises(JobTakenOver):
        old.drop(Drop(metadata_of(3)))
    new[0].check_claim()
    assert new[0].place(3, "").is_complete(), "it may have been seen"


def test_the_claim_goes_with_the_job_and_its_checkpoints_may_stay(tmp_path: Path) -> None:
    one = storage_of(tmp_path)
    one.store(Store(metadata_of(3)))
    assert len(names(tmp_path)) == 2
    one.close(keeps=True)
    assert names(tmp_path) == [f"{JOB}/chk-3/_metadata"]
    storage_of(tmp_path).close(keeps=False)
    assert not (tmp_path / JOB).exists()


def test_who_has_no_lasting_folder_needs_no_claim(tmp_path: Path) -> None:
    for one in (JobStorage(JOB), JobStorage.temporary(JOB)):
        one.claim()
        one.check_claim()
        one.store(Store(metadata_of(3), str(tmp_path / one.uri.strip("/") / "savepoint")))
        one.close(keeps=True)
    assert not any("driver-" in name for name in names(tmp_path))
