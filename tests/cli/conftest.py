"""The command in the process of the tests: a new one would load Spark's side each time."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import headgate as package
from headgate.api.draft import unexecuted
from headgate.api.runtime import set_runtime
from headgate.observe.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from headgate.spark import configuration
from tests.cli.kit import Headgate, in_process


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a new process."""
    unexecuted.clear()
    monkeypatch.setattr(configuration, "_warned", set())
    monkeypatch.setattr(configuration, "_flags", {})
    for name in (FORMAT_VARIABLE, LEVEL_VARIABLE):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    set_runtime(package._open_runtime)


@pytest.fixture
def headgate(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    fresh: None,
) -> Headgate:
    """``headgate(words…)`` runs the whole command, as in a new process that sees no other jobs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    return partial(in_process, monkeypatch, capsys)
