"""The log: entries once, parts whole, and what was removed is not written again."""

import os
import re
import stat

import pytest

from headgate.base.errors import PathUnusable, StreamUnfit
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.stream_log import LogEntry, StreamLog, process_since
from tests.connectors.streaming.kit import (
    SCHEMA,
    attached_input,
    owner,
    rows,
    write_batch,
    write_parts,
)


@pytest.fixture
def log(tmp_path):
    attached_input(tmp_path)
    return StreamLog(str(tmp_path))


def test_an_entry_is_written_once(log, tmp_path):
    assert write_batch(tmp_path, "q", 0, rows(1, 2))
    first = log.read_entry("q", 0)

    assert not write_batch(tmp_path, "q", 0, rows(3))

    assert log.read_entry("q", 0) == first
    assert log.entries() == {"q": [0]}


def test_an_entry_that_was_read_and_removed_is_not_written_again(log, tmp_path):
    write_batch(tmp_path, "q", 0, rows(1))
    write_batch(tmp_path, "q", 1, rows(2))

    log.trim({"q": 1})

    assert log.entries() == {} and log.parts() == {}
    assert not log.append(LogEntry("q", 1, ()))
    assert not log.append(LogEntry("q", 0, ()))
    assert log.append(LogEntry("q", 2, ()))


def test_trimming_is_noted_before_anything_is_removed(log, tmp_path, monkeypatch):
    write_batch(tmp_path, "q", 0, rows(1))
    monkeypatch.setattr(LogFolder, "remove", lambda folder, name: (_ for _ in ()).throw(SystemExit))

    with pytest.raises(SystemExit):
        log.trim({"q": 0})

    assert log.removed().numbers == {"q": 0}
    assert log.entries() == {"q": [0]}
    monkeypatch.undo()
    log.trim({})  # the next one removes the rest
    assert log.entries() == {}


def test_parts_are_read_after_rows_and_large_ones_are_cut(log, monkeypatch):
    monkeypatch.setattr("headgate.connectors.streaming.stream_log.PART_BYTES", 64)
    batches = [rows(*range(n, n + 4)) for n in (0, 4, 8)]

    parts = log.write_parts("q.00000000000000000000.0-", SCHEMA, batches)

    assert [part.rows for part in parts] == [4, 4, 4]
    found = [batch.to_pylist() for batch in log.read_part(parts[1].name, 3)]
    assert found == [[{"id": 7, "price": 3.5}]]


def test_a_part_that_cannot_be_written_leaves_nothing(log):
    def batches():
        yield rows(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.write_parts("x", SCHEMA, batches())

    assert log.parts() == {}


def test_only_the_user_can_read_the_files(log, tmp_path):
    write_batch(tmp_path, "q", 0, rows(1))

    for folder, _, files in os.walk(tmp_path):
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


def test_a_part_outside_of_the_folder_is_refused(log):
    with pytest.raises(StreamUnfit, match="is no file of it"):
        list(log.read_part("../stream.json"))


def test_a_damaged_part_is_named(log, tmp_path):
    (part,) = write_parts(tmp_path, "q", 0, rows(1))
    (tmp_path / "parts" / part.name).write_bytes(b"no rows")

    with pytest.raises(PathUnusable, match=f"{part.name}: is damaged"):
        list(log.read_part(part.name))


def test_an_owner_whose_process_is_gone_has_ended():
    assert not owner().has_ended
    assert owner(pid=2**22 + 1).has_ended
    assert "is gone" in owner(pid=2**22 + 1).ending()
    assert not owner(pid=2**22 + 1, host="elsewhere").has_ended
    assert owner(state="FAILED", problem="no luck").ending() == "job j1 (shop) is failed: no luck"


def test_a_relative_folder_is_the_one_that_the_driver_means(tmp_path, monkeypatch):
    """Workers have other working folders."""
    monkeypatch.chdir(tmp_path)
    source = attached_input("own?/log")  # no option: a folder of this machine has none

    assert source.stream.uri == f"{tmp_path}/own?/log"
    assert LogFolder("own?").below("log").uri == source.stream.uri


def test_a_log_of_another_version_is_refused(log, tmp_path):
    text = (tmp_path / "stream.json").read_text()
    text = text.replace('"version":2', '"version":7').replace('"kind"', '"kind_of_stream"')
    (tmp_path / "stream.json").write_text(text)

    with pytest.raises(StreamUnfit, match="another version of Headgate .its format is 7"):
        log.info()


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("stream.json", StreamLog.info),
        ("owner.json", StreamLog.owner),
        ("trimmed.json", StreamLog.removed),
        ("taken.json", StreamLog.taken),
        ("entries/q.00000000000000000000.json", lambda log: log.read_entry("q", 0)),
    ],
)
def test_a_damaged_file_of_the_log_is_named(log, tmp_path, name, look):
    (tmp_path / name).write_bytes(b"[1")

    with pytest.raises(StreamUnfit, match=f"{re.escape(name)} is damaged"):
        look(log)


def test_a_driver_is_gone_if_another_process_has_its_number():
    since = process_since(os.getpid())

    assert since and not owner(since=since).has_ended
    assert owner(since=f"{since}0").has_ended
