"""Stores keep entries in order and go from the disk; the three of them behave the same."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.ids import PartitionId
from headgate.base.settings import MIB, Storage
from headgate.core.egress.blocking import EntryStore, StoreReader
from headgate.host.files.partition_files import PartitionFiles

Entries = list[tuple[bytes, bool]]


@pytest.fixture(params=list(Storage), ids=lambda storage: storage.value)
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PartitionFiles]:
    room = PartitionFiles(request.param, str(tmp_path))
    yield room
    room.close()
    assert not room.path.exists()


def test_a_room_has_no_folder_before_its_first_file(tmp_path: Path) -> None:
    room = PartitionFiles(parent=str(tmp_path))
    assert list(tmp_path.glob("headgate-*")) == []
    room.open().close()
    assert list(tmp_path.glob("headgate-*")) == [room.path.parent]
    room.close()
    PartitionFiles(parent=str(tmp_path)).close()
    assert list(tmp_path.glob("headgate-*")) == []


def make_store(room: PartitionFiles) -> EntryStore:
    return room.make_store(PartitionId("p"), 0)


def read_all(reader: StoreReader) -> Entries:
    entries: Entries = []
    while (entry := reader.next()) is not None:
        entries.append((bytes(entry[0]), entry[1]))
    return entries


@given(
    entries=st.lists(st.tuples(st.binary(max_size=3000), st.booleans()), max_size=30),
    storage=st.sampled_from(Storage),
)
def test_what_was_stored_is_read_in_order(entries: Entries, storage: Storage) -> None:
    room = PartitionFiles(storage)
    try:
        store = make_store(room)
        for data, is_event in entries:
            store.append(data, is_event)
        store.finish()
        reader = store.open_reader()
        assert read_all(reader) == entries
        reader.close()
        store.delete()
    finally:
        room.close()


def test_a_store_grows_far_beyond_its_first_size(room: PartitionFiles) -> None:
    store = make_store(room)
    entries = [(bytes([number]) * 100_000, False) for number in range(70)]
    entries.append((b"e" * (3 * MIB), True))
    for data, is_event in entries:
        store.append(memoryview(data), is_event)
    store.finish()
    assert sum(path.stat().st_size for path in room.path.iterdir()) < 11 * MIB
    reader = store.open_reader()
    assert read_all(reader) == entries
    reader.close()
    store.delete()
    assert list(room.path.iterdir()) == []


def test_several_readers_read_at_their_own_pace(room: PartitionFiles) -> None:
    store = make_store(room)
    for number in range(10):
        store.append(b"%d" % number, False)
    store.finish()
    slow, quick = store.open_reader(), store.open_reader()
    first = slow.next()
    assert len(read_all(quick)) == 10
    assert first == (b"0", False)
    assert len(read_all(slow)) == 9
    slow.close()
    quick.close()


def test_a_slice_outlives_its_reader_and_its_store(room: PartitionFiles) -> None:
    store = make_store(room)
    store.append(b"still travelling", False)
    store.finish()
    reader = store.open_reader()
    entry = reader.next()
    reader.close()
    store.delete()
    assert entry is not None
    assert bytes(entry[0]) == b"still travelling"


def test_an_unfinished_store_is_deleted_whole(room: PartitionFiles) -> None:
    store = make_store(room)
    store.append(b"begun", False)
    store.delete()
    store.delete()
    assert list(room.path.iterdir()) == []


def test_a_full_disk_is_an_error_and_no_signal(
    room: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = make_store(room)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    if room._storage is Storage.MMAP:
        with pytest.raises(OSError, match="No space"):
            store.append(bytes(2 * MIB), False)
        with pytest.raises(OSError, match="No space"):
            make_store(room)
    store.delete()


def test_a_failed_finish_closes_the_file(tmp_path: Path) -> None:
    room = PartitionFiles(Storage.FILE, str(tmp_path))
    store = make_store(room)
    store.append(b"data", False)

    def no_space() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = store._writer  # type: ignore[attr-defined]
    writer.finish = no_space
    with pytest.raises(OSError, match="No space"):
        store.finish()
    assert writer._file.closed
    store.delete()
    room.close()


def test_a_spilled_element_is_read_back_and_gone(tmp_path: Path) -> None:
    room = PartitionFiles(parent=str(tmp_path))
    spill = room.open()
    assert spill.written() == b""
    spill.write(memoryview(b"large "))
    assert spill.written() == b"large "
    spill.write(memoryview(b"element"))
    assert spill.written() == spill.written() == b"large element"
    with spill.view() as view:
        assert bytes(view) == b"large element"
    spill.close()
    assert list(room.path.iterdir()) == []
    abandoned = room.open()
    abandoned.close()
    assert list(room.path.iterdir()) == []
    room.close()
    room.close()


def test_rooms_do_not_share_a_folder(tmp_path: Path) -> None:
    rooms = [PartitionFiles(parent=str(tmp_path)) for _ in range(2)]
    assert rooms[0].path != rooms[1].path
    for room in rooms:
        assert room.path.stat().st_mode & 0o077 == 0, "others may read the data"
        room.close()
