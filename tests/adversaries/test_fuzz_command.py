"""The fuzzer runs where Atheris is installed, and says that it is not elsewhere."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.host.processes import ROOT

WITHOUT = (
    "import runpy, sys; sys.modules['atheris'] = None; "
    "runpy.run_module('tests.adversaries.fuzz', run_name='__main__')"
)


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_atheris_a_sentence_says_what_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", WITHOUT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skipped: Atheris is not installed here")


@pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris is not installed")
def test_a_second_of_fuzzing_finds_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "tests.adversaries.fuzz", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "stat::number_of_executed_units" in done.stderr
    assert not list((tmp_path / "build/fuzz").glob("crash-*"))
