"""Files of a log on this machine: whole or not at all, also on full disks and odd file systems."""

import errno
import os

import pytest

from headgate.base.errors import PathUnusable
from headgate.connectors.streaming.log_folder import HALF_MADE_S, LogFolder


@pytest.fixture
def folder(tmp_path):
    return LogFolder(str(tmp_path))


def full_disk(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def write_large(folder):
    with folder.created("a") as file:
        file.write(b"rows")


@pytest.mark.parametrize(
    "write", [lambda f: f.put("a", b"x"), lambda f: f.replace("a", b"x"), write_large]
)
def test_a_full_disk_is_told_and_leaves_nothing(folder, tmp_path, monkeypatch, write):
    monkeypatch.setattr(os, "fsync", full_disk)

    with pytest.raises(PathUnusable, match="a: cannot be written: No space left on device"):
        write(folder)

    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_disk_that_is_full_when_a_file_is_replaced_keeps_the_old_one(
    folder, tmp_path, monkeypatch
):
    folder.put("a", b"old")
    monkeypatch.setattr(os, "fsync", full_disk)

    with pytest.raises(PathUnusable):
        folder.replace("a", b"new")

    assert folder.read("a") == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_name_that_was_given_though_the_answer_got_lost_counts_as_given(folder, monkeypatch):
    """A file system in the network repeats a request whose answer it does not get."""
    link = os.link

    def repeated(source, target):
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)

    assert folder.put("a", b"first")
    assert not folder.put("a", b"second")
    assert folder.read("a") == b"first"


def test_a_file_system_without_second_names_keeps_what_is_there(folder, tmp_path, monkeypatch):
    def refused(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)

    assert folder.put("a", b"first")
    assert not folder.put("a", b"second")
    assert folder.read("a") == b"first" and len(list(tmp_path.iterdir())) == 1


def test_what_killed_processes_have_left_half_made_is_removed_when_it_is_old(folder, tmp_path):
    folder.put("owner.json", b"{}")
    old = os.stat(tmp_path).st_mtime - HALF_MADE_S - 60
    for name in (".owner.json-0123abcd", ".new.json-0123abcd", ".0.crc", "part.arrow"):
        (tmp_path / name).write_bytes(b"")
        if "new" not in name:
            os.utime(tmp_path / name, (old, old))
    folder.tidy("")

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".0.crc", ".new.json-0123abcd", "owner.json", "part.arrow"]
