"""`headgate history` as people start it: what it prints, what it refuses, how it ends."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.kit import Headgate
from tests.host.processes import ROOT
from tests.observe.history.kit import archive, ended_job


def test_it_shows_a_folder_until_it_is_interrupted(tmp_path: Path) -> None:
    archive(ended_job(), tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", "history", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            said = re.fullmatch(
                rf"archives of {tmp_path} \(1\) are shown at (http://127\.0\.0\.1:\d+/)#/\n", line
            )
            assert said, line + process.stderr.read()
            with urllib.request.urlopen(f"{said[1]}jobs", timeout=30) as answer:
                assert b'"ab12"' in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("no/such/folder",), "is no folder"),
        ((".", "--port", "70000"), "70000"),
        ((".", "--bind", "256.1.1.1"), "cannot be opened"),
        (("what://is/this",), "what"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    words: tuple[str, ...],
    sentence: str,
    headgate: Headgate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = headgate("history", *words)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
