"""A task's part of a checkpoint: pieces that come back whole, damage that is found, clean ends."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from headgate.base.checkpoints import Piece
from headgate.base.errors import (
    CheckpointAbandoned,
    CheckpointCorrupt,
    CheckpointMissing,
    StorageUnusable,
)
from headgate.host.checkpoints import folder as checkpoint_folder
from headgate.host.checkpoints.checkpoint_store import complete
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.location import (
    CheckpointLocation,
    checkpoint_location,
    savepoint_location,
)
from headgate.host.checkpoints.pieces import PartWriter, PieceReader, part_name, verify
from headgate.host.files.private_files import PrivateFiles
from tests.host.checkpoint_kit import (
    LARGE,
    ObjectStore,
    flip,
    folder_of,
    metadata_of,
    names,
    task_of,
    write_task,
)
from tests.host.rig import eventually

NAME = part_name(3, 0, 1)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def location(job: Path) -> CheckpointLocation:
    return checkpoint_location(open_folder(str(job)), 7)


def memory_place() -> CheckpointLocation:
    system = fs._MockFileSystem()
    return checkpoint_location(folder_of(system, "job"), 7)


@given(
    pieces=st.lists(st.lists(st.binary(max_size=300), max_size=4), max_size=12),
    inline_bytes=st.integers(0, 500),
)
def test_pieces_come_back_in_any_order(pieces: list[list[bytes]], inline_bytes: int) -> None:
    location = memory_place()
    with PartWriter(location, NAME, inline_bytes) as writer:
        written = [(writer.append(*parts), b"".join(parts)) for parts in pieces]
    with PieceReader(location) as reader:
        for piece, data in reversed(written):
            assert reader.read(piece) == data
            assert b"".join(reader.chunks(piece)) == data
    inline = sum(piece.length for piece, _ in written if not piece.path)
    assert inline <= inline_bytes
    assert all(len(piece.inline) == (0 if piece.path else piece.length) for piece, _ in written)


def test_a_small_task_makes_no_file(location: CheckpointLocation, job: Path) -> None:
    with PartWriter(location, NAME) as writer:
        assert writer.append(b"little").inline == b"little"
        assert writer.append().length == 0
    assert not job.exists()


def test_buffers_of_any_kind_are_counted_in_bytes(location: CheckpointLocation) -> None:
    numbers = memoryview(bytes(range(16))).cast("I")
    with PartWriter(location, NAME, 0) as writer:
        piece = writer.append(numbers, bytearray(b"x"))
        after = writer.append(b"y")
    assert (piece.length, after.offset) == (17, 17)
    with PieceReader(location) as reader:
        assert reader.read(piece) == bytes(range(16)) + b"x"


def test_one_file_for_each_task_and_never_the_same(location: CheckpointLocation, job: Path) -> None:
    for _ in range(2):
        with PartWriter(location, NAME, 0) as writer:
            writer.append(b"a")
            writer.append(b"b")
    files = names(job)
    assert len(files) == 2
    assert all(file.startswith("chk-7/t-3-0-1-") and file.endswith(".state") for file in files)


def test_tasks_write_at_the_same_time(location: CheckpointLocation) -> None:
    def write(subtask: int) -> list[tuple[Piece, bytes]]:
        with PartWriter(location, part_name(0, subtask, 0), 10) as writer:
            return [(writer.append(data), data) for data in (bytes([subtask]) * 5000,) * 20]

    with ThreadPoolExecutor(8) as pool:
        written = [pair for pairs in pool.map(write, range(16)) for pair in pairs]
    with PieceReader(location) as reader:
        assert all(reader.read(piece) == data for piece, data in written)


@given(position=st.integers(0, 10**6), bit=st.integers(0, 7), data=st.data())
def test_a_flipped_bit_anywhere_in_a_state_is_found(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    location = checkpoint_location(open_folder(str(folder)), 7)
    states = tuple(
        write_task(
            location, n, {g: bytes(data.draw(st.integers(1, 400))) for g in range(3)}, (), (), 0
        )
        for n in range(2)
    )
    metadata = metadata_of(7, states)
    assert verify(location, metadata).is_whole
    files = sorted((folder / "chk-7").iterdir())
    flip(files[position % 2], position, bit)
    verdict = verify(location, metadata)
    assert len(verdict.problems) == 1
    assert str(files[position % 2]) in verdict.problems[0]
    assert "was changed" in verdict.problems[0]


def test_a_file_that_is_cut_or_gone_is_told_with_its_path(location: CheckpointLocation) -> None:
    with PartWriter(location, NAME, 0) as writer:
        first, second = writer.append(LARGE), writer.append(LARGE)
    path = Path(location.show_file(first.path))
    path.write_bytes(path.read_bytes()[:-1])
    with PieceReader(location) as reader:
        assert reader.read(first) == LARGE
        with pytest.raises(CheckpointCorrupt, match=f"{path}: is cut: .* only 65535 are there"):
            reader.read(second)
        with pytest.raises(CheckpointCorrupt, match="is cut"):
            reader.check(second)
    path.unlink()
    with PieceReader(location) as reader, pytest.raises(CheckpointMissing, match=str(path)):
        reader.read(first)


def test_inline_bytes_are_checked_like_others(location: CheckpointLocation) -> None:
    with PartWriter(location, NAME) as writer:
        piece = writer.append(b"little")
    with PieceReader(location) as reader:
        with pytest.raises(CheckpointCorrupt, match="was changed"):
            reader.read(Piece("", 0, 6, piece.crc, b"Little"))
        with pytest.raises(CheckpointCorrupt, match="is cut"):
            reader.read(Piece("", 0, 6, piece.crc, b"litt"))


def test_a_piece_leads_nowhere_but_to_its_own_folders(location: CheckpointLocation) -> None:
    outside = ("../x", "chk-8/x", "/etc/passwd", "chk-7/../x", "shared/..", "chk-7/", "x", "a/b/c")
    for path in outside:
        piece = Piece(path, 0, 1, 0)
        with PieceReader(location) as reader, pytest.raises(CheckpointCorrupt, match="be its own"):
            reader.read(piece)
        assert not verify(location, metadata_of(7, (task_of(0, {0: piece}),))).is_whole


def test_a_reader_keeps_few_files_open(location: CheckpointLocation) -> None:
    pieces = []
    for subtask in range(20):
        with PartWriter(location, part_name(0, subtask, 0), 0) as writer:
            pieces.append(writer.append(bytes([subtask])))
    with PieceReader(location) as reader:
        for _ in range(2):
            assert [reader.read(piece)[0] for piece in pieces] == list(range(20))
            assert len(reader._files) == 8


def test_a_shared_file_is_copied_and_fetched(
    location: CheckpointLocation, tmp_path: Path, job: Path
) -> None:
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE * 40)
    with PartWriter(location, NAME) as writer:
        piece = writer.share(str(source))
    assert piece.path.startswith("shared/chk-7-t-3-0-1-")
    with PieceReader(location) as reader:
        reader.fetch(piece, str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == LARGE * 40
        flip(job / piece.path, 1_500_000, 3)
        with pytest.raises(CheckpointCorrupt, match="was changed"):
            reader.fetch(piece, str(tmp_path / "back"))


def test_a_savepoint_shares_nothing(tmp_path: Path) -> None:
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE)
    location = savepoint_location(open_folder(str(tmp_path / "save")))
    with PartWriter(location, NAME, 0) as writer:
        pieces = [writer.share(str(source)), writer.append(b"x")]
    assert sorted(piece.path for piece in pieces) == names(tmp_path / "save")


def test_an_aborted_writer_leaves_nothing(
    location: CheckpointLocation, job: Path, tmp_path: Path
) -> None:
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE)
    writer = PartWriter(location, NAME, 0)
    writer.append(LARGE)
    writer.share(str(source))
    assert len(names(job)) == 2
    writer.abort()
    writer.abort()
    assert names(job) == []
    for attempt in (lambda: writer.append(b"x"), lambda: writer.share(str(source)), writer.close):
        with pytest.raises(CheckpointAbandoned, match="was given up"):
            attempt()
    assert names(job) == []


def test_an_error_inside_the_context_leaves_nothing(
    location: CheckpointLocation, job: Path
) -> None:
    def write() -> None:
        with PartWriter(location, NAME, 0) as writer:
            writer.append(LARGE)
            raise KeyError("the state cannot be pickled")

    with pytest.raises(KeyError):
        write()
    assert names(job) == []


def test_a_closed_part_can_be_taken_back_until_its_checkpoint_is_complete(
    location: CheckpointLocation, job: Path
) -> None:
    early, late = PartWriter(location, NAME, 0), PartWriter(location, NAME, 0)
    early.append(LARGE)
    early.close()
    early.close()
    early.abort()
    assert names(job) == []
    piece = late.append(LARGE)
    late.close()
    complete(location, metadata_of(7, (task_of(0, {0: piece}),)))
    late.abort()
    assert verify(location, location.read_metadata()).is_whole


def test_a_long_copy_ends_soon_after_an_abort(
    location: CheckpointLocation, job: Path, tmp_path: Path
) -> None:
    source = tmp_path / "endless"
    os.mkfifo(source)
    writer = PartWriter(location, NAME, 0)
    with ThreadPoolExecutor(2) as pool:
        copying = pool.submit(writer.share, str(source))
        with open(source, "wb", buffering=0) as pipe:
            pipe.write(b"begun")
            aborting = pool.submit(writer.abort)
            eventually(lambda: writer._abandoned, "the abort is seen")
            with suppress(BrokenPipeError):  # it may have seen the abort by itself
                pipe.write(b"and so on")
            with pytest.raises(CheckpointAbandoned):
                copying.result(20)
        aborting.result(20)
    assert names(job) == []


def test_a_part_that_cannot_be_settled_is_not_there(
    location: CheckpointLocation, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: PrivateFiles, path: str) -> None:
        raise OSError(5, "Input/output error")

    writer = PartWriter(location, NAME, 0)
    writer.append(LARGE)
    monkeypatch.setattr(PrivateFiles, "sync", broken)
    with pytest.raises(StorageUnusable, match="Input/output error; check that the storage"):
        writer.close()
    assert names(job) == []


def test_a_local_file_that_is_gone_is_told(location: CheckpointLocation, job: Path) -> None:
    writer = PartWriter(location, NAME, 0)
    with pytest.raises(CheckpointMissing, match=r"000099\.sst"):
        writer.share("nowhere/000099.sst")
    assert names(job) == []


def test_an_object_store_holds_nothing_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folder, "FLAT", frozenset({"py::objects"}))
    store = ObjectStore()
    job: Folder = folder_of(fs.PyFileSystem(store), "bucket/job")
    location = checkpoint_location(job, 7)
    writer = PartWriter(location, NAME, 0)
    writer.append(LARGE)
    assert store.objects == {}
    writer.abort()
    assert store.objects == {}
    with PartWriter(location, NAME, 0) as writer:
        piece = writer.append(LARGE)
    complete(location, metadata_of(7, (task_of(0, {0: piece}),)))
    assert sorted(store.objects) == ["bucket/job/chk-7/_metadata", f"bucket/job/{piece.path}"]
    assert verify(location, location.read_metadata()).is_whole
