"""How a worker process has ended, told by whoever has started it."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from headgate.host.worker import exits as worker_exits
from headgate.host.worker.exits import STUCK_EXIT, exit_words, note_exit, words_of

HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    notes = tmp_path / "exits"
    notes.mkdir()
    monkeypatch.setattr(worker_exits, "_folders", [str(notes)])
    monkeypatch.setattr(worker_exits, "AWAITED_S", 0.2)
    return str(notes)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "it ended with exit code 1"),
        (STUCK_EXIT, "a user function did not return"),
        (-signal.SIGKILL, "killed by SIGKILL, perhaps by the kernel because memory was short"),
        (-signal.SIGSEGV, "crashed with SIGSEGV"),
        (-signal.SIGTERM, "ended by SIGTERM"),
        (-200, "ended by signal 200"),
    ],
)
def test_an_end_has_words(code: int, words: str) -> None:
    assert words in words_of(code)


def test_a_note_is_read_once_and_awaited_for_a_moment(folder: str) -> None:
    timer = threading.Timer(0.05, note_exit, (folder, 42, -9))
    timer.start()
    assert "SIGKILL" in exit_words(42, HERE)
    timer.join()
    began = time.monotonic()
    assert exit_words(42, HERE) == "" and time.monotonic() - began >= 0.2


def test_what_ended_by_itself_or_elsewhere_is_not_told(folder: str) -> None:
    note_exit(folder, 1, 0)
    note_exit(folder, 2, 1)
    assert os.listdir(folder) == ["2"]
    assert exit_words(2, "another machine") == ""
    os.unlink(os.path.join(folder, "2"))
    Path(folder, "3").write_text("what?")
    assert exit_words(3, HERE) == ""
    note_exit(folder + "/not there", 4, 1)


def test_without_a_folder_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_exits, "_folders", [])
    assert exit_words(1, HERE) == ""
