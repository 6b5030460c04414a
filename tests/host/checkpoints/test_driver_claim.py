"""Of two drivers of a job one goes on, and the other one leaves everything as it is."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headgate.base.errors import JobTakenOver, StorageUnusable
from headgate.control.effects import DiscardStates, DropCheckpoint, StoreCheckpoint
from headgate.host.checkpoints import folder as checkpoint_folder
from headgate.host.checkpoints import job_checkpoints
from headgate.host.checkpoints.driver_claim import DriverClaim
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from tests.host.checkpoint_kit import ObjectStore, folder_of, metadata_of, names

JOB = "orders"


@pytest.fixture(params=["local", "objects"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param == "local":
        return open_folder(str(tmp_path / JOB))
    monkeypatch.setattr(checkpoint_folder, "FLAT", frozenset({"py::objects"}))
    return folder_of(fs.PyFileSystem(ObjectStore()), f"bucket/{JOB}")


def storage_of(folder: Path, *, claims: bool = True) -> JobCheckpoints:
    storage = JobCheckpoints(JOB, str(folder))
    if claims:
        storage.claim()
    return storage


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


def test_a_successor_that_has_not_removed_the_claim_yet_has_the_job(jobs: Folder) -> None:
    first = DriverClaim(jobs, JOB)
    first.take()
    jobs.put(f"owner-00000002-{'a' * 16}", b"process 7 on elsewhere")
    with pytest.raises(JobTakenOver, match="process 7 on elsewhere"):
        first.check()


TRIALS = 60
DRIVERS = 3


CLAIMER = """
import sys, time
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.driver_claim import DriverClaim

def attempt(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"

print("ready", flush=True)
for line in sys.stdin:
    folder, at = line.split()
    claim = DriverClaim(open_folder(folder), "orders")
    while time.monotonic() < float(at):  # the same clock in all processes
        pass
    print(attempt(claim.take), flush=True)
    sys.stdin.readline()
    print(attempt(claim.check), flush=True)
"""


def attempt(act: Callable[[], None]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def claimers() -> Iterator[list["subprocess.Popen[str]"]]:
    command = [sys.executable, "-c", CLAIMER]
    with ExitStack() as stack:
        pipe = subprocess.PIPE
        made = [
            stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
            for _ in range(DRIVERS)
        ]
        assert hear(made) == ["ready"] * DRIVERS
        yield made
        for claimer in made:
            claimer.communicate(timeout=30)


def tell(processes: list["subprocess.Popen[str]"], text: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{text}\n")
        process.stdin.flush()


def hear(processes: list["subprocess.Popen[str]"]) -> list[str]:
    return [process.stdout.readline().strip() for process in processes if process.stdout]


def test_of_processes_that_claim_a_job_at_the_same_moment_exactly_one_has_it(
    tmp_path: Path,
) -> None:
    with claimers() as processes:
        for trial in range(TRIALS):
            tell(processes, f"{tmp_path / str(trial)} {time.monotonic() + 0.003}")
            took = hear(processes)
            tell(processes, "look")
            of_all = [
                look if take == "ok" else take
                for take, look in zip(took, hear(processes), strict=True)
            ]
            assert of_all.count("ok") == 1, f"trial {trial}: {of_all}"
            for lost in of_all:
                assert lost == "ok" or lost.startswith("JobTakenOver: another driver has "), lost


def test_drivers_that_list_before_any_has_put_its_claim_are_told_apart(jobs: Folder) -> None:
    """What no exclusive create decides: an object store gives none."""
    claims = [DriverClaim(jobs, JOB) for _ in range(3)]
    put, waiting = Folder.put, threading.Barrier(3)

    def slow(self: Folder, name: str, data: bytes) -> bool:
        waiting.wait(10)
        return put(self, name, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "put", slow)
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda claim: attempt(claim.take), claims))
    took = [claim for claim, answer in zip(claims, answers, strict=True) if not answer]
    left = [attempt(claim.check) for claim in took]
    assert left.count("") == 1, (answers, left)
    lost = [answer for answer in (*answers, *left) if answer]
    assert len(lost) == 2
    assert all(answer.startswith("JobTakenOver") for answer in lost), lost


def test_a_driver_that_leaves_does_not_take_the_folder_from_under_the_next(tmp_path: Path) -> None:
    jobs = open_folder(str(tmp_path / JOB))

    def come_and_go(number: int) -> str:
        claim = DriverClaim(jobs, JOB)
        answer = attempt(claim.take)
        return answer or attempt(claim.release)

    with ThreadPoolExecutor(4) as pool:
        answers = {answer.partition(":")[0] for answer in pool.map(come_and_go, range(80))}
    assert answers <= {"", "JobTakenOver"}


def test_the_claim_of_an_older_headgate_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / JOB).mkdir()
    (tmp_path / JOB / "driver-0123456789abcdef").touch()
    claim = DriverClaim(open_folder(str(tmp_path / JOB)), JOB)
    claim.take()
    claim.check()
    assert not list((tmp_path / JOB).glob("driver-*")), "which tells that driver that it is over"


# A storage that is away.


def test_a_folder_that_is_gone_altogether_is_trouble_with_the_storage(tmp_path: Path) -> None:
    claim = DriverClaim(open_folder(str(tmp_path / JOB)), JOB)
    claim.take()
    (tmp_path / JOB).rename(tmp_path / "unmounted")
    with pytest.raises(StorageUnusable, match="claim of this driver is gone, and no other"):
        claim.check()
    (tmp_path / "unmounted").rename(tmp_path / JOB)
    claim.check()


def test_a_folder_that_was_emptied_and_written_again_is_not_another_driver(tmp_path: Path) -> None:
    claim = DriverClaim(open_folder(str(tmp_path / JOB)), JOB)
    claim.take()
    shutil.rmtree(tmp_path / JOB)
    (tmp_path / JOB / "chk-7").mkdir(parents=True)  # tasks make it again, and write
    (tmp_path / JOB / "chk-7" / "t-0-0.state").write_bytes(b"state")
    with pytest.raises(StorageUnusable, match="start the job again"):
        claim.check()
    other = DriverClaim(open_folder(str(tmp_path / JOB)), JOB)
    other.take()
    with pytest.raises(JobTakenOver):
        claim.check()


@pytest.mark.parametrize("looks", range(4))
def test_a_storage_that_comes_back_between_two_looks_is_not_another_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """At whatever moment: before the first look of a check, before the second …"""
    home, away = tmp_path / JOB, tmp_path / "away"
    claim = DriverClaim(open_folder(str(home)), JOB)
    claim.take()
    home.rename(away)
    seen = 0

    def look(real: Callable[..., Any]) -> Callable[..., Any]:
        def looking(self: Folder, *given: Any) -> Any:
            nonlocal seen
            if seen == looks and away.exists():
                away.rename(home)
            seen += 1
            return real(self, *given)

        return looking

    for name in ("entries", "look", "read"):
        monkeypatch.setattr(Folder, name, look(getattr(Folder, name)))
    with suppress(StorageUnusable):
        claim.check()
    if away.exists():
        away.rename(home)
    claim.check()


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.store(StoreCheckpoint(metadata_of(4))),
        lambda storage: storage.drop(DropCheckpoint(metadata_of(3))),
        lambda storage: storage.discard(DiscardStates(9, ())),
        lambda storage: storage.clean(),
        lambda storage: storage.close(keeps=True),
        lambda storage: storage.close(keeps=False),
    ],
)
def test_a_driver_that_was_frozen_changes_nothing_of_its_successor(
    tmp_path: Path, act: Callable[[JobCheckpoints], None]
) -> None:
    old = storage_of(tmp_path)
    old.store(StoreCheckpoint(metadata_of(3)))
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
    old, complete, new = storage_of(tmp_path), job_checkpoints.complete, []

    def slow(*given: object) -> None:
        new.append(storage_of(tmp_path))
        complete(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(job_checkpoints, "complete", slow)
    with pytest.raises(JobTakenOver):
        old.store(StoreCheckpoint(metadata_of(3)))
    with pytest.raises(JobTakenOver):
        old.drop(DropCheckpoint(metadata_of(3)))
    new[0].check_claim()
    assert new[0].location(3, "").is_complete(), "it may have been seen"


def test_the_claim_goes_with_the_job_and_its_checkpoints_may_stay(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.store(StoreCheckpoint(metadata_of(3)))
    assert len(names(tmp_path)) == 2
    storage.close(keeps=True)
    assert names(tmp_path) == [f"{JOB}/chk-3/_metadata"]
    storage_of(tmp_path).close(keeps=False)
    assert not (tmp_path / JOB).exists()


def test_who_has_no_lasting_folder_needs_no_claim(tmp_path: Path) -> None:
    for storage in (JobCheckpoints(JOB), JobCheckpoints.temporary(JOB)):
        storage.claim()
        storage.check_claim()
        storage.store(
            StoreCheckpoint(metadata_of(3), str(tmp_path / storage.uri.strip("/") / "savepoint"))
        )
        storage.close(keeps=True)
    assert not any("owner-" in name for name in names(tmp_path))
