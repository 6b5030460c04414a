"""The files of running jobs: the user's alone, gone with their jobs and with dead drivers."""

import logging
import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.host.driver.job_directory import (
    DirectoryUnsafe,
    announce,
    entries,
    here,
    job_folder,
)
from tests.host.endpoint_kit import job_entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "headgate"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_job_is_found_until_its_announcement_closes(folder: Path) -> None:
    assert entries(folder) == []
    younger = job_entry("x/1", since_ms=2_000, name="späte")
    announcements = [announce(younger, folder), announce(job_entry(), folder)]
    assert [entry for entry, _ in entries(folder)] == [job_entry(), younger]
    for announcement in announcements:
        announcement.close()
        announcement.close()
    assert entries(folder) == []
    assert not folder.exists()


def test_nobody_else_can_read_what_is_written(folder: Path) -> None:
    before = os.umask(0)
    try:
        announcement = announce(job_entry(), folder)
    finally:
        os.umask(before)
    assert mode(folder) == 0o700
    assert mode(announcement.path) == 0o600
    assert "ssss" not in repr(job_entry())


def test_the_same_job_of_two_drivers_has_two_files(folder: Path) -> None:
    first = announce(job_entry(pid=os.getppid()), folder)
    announce(job_entry(), folder)
    first.close()
    assert [entry.pid for entry, _ in entries(folder)] == [os.getpid()]


def test_the_folder_goes_with_its_last_job(folder: Path) -> None:
    first, second = announce(job_entry("a"), folder), announce(job_entry("b"), folder)
    first.close()
    assert [found.job for found, _ in entries(folder)] == ["b"]
    second.close()
    assert not folder.exists()


def test_jobs_are_announced_while_others_remove_the_folder(folder: Path) -> None:
    def come_and_go(name: str) -> None:
        for number in range(200):
            announcement = announce(job_entry(f"{name}{number}"), folder)
            assert announcement.path.exists()
            announcement.close()

    with ThreadPoolExecutor(4) as drivers:
        for come in [drivers.submit(come_and_go, name) for name in "abcd"]:
            come.result()
    assert not folder.exists()


def test_the_file_of_a_dead_driver_is_removed_by_the_next_reader(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait(30)
    left = announce(job_entry(pid=child.pid), folder)
    assert entries(folder) == []
    assert not left.path.exists()


def test_the_file_of_a_dead_driver_is_removed_by_the_next_driver(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait(30)
    announce(job_entry(pid=child.pid), folder)
    lives = announce(job_entry(), folder)
    assert [*folder.iterdir()] == [lives.path]


def test_jobs_of_another_container_are_neither_listed_nor_removed(folder: Path) -> None:
    other = announce(job_entry(host="elsewhere"), folder)
    assert entries(folder) == []
    assert other.path.exists()


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{}", b'{"job": 3}', b"[" * 100_000])
def test_a_file_that_is_none_of_ours_is_passed_over(folder: Path, data: bytes) -> None:
    announce(job_entry(), folder)
    (folder / "broken.job").write_bytes(data)
    (folder / "link.job").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.job")
    assert [entry.job for entry, _ in entries(folder)] == ["ab12"]


def test_a_folder_that_others_may_use_is_refused_and_gets_no_secret(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(DirectoryUnsafe, match="others may use.*XDG_RUNTIME_DIR"):
        entries(folder)
    with caplog.at_level(logging.WARNING):
        announce(job_entry(), folder).close()
    assert "will not show job ab12" in caplog.text
    assert list(folder.iterdir()) == []


def test_a_link_to_a_folder_is_no_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(DirectoryUnsafe, match="is no folder"):
        entries(folder)
    announce(job_entry(), folder)
    assert list((tmp_path / "other").iterdir()) == []


def test_a_folder_that_cannot_be_made_does_not_stop_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    announce(job_entry(), tmp_path / "file" / "headgate").close()
    assert "Not a directory" in caplog.text


def test_the_folder_is_the_user_s_runtime_folder_or_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "headgate"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"headgate-{os.getuid()}"
    assert job_folder({}) == own
    assert job_folder({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == own


def test_process_ids_count_for_this_machine() -> None:
    assert here() == here()
    assert here().startswith(socket.gethostname())


def test_a_folder_named_like_a_job_is_skipped_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "strange.job").mkdir()
    tmp_path.chmod(0o700)
    before = set(os.listdir("/proc/self/fd"))
    assert entries(tmp_path) == []
    assert set(os.listdir("/proc/self/fd")) <= before
