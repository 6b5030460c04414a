"""``headgate checkpoints``: a list for people and for machines, and an exit code that tells."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.base.checkpoints import CheckpointKind, pieces_of
from headgate.base.recovery_settings import CheckpointSettings
from headgate.cli.checkpoints import CheckpointLine, ProgressLine, describe, show, size_text
from headgate.host.checkpoints.checkpoint_store import (
    CheckpointStore,
    complete,
    find_checkpoints,
    open_store,
)
from headgate.host.checkpoints.location import new_savepoint
from headgate.host.checkpoints.metadata import checkpoint_key
from headgate.host.checkpoints.pieces import PartWriter
from tests.cli.kit import Headgate, in_process
from tests.host.checkpoint_kit import JOB, LARGE, flip, metadata_of, take, take_next


@pytest.fixture
def headgate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headgate:
    return partial(in_process, monkeypatch, capsys, "checkpoints")


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStore:
    """Two complete checkpoints, an unfinished one, another job, and a savepoint."""
    storage = open_store(str(tmp_path / "all"))
    take_next(storage)
    take_next(storage)
    with PartWriter(storage.location(JOB, 3), "t-0-0-0", 0) as writer:
        writer.append(LARGE)
    take_next(storage, job="other")
    location = new_savepoint(str(tmp_path / "all"), JOB)
    take(location, 11, CheckpointKind.SAVEPOINT)
    return storage


def lines_of(storage: CheckpointStore, *, deep: bool = True) -> list[CheckpointLine]:
    lines = [describe(found, deep=deep) for found in find_checkpoints(storage.folder.path)]
    return [line for line in lines if line is not None]


def test_signatures_are_checked_with_a_key(headgate: Headgate, tmp_path: Path) -> None:
    keys = [tmp_path / "right", tmp_path / "wrong"]
    for key in keys:
        key.write_text(f"the {key.name} key of checkpoints")
        key.chmod(0o600)
    signing = checkpoint_key(CheckpointSettings(hmac_secret_file=str(keys[0])))
    location = open_store(str(tmp_path / "all"), signing).location(JOB, 1)
    complete(location, metadata_of(1))
    path = str(tmp_path / "all")
    assert headgate(path).returncode == 0
    assert headgate(path, "--secret-file", str(keys[0])).returncode == 0
    done = headgate(path, "--secret-file", str(keys[1]))
    assert done.returncode == 1
    assert "its HMAC is wrong" in done.stdout


def test_everything_below_the_path_is_listed_and_verified(
    headgate: Headgate, storage: CheckpointStore
) -> None:
    done = headgate(storage.folder.path, "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["path"] == storage.folder.path
    rows = [
        (checkpoint["job"], checkpoint["checkpoint"], checkpoint["kind"], checkpoint["state"])
        for checkpoint in report["checkpoints"]
    ]
    assert rows == [
        (JOB, 1, "checkpoint", "ok"),
        (JOB, 2, "checkpoint", "ok"),
        ("", 3, "", "unfinished"),
        ("other", 1, "checkpoint", "ok"),
        (JOB, 11, "savepoint", "ok"),
    ]
    first = report["checkpoints"][0]
    assert first["path"].endswith(f"{JOB}/chk-1")
    assert (first["tasks"], first["files"], first["completed_ms"]) == (2, 2, 2001)
    assert first["state_bytes"] == 2 * (len(LARGE) + 15)
    assert first["name"] == "count orders"


def test_people_get_a_table(headgate: Headgate, storage: CheckpointStore) -> None:
    done = headgate(storage.folder.path)
    assert done.returncode == 0, done.stderr
    head, first, *_ = done.stdout.splitlines()
    assert head.split() == [
        "id", "kind", "job", "name", "completed", "size", "tasks", "state", "path",
    ]  # fmt: skip
    assert first.split()[:3] == ["1", "checkpoint", JOB]
    assert "1970-01-01 00:00:02Z  128.0 KiB  2      ok" in first
    assert len(done.stdout.splitlines()) == 6
    assert "\x1b[" not in done.stdout


def test_a_damaged_state_is_told_and_exits_with_1(
    headgate: Headgate, storage: CheckpointStore
) -> None:
    folder = Path(storage.folder.path) / JOB
    state = next((folder / "chk-2").glob("t-*"))
    flip(state, 70, 3)
    done = headgate(folder)
    assert done.returncode == 1
    assert "damaged" in done.stdout
    assert f"    {state}: was changed" in done.stdout
    assert headgate(folder / "chk-1").returncode == 0

    unread = headgate(folder, "--no-verify", "--json")
    assert unread.returncode == 0, unread.stderr
    states = [checkpoint["state"] for checkpoint in json.loads(unread.stdout)["checkpoints"]]
    assert states == ["files there", "files there", "unfinished"]


def test_damaged_metadata_and_missing_files_are_found_without_reading(
    storage: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(storage.folder.path) / JOB
    flip(folder / "chk-1" / "_metadata", 30, 1)
    next((folder / "chk-2").glob("t-*")).unlink()
    lines = lines_of(storage, deep=False)
    assert [line.state for line in lines] == [
        "damaged",
        "damaged",
        "unfinished",
        "files there",
        "files there",
    ]
    assert lines[0].checkpoint == 1 and lines[0].job == ""
    show(lines)
    output = capsys.readouterr().out
    assert "_metadata: was changed" in output
    assert ".state: is not there" in output


def test_one_checkpoint_or_its_metadata_can_be_named(storage: CheckpointStore) -> None:
    folder = Path(storage.folder.path) / JOB / "chk-2"
    for where in (str(folder), str(folder / "_metadata"), f"file://{folder}"):
        (found,) = find_checkpoints(where)
        line = describe(found, deep=True)
        assert line is not None and line.state == "ok"


def test_metadata_of_another_checkpoint_of_the_job_is_damage(
    headgate: Headgate, tmp_path: Path
) -> None:
    """Each of them is whole by itself; the job would restore from neither."""
    storage = open_store(str(tmp_path / "all"))
    places = [storage.location(JOB, number) for number in (1, 2)]
    for number, location in enumerate(places, 1):
        complete(location, metadata_of(number))
    first, second = (Path(location.own.path) / "_metadata" for location in places)
    data = first.read_bytes(), second.read_bytes()
    second.write_bytes(data[0])
    first.write_bytes(data[1])
    done = headgate(storage.folder.path, "--json")
    assert done.returncode == 1
    for line, other in zip(json.loads(done.stdout)["checkpoints"], (2, 1), strict=True):
        assert line["state"] == "damaged"
        assert f"is checkpoint {other} of job {JOB!r}, which is out of place" in line["problems"][0]
    assert storage.restore_candidates(JOB).latest is None


def test_a_checkpoint_that_its_job_drops_meanwhile_is_not_damaged(
    storage: CheckpointStore,
) -> None:
    found = find_checkpoints(f"{storage.folder.path}/{JOB}")[:2]
    storage.drop(found[0].location)
    assert describe(found[0], deep=True) is None
    assert describe(found[0], deep=False) is None
    rest = describe(found[1], deep=True)
    assert rest is not None and rest.state == "ok"


@pytest.mark.parametrize(
    ("where", "complaint"),
    [("nowhere", "is not there; check the path"), ("tape://x/y", "Unrecognized filesystem type")],
)
def test_a_path_that_cannot_be_read_is_told(headgate: Headgate, where: str, complaint: str) -> None:
    done = headgate(where)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_long_check_tells_how_far_it_is_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 0.5, 1.5, 1.5, 1.8, 2.5, 2.5])
    monkeypatch.setattr("headgate.cli.checkpoints.time.monotonic", lambda: next(now))
    with ProgressLine(4096, True) as meter:
        for _ in range(4):
            meter.read(1024)
    clear = "\r\x1b[2K"
    assert capsys.readouterr().err == (
        f"{clear}checked 2.0 KiB of 4.0 KiB (50%){clear}checked 4.0 KiB of 4.0 KiB (100%){clear}"
    )


def test_nothing_is_said_about_a_check_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headgate.cli.checkpoints.time.monotonic", lambda: 1e9)
    with ProgressLine(10, False) as meter:
        meter.read(10)
    assert capsys.readouterr().err == ""


def test_every_byte_that_is_checked_is_counted(storage: CheckpointStore) -> None:
    (found,) = find_checkpoints(f"{storage.folder.path}/{JOB}/chk-2")
    counts: list[int] = []
    assert describe(found, deep=True, on_read=counts.append)
    assert found.metadata is not None
    pieces = {piece for task in found.metadata.tasks for piece in pieces_of(task)}
    assert sum(counts) == sum(piece.length for piece in pieces) > 2 * len(LARGE)


def test_an_empty_folder_has_no_checkpoints(headgate: Headgate, tmp_path: Path) -> None:
    done = headgate(tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"there are no checkpoints in {tmp_path}\n"
    assert json.loads(headgate(tmp_path, "--json").stdout) == {
        "path": str(tmp_path),
        "checkpoints": [],
    }


def test_sizes_are_told_in_fitting_units() -> None:
    assert [size_text(count) for count in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**3, 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "1024.0 TiB",
    ]
