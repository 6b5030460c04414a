"""The storage of one job, and the thread that serves it: in order, and to the end of the job."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from headgate.base.errors import CheckpointMissing, StorageUnusable
from headgate.base.recovery_settings import CheckpointSettings, Retention
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import DiscardStates, DropCheckpoint, StoreCheckpoint
from headgate.control.life_cycle import JobState
from headgate.control.recovery import Recovery
from headgate.host.checkpoints.folder import Folder
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.driver import checkpoint_keeper
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper
from tests.host.checkpoint_kit import metadata_of, names, take_next

JOB = "orders"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def storage(folder: Path) -> JobCheckpoints:
    return JobCheckpoints(JOB, str(folder))


def keeper_of(storage: JobCheckpoints, *found: int, **settings: object) -> CheckpointKeeper:
    history = CheckpointHistory(9, [metadata_of(number) for number in found])
    return CheckpointKeeper(Recovery(CheckpointSettings(**settings), history=history), storage)  # type: ignore[arg-type]


@pytest.fixture
def keeper(storage: JobCheckpoints) -> Iterator[CheckpointKeeper]:
    keeper = keeper_of(storage)
    yield keeper
    keeper.close(JobState.FAILED)


# The storage.


def test_checkpoints_are_stored_and_dropped_in_the_folder_of_the_job(
    storage: JobCheckpoints, folder: Path
) -> None:
    storage.store(StoreCheckpoint(metadata_of(3)))
    assert names(folder) == [f"{JOB}/chk-3/_metadata"]
    storage.drop(DropCheckpoint(metadata_of(3)))
    assert names(folder) == []


def test_savepoints_have_their_own_directory_also_without_a_storage(tmp_path: Path) -> None:
    own = tmp_path / "savepoint"
    nowhere = JobCheckpoints(JOB)
    assert nowhere.uri == ""
    nowhere.store(StoreCheckpoint(metadata_of(3), str(own)))
    assert names(own) == ["_metadata"]
    nowhere.discard(DiscardStates(3, (), str(own)))
    assert names(own) == ["_metadata"], "it is complete"
    nowhere.drop(DropCheckpoint(metadata_of(3), str(own)))
    assert not own.exists()
    nowhere.clean()
    nowhere.close(keeps=False)


def test_what_belongs_to_no_checkpoint_is_cleaned_up(storage: JobCheckpoints, folder: Path) -> None:
    assert storage.storage is not None
    take_next(storage.storage, JOB)
    (folder / JOB / "chk-9").mkdir()
    (folder / JOB / "chk-9" / "half").write_bytes(b"x")
    storage.clean()
    assert [path.name for path in (folder / JOB).glob("chk-*")] == ["chk-1"]


def test_a_folder_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("here")
    with pytest.raises(StorageUnusable, match="file"):
        JobCheckpoints(JOB, str(file))


def test_a_temporary_storage_goes_with_its_job() -> None:
    storage = JobCheckpoints.temporary(JOB)
    storage.store(StoreCheckpoint(metadata_of(1)))
    assert Path(storage.uri).exists()
    storage.close(keeps=True)
    assert not Path(storage.uri).exists()


def test_at_the_end_nothing_stays_but_what_is_not_the_job_s(
    storage: JobCheckpoints, folder: Path
) -> None:
    assert storage.storage is not None
    file = folder / "file"
    file.write_bytes(b"of a database")
    take_next(storage.storage, JOB, shared=(file,))
    take_next(storage.storage, JOB)
    (folder / JOB / "savepoint-here").mkdir()
    storage.close(keeps=False)
    assert [path.name for path in (folder / JOB).iterdir()] == ["savepoint-here"]


def test_storage_that_cannot_be_cleaned_now_is_cleaned_later(
    storage: JobCheckpoints, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / JOB).write_text("in the way")
    storage.clean()
    assert "leftover files of job orders are not removed for now" in caplog.text


def test_what_could_not_be_dropped_is_gone_before_a_run_goes_on_from_an_older_one(
    storage: JobCheckpoints, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        storage.store(StoreCheckpoint(metadata_of(number)))
    with monkeypatch.context() as trouble:
        trouble.setattr(Folder, "remove", refuse)
        for number in (1, 3):
            with pytest.raises(StorageUnusable):
                storage.drop(DropCheckpoint(metadata_of(number)))
        with pytest.raises(StorageUnusable):
            storage.drop_above(2)
    storage.drop_above(2)
    there = [f"{JOB}/chk-1/_metadata", f"{JOB}/chk-2/_metadata"]
    assert names(folder) == there, "an older one is in nobody's way"


def test_what_was_never_complete_need_not_be_dropped(
    storage: JobCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "remove", refuse)
    with pytest.raises(StorageUnusable):
        storage.drop(DropCheckpoint(metadata_of(3)))
    storage.drop_above(2)


def test_a_driver_that_was_thought_dead_drops_nothing_of_its_successor(
    storage: JobCheckpoints, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = JobCheckpoints(JOB, str(folder))
    other.store(StoreCheckpoint(metadata_of(3)))
    late = structs.replace(metadata_of(3), completed_ms=-1)
    with pytest.raises(StorageUnusable, match="is complete already, by another run"):
        storage.store(StoreCheckpoint(late))
    storage.drop(DropCheckpoint(late))
    assert names(folder) == [f"{JOB}/chk-3/_metadata"]
    assert "chk-3 stays: another driver of job orders has completed it" in caplog.text
    storage.drop_above(2)


def refuse(folder: Folder, name: str) -> None:
    raise StorageUnusable(folder.at(name), "Input/output error", "look")


# The keeper.


def test_what_is_asked_for_is_done_in_order_by_another_thread(keeper: CheckpointKeeper) -> None:
    done: list[tuple[int, threading.Thread]] = []
    for number in range(50):
        keeper.put(lambda number=number: done.append((number, threading.current_thread())))  # type: ignore[misc]
    assert keeper.settled().wait(10)
    assert [number for number, _ in done] == list(range(50))
    assert {thread for _, thread in done} != {threading.current_thread()}


def test_trouble_at_the_storage_ends_nothing_else(
    keeper: CheckpointKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise CheckpointMissing("/there", "is not there", "look")

    def broken() -> None:
        raise ValueError("a bug")

    with caplog.at_level(logging.WARNING):
        keeper.put(missing)
        keeper.put(broken)
        assert keeper.settled().wait(10)
    assert "job orders: /there: is not there" in caplog.text
    assert "an access to its checkpoint storage failed" in caplog.text


def test_settling_has_an_end_when_the_storage_hangs(keeper: CheckpointKeeper) -> None:
    go = threading.Event()
    keeper.put(lambda: go.wait(10) and None)
    assert not keeper.settled().wait(0.01)
    go.set()
    assert keeper.settled().wait(10)


def test_nobody_begins_anew_while_the_storage_is_silent(keeper: CheckpointKeeper) -> None:
    go, over, done = threading.Event(), threading.Event(), threading.Event()
    keeper.put(lambda: go.wait(20) and None)
    with pytest.raises(StorageUnusable, match=r"checkpoints: has not answered for 0\.01 s"):
        keeper.await_settled(0.01, over)
    over.set()
    keeper.await_settled(60, over)
    go.set()
    over.clear()
    keeper.put(done.set)
    keeper.await_settled(60, over)
    assert done.is_set()


@pytest.mark.parametrize(
    ("state", "retention", "stays"),
    [
        (JobState.FINISHED, Retention.RETAIN_ON_CANCELLATION, False),
        (JobState.CANCELLED, Retention.RETAIN_ON_CANCELLATION, True),
        (JobState.CANCELLED, Retention.DELETE_ON_CANCELLATION, False),
        (JobState.FAILED, Retention.DELETE_ON_CANCELLATION, True),
    ],
)
def test_the_end_of_the_job_says_which_checkpoints_stay(
    storage: JobCheckpoints, folder: Path, state: JobState, retention: Retention, stays: bool
) -> None:
    storage.store(StoreCheckpoint(metadata_of(1)))
    keeper = keeper_of(storage, 1, retention=retention)
    keeper.close(state)
    keeper.close(state)
    assert names(folder) == ([f"{JOB}/chk-1/_metadata"] if stays else [])
    assert (folder / JOB).exists() == stays, "no empty folder is left"


def test_what_is_under_way_at_the_end_of_the_job_is_done_and_then_dropped(
    storage: JobCheckpoints, folder: Path
) -> None:
    keeper = keeper_of(storage)

    def store() -> None:
        storage.store(StoreCheckpoint(metadata_of(7)))
        with keeper.lock:
            keeper.recovery.history.completed(metadata_of(7))
        keeper.put(lambda: asked.append("after"))

    asked: list[str] = []
    keeper.put(store)
    keeper.close(JobState.FINISHED)
    assert asked == ["after"]
    assert not (folder / JOB).exists()
    keeper.put(lambda: asked.append("never"))
    assert asked == ["after"]


def test_a_storage_that_hangs_at_the_end_is_left_alone(
    storage: JobCheckpoints, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_keeper, "CLOSE_S", 0.01)
    keeper, go = keeper_of(storage), threading.Event()
    keeper.put(lambda: go.wait(10) and None)
    with caplog.at_level(logging.WARNING):
        keeper.close(JobState.FINISHED)
    assert "the storage of job orders is slow" in caplog.text
    go.set()
