"""The storage of checkpoints: complete or not there, found again, dropped without harm."""

import logging
import shutil
import time
from pathlib import Path

import pytest

from headgate.base.checkpoints import CheckpointKind, Piece
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointMissing,
    StorageUnusable,
)
from headgate.host.checkpoints.checkpoint_store import (
    CheckpointStore,
    complete,
    discard,
    find_checkpoints,
    open_store,
)
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import (
    checkpoint_number,
    folder_of_job,
    new_savepoint,
    resolve,
    savepoint_location,
)
from headgate.host.checkpoints.pieces import PartWriter, PieceReader, verify
from tests.host.checkpoint_kit import (
    JOB,
    LARGE,
    flip,
    metadata_of,
    names,
    shared_pieces,
    take,
    take_next,
    task_of,
)

LATER_MS = 10**15


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def storage(folder: Path) -> CheckpointStore:
    return open_store(str(folder))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of a database."""
    path = tmp_path / "000007.sst"
    path.write_bytes(LARGE)
    return path


def numbers(storage: CheckpointStore) -> list[int | None]:
    return [found.checkpoint for found in storage.list_checkpoints(JOB) if found.is_complete]


def newest(storage: CheckpointStore) -> int | None:
    found = storage.restore_candidates(JOB).latest
    return found.checkpoint if found else None


def test_a_checkpoint_is_found_again_with_all_its_bytes(storage: CheckpointStore) -> None:
    assert storage.restore_candidates(JOB).latest is None
    assert storage.next_id(JOB) == 1
    taken = [take_next(storage) for _ in range(3)]
    found = storage.restore_candidates(JOB).latest
    assert found is not None
    assert found.metadata == taken[-1]
    assert numbers(storage) == [1, 2, 3]
    assert storage.next_id(JOB) == 4
    with PieceReader(found.location) as reader:
        data = reader.read(taken[-1].tasks[1].operators[0].keyed[64])
    assert data == LARGE + b"\3"
    verdict = verify(found.location, taken[-1])
    assert (verdict.is_whole, verdict.files) == (True, 2)
    assert verdict.state_bytes == taken[-1].state_bytes == 2 * (len(LARGE) + 1 + 5 + 9)


def test_numbers_are_sorted_as_numbers(storage: CheckpointStore) -> None:
    for number in (9, 10, 8):
        take(storage.location(JOB, number), number)
    assert newest(storage) == 10
    assert numbers(storage) == [8, 9, 10]
    assert [checkpoint_number(name) for name in ("chk-7", "chk-x", "chk-", "7", "chk-²")] == [
        7, None, None, None, None,
    ]  # fmt: skip


def test_without_metadata_there_is_no_checkpoint(storage: CheckpointStore) -> None:
    take_next(storage)
    with PartWriter(storage.location(JOB, 2), "t-0-0-0", 0) as writer:
        writer.append(LARGE)
    assert newest(storage) == 1
    assert [found.is_complete for found in storage.list_checkpoints(JOB)] == [True, False]
    assert storage.next_id(JOB) == 3


def test_damaged_ones_are_passed_over_with_a_warning(
    storage: CheckpointStore, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        take_next(storage)
    flip(folder / JOB / "chk-4" / "_metadata", 100, 2)
    (folder / JOB / "chk-3" / "_metadata").write_bytes(b"")
    next((folder / JOB / "chk-2").glob("t-*")).unlink()
    with caplog.at_level(logging.WARNING):
        assert newest(storage) == 1
    messages = [record.getMessage() for record in caplog.records]
    expected = [("4", "checksum is wrong"), ("3", "is cut"), ("2", "is not there")]
    for line, (number, problem) in zip(messages, expected, strict=True):
        assert line.startswith(f"checkpoint {number} of job {JOB} is damaged")
        assert problem in line
    problems = [found.problem for found in storage.list_checkpoints(JOB)]
    assert [bool(problem) for problem in problems] == [False, False, True, True]


def test_what_is_damaged_above_the_newest_whole_one_is_told(
    storage: CheckpointStore, folder: Path
) -> None:
    for _ in range(3):
        take_next(storage)
    flip(folder / JOB / "chk-3" / "_metadata", 40, 1)
    candidates = storage.restore_candidates(JOB)
    assert candidates.latest is not None and candidates.latest.checkpoint == 2
    assert [found.checkpoint for found in candidates.damaged] == [3]
    for number in (1, 2):
        flip(folder / JOB / f"chk-{number}" / "_metadata", 40, 1)
    candidates = storage.restore_candidates(JOB)
    assert candidates.latest is None
    assert [found.checkpoint for found in candidates.damaged] == [3, 2, 1]


def test_bytes_behind_the_end_of_a_file_are_damage(storage: CheckpointStore, folder: Path) -> None:
    metadata = take_next(storage)
    for path in sorted((folder / JOB / "chk-1").iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole + b"\0")
        assert storage.restore_candidates(JOB).latest is None, path.name
        if path.name != "_metadata":
            (problem,) = verify(storage.location(JOB, 1), metadata).problems
            assert (
                f"was appended to: it has {len(whole) + 1} bytes instead of {len(whole)}" in problem
            )
        path.write_bytes(whole)
    assert storage.restore_candidates(JOB).latest is not None


def test_a_checkpoint_in_the_place_of_another_is_damage(
    storage: CheckpointStore, folder: Path
) -> None:
    for _ in range(2):
        take_next(storage)
    (folder / JOB / "chk-1").rename(folder / JOB / "chk-7")
    candidates = storage.restore_candidates(JOB)
    assert candidates.latest is not None and candidates.latest.checkpoint == 2
    assert "is checkpoint 1 of job 'orders', which is out of place" in candidates.damaged[0].problem


def test_a_storage_that_does_not_answer_is_no_reason_to_take_an_older_one(
    storage: CheckpointStore, folder: Path
) -> None:
    take_next(storage)
    (folder / JOB / "chk-2" / "_metadata").mkdir(parents=True)
    with pytest.raises(StorageUnusable, match="Is a directory"):
        storage.restore_candidates(JOB)


def test_metadata_names_no_file_that_is_not_there_whole(storage: CheckpointStore) -> None:
    location = storage.location(JOB, 1)
    with PartWriter(location, "t-0-0-0", 0) as writer:
        piece = writer.append(LARGE)
    lost = Piece("chk-1/t-9-9-9.state", 0, 1, 0)
    with pytest.raises(CheckpointMissing, match=r"t-9-9-9.*all hosts and the driver share"):
        complete(location, metadata_of(1, (task_of(0, {0: piece, 1: lost}),)))
    longer = Piece(piece.path, 1, len(LARGE), 0)
    with pytest.raises(CheckpointCorrupt, match="65536 bytes instead of 65537"):
        complete(location, metadata_of(1, (task_of(0, {0: longer}),)))
    assert not location.is_complete()


def test_a_second_run_cannot_complete_the_same_checkpoint(storage: CheckpointStore) -> None:
    metadata = take_next(storage)
    location = storage.location(JOB, 1)
    with pytest.raises(StorageUnusable, match="complete already, by another run of the job"):
        complete(location, metadata_of(1))
    assert location.read_metadata() == metadata
    discard(location)
    assert verify(location, metadata).is_whole


def test_a_dropped_checkpoint_is_gone_and_others_stay(
    storage: CheckpointStore, folder: Path
) -> None:
    for _ in range(2):
        take_next(storage)
    take_next(storage, job="other")
    storage.drop(storage.location(JOB, 1))
    storage.drop(storage.location(JOB, 1))
    assert not (folder / JOB / "chk-1").exists()
    assert newest(storage) == 2
    assert storage.restore_candidates("other").latest is not None


def test_a_shared_file_lives_as_long_as_a_checkpoint_that_names_it(
    storage: CheckpointStore, folder: Path, table: Path
) -> None:
    first = take_next(storage, shared=(table,))
    second = take_next(storage, shared=(table,), reused=shared_pieces(first))
    third = take_next(storage, reused=shared_pieces(second)[:1])
    assert len(names(folder / JOB / "shared")) == 2
    storage.drop(storage.location(JOB, 1))
    assert len(names(folder / JOB / "shared")) == 2
    storage.drop(storage.location(JOB, 2))
    assert [f"shared/{name}" for name in names(folder / JOB / "shared")] == [
        shared_pieces(third)[0].path
    ]
    assert verify(storage.location(JOB, 3), third).is_whole
    storage.drop(storage.location(JOB, 3))
    assert names(folder) == []


def test_beside_a_damaged_checkpoint_no_shared_file_is_deleted(
    storage: CheckpointStore, folder: Path, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = take_next(storage, shared=(table,))
    take_next(storage, reused=shared_pieces(first))
    take_next(storage)
    whole = (folder / JOB / "chk-2" / "_metadata").read_bytes()
    flip(folder / JOB / "chk-2" / "_metadata", 50, 1)
    with caplog.at_level(logging.WARNING):
        storage.drop(storage.location(JOB, 1))
        storage.clean_abandoned(JOB, LATER_MS)
    assert "all shared files" in caplog.text
    (folder / JOB / "chk-2" / "_metadata").write_bytes(whole)
    found = storage.list_checkpoints(JOB)[0]
    assert found.metadata is not None
    assert verify(found.location, found.metadata).is_whole


def test_what_was_abandoned_is_cleaned_by_age_and_nothing_else(
    storage: CheckpointStore, folder: Path, table: Path
) -> None:
    kept = take_next(storage, shared=(table,))
    with PartWriter(storage.location(JOB, 2), "t-0-0-0", 0) as writer:
        writer.append(LARGE)
        writer.share(str(table))
    (folder / JOB / "chk-3").mkdir()
    before = names(folder)
    assert storage.clean_abandoned(JOB, int(time.time() * 1000) - 100_000) == ()
    assert names(folder) == before
    removed = storage.clean_abandoned(JOB, LATER_MS)
    assert [Path(path).name for path in removed[:2]] == ["chk-2", "chk-3"]
    assert len(removed) == 3
    assert len(names(folder)) == 4
    assert verify(storage.location(JOB, 1), kept).is_whole


def test_a_given_up_checkpoint_is_discarded(storage: CheckpointStore, folder: Path) -> None:
    location = storage.location(JOB, 1)
    with PartWriter(location, "t-0-0-0", 0) as writer:
        writer.append(LARGE)
    discard(location)
    discard(location)
    assert names(folder) == []


def test_a_savepoint_stands_alone_and_can_be_moved(tmp_path: Path, table: Path) -> None:
    location = new_savepoint(str(tmp_path / "saved"), "my/job")
    assert location.own.name.startswith("savepoint-my%2Fjob-")
    assert new_savepoint(str(tmp_path / "saved"), "my/job").own.name != location.own.name
    again = savepoint_location(open_folder(location.own.uri))
    metadata = take(again, 12, CheckpointKind.SAVEPOINT, shared=(table,))
    shutil.move(location.own.path, tmp_path / "moved")
    for where in ("moved", "moved/", "moved/_metadata"):
        found, read = resolve(str(tmp_path / where))
        assert read == metadata
        assert verify(found, read).is_whole
    assert verify(*resolve(f"file://{tmp_path}/moved/_metadata")).is_whole


def test_a_folder_of_a_job_or_a_checkpoint_can_be_moved_and_renamed(
    storage: CheckpointStore, folder: Path, tmp_path: Path, table: Path
) -> None:
    take_next(storage)
    take_next(storage, shared=(table,))
    shutil.copytree(folder / JOB / "chk-1", tmp_path / "kept")
    assert verify(*resolve(str(tmp_path / "kept"))).is_whole
    shutil.move(folder / JOB, tmp_path / "elsewhere")
    assert verify(*resolve(str(tmp_path / "elsewhere" / "chk-2"))).is_whole
    shutil.rmtree(tmp_path / "elsewhere" / "shared")
    verdict = verify(*resolve(str(tmp_path / "elsewhere" / "chk-2")))
    assert len(verdict.problems) == 1 and "shared" in verdict.problems[0]


def test_a_path_without_a_checkpoint_is_told_with_what_is_there(
    storage: CheckpointStore, folder: Path
) -> None:
    take_next(storage)
    (folder / JOB / "chk-2").mkdir()
    (folder / JOB / "chk-2" / "x").touch()
    for where, complaint in {
        folder / "no": "there is nothing",
        folder / JOB: "is no checkpoint; below it are chk-1, chk-2; name one",
        folder / JOB / "chk-2": "no complete checkpoint: it has no _metadata",
        folder / JOB / "chk-2" / "x": "is no checkpoint but a file",
    }.items():
        with pytest.raises(CheckpointMissing, match=complaint):
            resolve(str(where))


def test_every_job_id_has_a_folder_of_its_own_inside_the_storage(
    storage: CheckpointStore, folder: Path
) -> None:
    ids = [JOB, "..", ".", "a/b", "a%2Fb", "ü b", "chk-1", "shared", "../orders", "%2E"]
    for job in ids:
        take_next(storage, job=job)
    for job in ids:
        found = storage.restore_candidates(job).latest
        assert found is not None and found.metadata is not None
        assert found.metadata.job == job
        assert folder_of_job(storage.folder, job).parent().path == str(folder)
    assert len(list(folder.iterdir())) == len(ids)
    listed = find_checkpoints(str(folder))
    assert sorted(found.metadata.job for found in listed if found.metadata) == sorted(ids)
    assert len(listed) == len(ids)


def test_a_storage_is_made_and_probed(tmp_path: Path) -> None:
    storage = open_store(f"file://{tmp_path}/new/deep")
    storage.folder.probe()
    assert (tmp_path / "new" / "deep").is_dir()
    assert names(tmp_path / "new") == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnusable, match="a file stands where a folder must be"):
        open_store(str(tmp_path / "file"))
