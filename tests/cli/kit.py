"""Programs and processes for tests of the command."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.cli import commands

TIMEOUT_S = 100
ENVIRONMENT = {
    # Small sessions without a page.
    "HEADGATE__SPARK__DRIVER__MEMORY": "1g",
    "HEADGATE__SPARK__UI__ENABLED": "false",
}
HEAD = """
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment()
"""


def write(folder: Path, text: str, name: str = "job.py") -> str:
    path = folder / name
    path.write_text(HEAD + text)
    return str(path)


def headgate(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headgate", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT, **(env or {})},
    )


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


Headgate = Callable[..., Done]


def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> Done:
    """The whole command in this process: a new one would load Spark's side each time."""
    monkeypatch.setattr(sys, "argv", ["headgate", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        commands.main()
    output = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return Done(end.value.code, output.out, output.err)
