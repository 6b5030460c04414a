"""What Headgate writes to a local storage is its user's alone, and leads nowhere else."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.checkpoints import CheckpointKind
from headgate.base.errors import CheckpointCorrupt, CheckpointError, StorageUnusable
from headgate.base.ids import PartitionId
from headgate.base.settings import Storage
from headgate.control.effects import StoreCheckpoint
from headgate.host.checkpoints.checkpoint_store import CheckpointStore, discard, open_store
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.job_checkpoints import JobCheckpoints
from headgate.host.checkpoints.location import new_savepoint, resolve
from headgate.host.checkpoints.pieces import PieceReader, verify
from headgate.host.files.partition_files import PartitionFiles
from tests.host.checkpoint_kit import JOB, metadata_of, names, shared_pieces, take, take_next


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made" / "checkpoints"


@pytest.fixture
def storage(folder: Path) -> CheckpointStore:
    return open_store(str(folder))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Somebody else's, with a file in it."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "precious").write_text("keep me")
    return path


def modes(top: Path) -> dict[str, int]:
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in (top, *top.rglob("*"))}


def test_folders_and_files_of_checkpoints_are_the_users_alone(tmp_path: Path, folder: Path) -> None:
    table = tmp_path / "table.sst"
    table.write_bytes(b"rows")
    job = JobCheckpoints(JOB, str(folder))
    job.claim()
    take_next(job.storage, shared=(table,))  # type: ignore[arg-type]
    location = new_savepoint(str(tmp_path / "saved"), JOB)
    take(location, 2, CheckpointKind.SAVEPOINT)
    job.store(StoreCheckpoint(metadata_of(3), str(tmp_path / "saved" / "last"), ends_job=True))
    found = {**modes(tmp_path / "made"), **modes(tmp_path / "saved")}
    made = {kind: sum(kind in path for path in found) for kind in ("owner-", "stopped-", "_meta")}
    assert all(made.values()), made
    for path, mode in found.items():
        assert mode == (0o700 if os.path.isdir(path) else 0o600), path
    job.close(keeps=False)


def test_spilled_data_is_the_users_alone(tmp_path: Path) -> None:
    for kind in Storage:
        room = PartitionFiles(kind, str(tmp_path))
        store = room.make_store(PartitionId("p"), 0)
        spill = room.open()
        for path in room.path.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(room.path.stat().st_mode) == 0o700
        spill.close()
        store.delete()
        room.close()


def test_what_a_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    storage = open_store(str(tmp_path / "link"))
    metadata = take_next(storage)
    assert storage.restore_candidates(JOB).latest is not None
    (tmp_path / "one").symlink_to(tmp_path / "disk" / JOB / "chk-1")
    location, found = resolve(str(tmp_path / "one"))
    assert found == metadata
    assert verify(location, found).is_whole


def test_a_job_and_its_savepoints_may_have_folders_that_are_links(tmp_path: Path) -> None:
    for name in ("disk", "saved"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}-link").symlink_to(tmp_path / name)
    job = JobCheckpoints(JOB, str(tmp_path / "disk-link"))
    job.claim()
    job.store(StoreCheckpoint(metadata_of(3), str(tmp_path / "saved-link"), ends_job=True))
    job.check_claim()
    assert resolve(str(tmp_path / "saved-link"))[1] == metadata_of(3)
    job.close(keeps=False)
    assert names(tmp_path / "disk") == []
    assert names(tmp_path / "saved") == ["_metadata"]


def test_a_link_in_place_of_a_file_of_a_checkpoint_is_damage(
    storage: CheckpointStore, folder: Path, elsewhere: Path
) -> None:
    metadata = take_next(storage)
    location = storage.location(JOB, 1)
    for path in sorted((folder / JOB / "chk-1").iterdir()):
        path.rename(elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
        candidates = storage.restore_candidates(JOB)
        assert candidates.latest is None and len(candidates.damaged) == 1, path.name
        assert path.name in candidates.damaged[0].problem
        assert "link" in candidates.damaged[0].problem
        path.unlink()
        (elsewhere / path.name).rename(path)
    assert verify(location, metadata).is_whole


def test_a_state_file_that_became_a_link_is_not_read(
    storage: CheckpointStore, folder: Path, elsewhere: Path
) -> None:
    metadata = take_next(storage)
    piece = next(piece for piece in metadata.tasks[0].operators[0].keyed.values() if piece.path)
    path = folder / JOB / piece.path
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)
    refused = pytest.raises(CheckpointCorrupt, match="is a symbolic link, which is not followed")
    with PieceReader(storage.location(JOB, 1)) as reader, refused:
        reader.read(piece)


@pytest.mark.parametrize("linked", ["chk-1", "shared", ""])
def test_a_link_in_place_of_a_folder_is_neither_followed_nor_taken_for_nothing(
    storage: CheckpointStore, folder: Path, elsewhere: Path, tmp_path: Path, linked: str
) -> None:
    table = tmp_path / "table.sst"
    table.write_bytes(b"rows")
    take_next(storage, shared=(table,))
    path = folder / JOB / linked if linked else folder / JOB
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)
    if linked:
        candidates = storage.restore_candidates(JOB)
        assert candidates.latest is None and "link" in candidates.damaged[0].problem
    else:
        with pytest.raises(CheckpointCorrupt, match="is a symbolic link"):
            storage.restore_candidates(JOB)


def test_nothing_is_deleted_through_a_link(
    storage: CheckpointStore, folder: Path, elsewhere: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.sst"
    table.write_bytes(b"rows")
    metadata = take_next(storage, shared=(table,))
    (folder / JOB / "chk-1" / "more").symlink_to(elsewhere)
    (folder / JOB / "chk-2").symlink_to(elsewhere)
    (folder / JOB / "chk-3").mkdir()
    (folder / JOB / "chk-3" / "half").symlink_to(elsewhere / "precious")
    shared = folder / JOB / shared_pieces(metadata)[0].path
    shared.unlink()
    shared.symlink_to(elsewhere / "precious")
    storage.clean_abandoned(JOB, 1 << 60)
    discard(storage.location(JOB, 2))
    storage.drop(storage.location(JOB, 1))
    storage.drop_all(JOB)
    assert not (folder / JOB).exists()
    assert names(elsewhere) == ["precious"]


def test_a_link_that_comes_while_a_folder_is_deleted_is_not_followed(
    tmp_path: Path, elsewhere: Path
) -> None:
    """Somebody swaps folders for links all the time; nothing of theirs is deleted."""
    over = threading.Event()
    victim = tmp_path / "storage" / "job"

    def swap() -> None:
        while not over.is_set():
            for act in (
                lambda: victim.mkdir(parents=True),
                lambda: (victim / "chk-1").mkdir(),
                lambda: (victim / "chk-1").rename(tmp_path / "aside"),
                lambda: (victim / "chk-1").symlink_to(elsewhere),
                lambda: (tmp_path / "aside").rmdir(),
            ):
                try:
                    act()
                except OSError:
                    continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        root = open_folder(str(tmp_path / "storage"))
        for _ in range(300):
            try:
                root.child("job").child("chk-1").remove("precious")
                root.child("job").child("chk-1").remove_all()
                root.child("job").remove_all()
            except CheckpointError:
                continue
    finally:
        over.set()
        thread.join()
    assert names(elsewhere) == ["precious"]


def test_a_pipe_in_place_of_metadata_does_not_make_the_driver_wait(
    storage: CheckpointStore, folder: Path
) -> None:
    take_next(storage)
    path = folder / JOB / "chk-1" / "_metadata"
    path.unlink()
    os.mkfifo(path)
    assert "neither a file nor a folder" in storage.restore_candidates(JOB).damaged[0].problem


def test_a_nul_in_a_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageUnusable, match="holds a NUL"):
        open_folder(f"{tmp_path}/a\0b")
    folder = open_folder(str(tmp_path))
    for act in (folder.read, folder.remove, folder.has, lambda name: folder.put(name, b"")):
        with pytest.raises(StorageUnusable, match="null byte"):
            act("a\0b")
