"""What tasks get back, of real files: what was written, or an error that names the file."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headgate.base.checkpoints import (
    ChannelState,
    CheckpointKind,
    DatabaseRestore,
    OperatorRestore,
    ReassignedStream,
    SubtaskState,
    TaskRestore,
)
from headgate.base.elements import Bundle
from headgate.base.errors import CheckpointCorrupt, CheckpointMissing, StorageUnusable
from headgate.base.messages import CheckpointOrder
from headgate.core.checkpoint.restored import TaskRestored, read_restore
from headgate.host.checkpoints.checkpoint_store import complete, open_store
from headgate.host.checkpoints.location import CheckpointLocation, new_savepoint
from headgate.host.checkpoints.pieces import PartWriter
from headgate.host.checkpoints.restoring import StoredDatabaseFiles, open_checkpoint
from tests.host.checkpoint_kit import JOB, LARGE, flip, metadata_of

OTHER = LARGE[::-1]


def whole(stream: ReassignedStream, pieces: Sequence[bytes]) -> list[Bundle]:
    return [Bundle([stream.gate, *pieces])]


def write(location: CheckpointLocation, kind: CheckpointKind) -> TaskRestore:
    """A complete checkpoint; a task that gets back everything that there is."""
    with PartWriter(location, "t", 0) as writer:
        piece = writer.append
        restore = TaskRestore(
            "3.0",
            4,
            (
                OperatorRestore(
                    "count",
                    keyed={7: piece(LARGE), 3: piece(OTHER)},
                    plain=(piece(b"one"), None, piece(b"three")),
                ),
                OperatorRestore("read", source=(None, piece(b"at 17"))),
                OperatorRestore("sink", sinks=(piece(b"a"), piece(b"b"))),
                OperatorRestore("fresh"),
            ),
            (
                ChannelState(True, 1, 2, (piece(b"in"), piece(LARGE))),
                ChannelState(False, 0, 3, (piece(b"out"),)),
            ),
            (ReassignedStream(1, 0, 0, False, (piece(b"s"), piece(b"t"))),),
        )
    state = SubtaskState("3.0", 3, 0, 1, 128)
    complete(location, metadata_of(4, (state,), kind))
    return restore


@pytest.fixture(params=[CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT])
def stored(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[CheckpointLocation, TaskRestore]:
    folder = str(tmp_path / "chk")
    if request.param is CheckpointKind.CHECKPOINT:
        location = open_store(folder).location(JOB, 4)
    else:
        location = new_savepoint(folder, JOB)
    return location, write(location, request.param)


def restored(location: CheckpointLocation, restore: TaskRestore) -> TaskRestored:
    return restored_from(location.own.uri, restore)


def restored_from(where: str, restore: TaskRestore, shared_uri: str = "") -> TaskRestored:
    order = CheckpointOrder("", JOB, restored_from=where)
    with open_checkpoint(order, shared_uri) as reader:
        return read_restore(restore, reader, whole)


def test_everything_comes_back_as_it_was_written(
    stored: tuple[CheckpointLocation, TaskRestore],
) -> None:
    found = restored(*stored)
    assert not found.finished
    count, read = found.operators["count"], found.operators["read"]
    assert count.checkpoint == 4
    assert dict(count.keyed()) == {7: LARGE, 3: OTHER}
    assert dict(count.keyed()) == {7: LARGE, 3: OTHER}, "and again, if it is asked again"
    assert count.plain == (b"one", None, b"three")
    assert read.source == (None, b"at 17")
    assert dict(read.keyed()) == {}
    assert found.operators["sink"].sinks == (b"a", b"b")
    fresh = found.operators["fresh"]
    assert (fresh.plain, fresh.source, fresh.sinks) == ((), (), ())
    assert found.inputs == [(1, 2, [b"in", LARGE])]
    assert found.outputs == [(0, 3, [b"out"])]
    assert [(gate, list(bundles)) for gate, bundles in found.reassigned] == [
        (1, [Bundle([1, b"s", b"t"])])
    ]


def test_a_folder_that_was_moved_is_read_where_it_is_now(
    stored: tuple[CheckpointLocation, TaskRestore], tmp_path: Path
) -> None:
    location, restore = stored
    moved = tmp_path / "archive"
    Path(location.own.path).rename(moved)
    found = restored_from(str(moved), restore)
    assert dict(found.operators["count"].keyed()) == {7: LARGE, 3: OTHER}


def test_a_task_that_had_finished_is_told_so(
    stored: tuple[CheckpointLocation, TaskRestore],
) -> None:
    location, _ = stored
    assert restored(location, TaskRestore("3.0", 4, finished=True)).finished


def _file(location: CheckpointLocation) -> Path:
    (found,) = Path(location.own.path).glob("t-*.state")
    return found


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _spoil_group(file: Path) -> None:
    flip(file, 5, 3)


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (Path.unlink, CheckpointMissing),
        (_cut, CheckpointCorrupt),
    ],
)
def test_what_is_small_is_checked_before_a_task_begins(
    stored: tuple[CheckpointLocation, TaskRestore],
    harm: Callable[[Path], None],
    error: type[Exception],
) -> None:
    location, restore = stored
    file = _file(location)
    harm(file)
    with pytest.raises(error, match=str(file)):
        restored(location, restore)


def test_a_key_group_is_checked_when_its_operator_reads_it(
    stored: tuple[CheckpointLocation, TaskRestore],
) -> None:
    location, restore = stored
    _spoil_group(_file(location))
    groups: Iterator[tuple[int, bytes]] = restored(location, restore).operators["count"].keyed()
    with pytest.raises(CheckpointCorrupt, match="was changed: the checksum"):
        dict(groups)


def test_a_checkpoint_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "chk-4"
    with pytest.raises(CheckpointMissing, match=str(gone)):
        restored_from(str(gone), TaskRestore("3.0", 4))


def test_a_storage_that_is_away_is_no_damage_of_what_is_in_it(tmp_path: Path) -> None:
    away = tmp_path / "storage" / "job" / "chk-4"
    with pytest.raises(StorageUnusable, match="job: is not there; check that the storage"):
        restored_from(str(away), TaskRestore("3.0", 4))


def test_files_of_a_database_are_named_again_only_by_the_job_that_shares_them(
    tmp_path: Path,
) -> None:
    location = open_store(str(tmp_path / "chk")).location(JOB, 4)
    table = tmp_path / "1.sst"
    table.write_bytes(LARGE)
    with PartWriter(location, "t", 0) as writer:
        files = {"1.sst": writer.share(str(table)), "CURRENT": writer.append(b"MANIFEST-1")}
    complete(location, metadata_of(4))
    operator = OperatorRestore("count", databases=(DatabaseRestore(3, 128, files),))
    restore = TaskRestore("3.0", 4, (operator,))
    for shared_uri, expected in ((location.shared.uri, {"1.sst"}), ("", set()), ("/other", set())):
        found = restored_from(location.own.uri, restore, shared_uri)
        (database,) = found.operators["count"].databases
        assert (database.groups, set(database.shared)) == (range(3, 128), expected)
    database.fetch(str(tmp_path / "fetched"))
    assert (tmp_path / "fetched" / "1.sst").read_bytes() == LARGE
    assert (tmp_path / "fetched" / "CURRENT").read_bytes() == b"MANIFEST-1"


def test_a_file_of_a_database_stands_in_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    location = open_store(str(tmp_path / "chk")).location(JOB, 4)
    with PartWriter(location, "t") as writer:
        piece = writer.append(b"evil")
    for number, name in enumerate(("../out", "/out", "..", "")):
        stored = StoredDatabaseFiles(location, range(8), {name: piece}, False)
        with pytest.raises(CheckpointCorrupt, match="leads elsewhere"):
            stored.fetch(str(tmp_path / str(number)))
    assert not (tmp_path / "out").exists()
