"""What type checkers say about programs: the types of streams, and mistakes that they find.

In the programs, the comment behind ``reveal_type`` is what a checker must reveal, and ``# error``
marks each line that it must refuse. mypy always reads them; pyright, which brings a JavaScript
engine of 280 MB along, does so where basedpyright is installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests/typing/programs").glob("*.py"))


class Said(NamedTuple):
    """One thing that a checker says, or is to say; the type revealed, or ``error``."""

    program: str
    line: int
    what: str


def test_mypy_knows_types_and_finds_mistakes(tmp_path: Path) -> None:
    options = ["--strict", "--python-version", "3.10", "--follow-imports", "silent"]
    options += ["--ignore-missing-imports", "--no-error-summary", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", "--config-file", os.devnull, *options]
    lines = _run([*command, *map(str, PROGRAMS)]).splitlines()
    assert set(_said_by_mypy(lines)) == set(_expected()), "\n".join(lines)


@pytest.mark.skipif(not shutil.which("basedpyright"), reason="basedpyright is not installed")
def test_pyright_knows_types_and_finds_mistakes(tmp_path: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.10",
        "include": [str(ROOT / "tests/typing/programs")],
        "extraPaths": [str(ROOT / "src")],
    }
    config.write_text(json.dumps(settings))
    command = ["basedpyright", "--pythonpath", sys.executable, "-p", str(config), "--outputjson"]
    said = json.loads(_run(command))["generalDiagnostics"]
    assert set(_said_by_pyright(said)) == set(_expected()), json.dumps(said, indent=1)


def _run(command: list[str]) -> str:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _expected() -> Iterator[Said]:
    for program in PROGRAMS:
        for number, line in enumerate(program.read_text().splitlines(), 1):
            if "reveal_type(" in line or line.endswith("# error"):
                yield Said(program.name, number, line.rpartition("  # ")[2])


def _said_by_mypy(lines: Iterable[str]) -> Iterator[Said]:
    for line in lines:
        found = re.fullmatch(r"(.*):(\d+): (error|note): (.*)", line)
        assert found, line
        program, number, kind, text = found.groups()
        revealed = re.fullmatch(r'Revealed type is "(.*)"', text)
        if revealed:
            # mypy writes modules, and named tuples with all of their fields.
            what = re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed[1])
            yield Said(Path(program).name, int(number), _NAMED_TUPLE.sub(r"\1", what))
        elif kind == "error":
            yield Said(Path(program).name, int(number), "error")


_NAMED_TUPLE = re.compile(r"tuple\[[^][]*, fallback=(\w+)\]")


def _said_by_pyright(diagnostics: Iterable[dict[str, object]]) -> Iterator[Said]:
    for found in diagnostics:
        place, text = found["range"], str(found["message"])
        assert isinstance(place, dict)
        revealed = re.fullmatch(r'Type of ".*" is "(.*)"', text, re.DOTALL)
        is_note = found["severity"] == "information"
        what = revealed[1] if revealed and is_note else str(found["severity"])
        yield Said(Path(str(found["file"])).name, place["start"]["line"] + 1, what)
