"""Folders that go with their owner: at the next start if it was killed, and never before."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from headgate.host.files import owned_folder
from headgate.host.files.owned_folder import MARK, OwnedFolder, sweep

MAKER = """
import os, sys, time
from headgate.host.files.owned_folder import OwnedFolder
folder = OwnedFolder(sys.argv[1], sys.argv[2])
(folder.path / "deep" / "er").mkdir(parents=True)
(folder.path / "deep" / "er" / "data").write_bytes(bytes(1000))
if sys.argv[3:] == ["forks"] and os.fork() == 0:
    time.sleep(60)
print(folder.path, flush=True)
sys.stdin.read()
"""

DATABASE = """
import sys
from headgate.base.settings import StateBackendKind, StateSettings
from headgate.host.worker.backends import open_backends
settings = StateSettings(backend=StateBackendKind.ROCKSDB, rocksdb_folder=sys.argv[2])
with open_backends(settings) as backends:
    backend = backends.keyed("count", range(128), 128)
    print(next(iter(backends._folder._folder.path.glob("state-*"))).parent, flush=True)
    sys.stdin.read()
"""


@contextmanager
def process(code: str, parent: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder, until it is killed."""
    command = [sys.executable, "-c", code, "test", str(parent), *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as made:
        try:
            assert made.stdout is not None
            yield made, Path(made.stdout.readline().strip())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    made = tmp_path / "parent"
    made.mkdir()
    return made


def abandoned(parent: Path, kind: str = "state") -> Path:
    """What a process that was killed has left."""
    folder = OwnedFolder(kind, str(parent))
    (folder.path / "data").write_bytes(b"x")
    os.close(folder._lock)
    folder._lock = -1
    return folder.path


def test_a_folder_is_private_and_gone_when_it_is_closed(parent: Path) -> None:
    folder = OwnedFolder("state", str(parent))
    assert folder.path.name.startswith("headgate-state-")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / MARK).stat().st_mode & 0o777 == 0o600
    (folder.path / "below").mkdir(mode=0o500)
    folder.close()
    folder.close()
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_has_stays(
    parent: Path,
) -> None:
    with process(MAKER, parent) as (killed, left), process(MAKER, parent) as (_, kept):
        assert sweep(str(parent)) == []
        killed.kill()
        killed.wait()
        assert sweep(str(parent)) == [str(left)]
        assert not left.exists()
        assert (kept / "deep" / "er" / "data").exists()


@pytest.mark.skipif(find_spec("rocksdict") is None, reason="rocksdict is not installed")
def test_the_next_start_removes_the_databases_of_a_killed_worker(parent: Path) -> None:
    with process(DATABASE, parent) as (killed, left):
        assert list(left.glob("state-*/*"))
        killed.kill()
        killed.wait()
    with process(DATABASE, parent) as (_, now):
        assert list(parent.iterdir()) == [now]


def test_a_child_that_goes_on_keeps_the_folder(parent: Path) -> None:
    with process(MAKER, parent, "forks") as (killed, left):
        killed.kill()
        killed.wait()
        assert sweep(str(parent)) == []
        assert left.exists()


def test_a_child_by_fork_does_not_remove_the_folder(parent: Path) -> None:
    folder = OwnedFolder("state", str(parent))
    child = os.fork()
    if not child:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()
    folder.close()


def test_what_has_no_mark_is_left_alone(parent: Path) -> None:
    (parent / "headgate-0").mkdir()
    (parent / "headgate-mine").mkdir()
    (parent / "headgate-mine" / "data").write_text("x")
    (parent / "headgate-file").write_text("x")
    assert sweep(str(parent)) == []
    assert len(list(parent.iterdir())) == 3


def test_no_link_is_followed(parent: Path, tmp_path: Path) -> None:
    precious = abandoned(tmp_path, "precious")
    (parent / "headgate-link").symlink_to(precious)
    folder = abandoned(parent)
    (folder / "out").symlink_to(precious)
    marked = parent / "headgate-marked"
    marked.mkdir()
    (marked / MARK).symlink_to(precious / MARK)
    piped = parent / "headgate-piped"
    piped.mkdir()
    os.mkfifo(piped / MARK)
    assert sweep(str(parent)) == [str(folder)]
    assert (precious / "data").exists() and marked.exists() and piped.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_that_takes_the_name_of_a_dead_one_is_not_emptied(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, precious = parent / "headgate-state-dead", parent / "precious"
    dead.mkdir(mode=0o700)
    (dead / owned_folder.MARK).write_text(owned_folder._here())
    precious.mkdir()
    (precious / "file").touch()
    really_abandoned = owned_folder._is_abandoned

    def swap(mark: int) -> bool:
        is_abandoned = really_abandoned(mark)
        dead.rename(parent / "away")
        precious.rename(dead)
        return is_abandoned

    monkeypatch.setattr(owned_folder, "_is_abandoned", swap)
    sweep(str(parent))
    assert (dead / "file").exists()


def test_what_belongs_to_somebody_else_is_left_alone(parent: Path) -> None:
    folder, marked = abandoned(parent), abandoned(parent)
    os.chown(folder, 12345, 12345)
    os.chown(marked / MARK, 12345, 12345)
    assert sweep(str(parent)) == []
    assert folder.exists() and marked.exists()


@pytest.mark.parametrize(
    ("host", "boot", "goes"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_of_other_machines_nothing_is_removed(
    parent: Path, host: bool, boot: bool, goes: bool
) -> None:
    """The same kernel in another container counts, and this machine before it was started anew."""
    folder = abandoned(parent)
    own = (folder / MARK).read_text().splitlines()
    text = [own[0] if host else "elsewhere", own[1] if boot else "another-boot", own[2]]
    (folder / MARK).write_text("\n".join(text))
    assert sweep(str(parent)) == ([str(folder)] if goes else [])


def test_of_several_that_clean_up_at_once_each_folder_falls_to_one(parent: Path) -> None:
    left = {str(abandoned(parent)) for _ in range(40)}
    with ThreadPoolExecutor(4) as pool:
        removed = [path for paths in pool.map(sweep, [str(parent)] * 4) for path in paths]
    assert sorted(removed) == sorted(left)
    assert list(parent.iterdir()) == []


def test_a_folder_that_is_being_made_is_never_swept(parent: Path) -> None:
    over = threading.Event()

    def sweep_on() -> None:
        while not over.is_set():
            sweep(str(parent))

    threads = [threading.Thread(target=sweep_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        made = [OwnedFolder("state", str(parent)) for _ in range(200)]
        assert all((folder.path / MARK).exists() for folder in made)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    for folder in made:
        folder.close()
    assert list(parent.iterdir()) == []


def test_a_half_removed_folder_is_left_to_the_next(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stops a removal, the mark goes last."""
    folder = abandoned(parent)
    (folder / "below").mkdir()
    real = os.rmdir

    def refused(name: str, **more: int) -> None:
        if name == "below":
            raise OSError(16, "Device or resource busy")
        real(name, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refused)
        assert sweep(str(parent)) == []
    assert (folder / MARK).exists() and not (folder / "data").exists()
    assert sweep(str(parent)) == [str(folder)]


def test_without_locks_a_folder_is_unmarked_and_stays(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*given: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("headgate.host.files.owned_folder.fcntl.flock", no_locks)
    folder = OwnedFolder("state", str(parent))
    assert list(folder.path.iterdir()) == []
    assert sweep(str(parent)) == []
    folder.close()
    assert list(parent.iterdir()) == []
