"""Plants each mutant in a copy of the source and runs the test that is to find it.

First the same tests run on an unchanged copy: a test that fails anyway would catch everything.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.mutant import ROOT, Mutant, Stale

TIMEOUT_S = 300
PYTEST = ("-m", "pytest", "-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider")
QUICK = ("--timeout", "60", "--hypothesis-profile", "unshrunk")
"""A test that hangs has failed, and nobody asks for the smallest example."""
TESTS_FAILED = 1
"""The exit code of pytest for this and nothing else; the simulator has it too."""


class Verdict(Enum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    STALE = "STALE"
    BROKEN = "BROKEN"
    """Not even imported, or the tests cannot be run, or not in time: none has found a bug."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A mutant, its verdict, and what the test said."""

    mutant: Mutant
    verdict: Verdict
    said: str
    took_s: float


def check(mutant: Mutant) -> Finding:
    """Whether the test that the mutant names finds it."""
    began_s = time.monotonic()
    with source_copy() as tree:
        try:
            mutant.plant(tree)
        except Stale as error:
            return Finding(mutant, Verdict.STALE, str(error), 0.0)
        code, output = run(mutant.caught_by, tree)
    verdicts = {0: Verdict.SURVIVED, TESTS_FAILED: Verdict.CAUGHT}
    verdict = Verdict.BROKEN if code is None else verdicts.get(code, Verdict.BROKEN)
    return Finding(mutant, verdict, _first_failure(output), time.monotonic() - began_s)


def check_all(mutants: Sequence[Mutant], jobs: int) -> Iterator[Finding]:
    """So many at a time, in the order of the table."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(check, mutants)


def failures_without_mutants(mutants: Iterable[Mutant]) -> str:
    """What their tests say about the source as it is; nothing: they pass."""
    wanted = dict.fromkeys(mutant.caught_by for mutant in mutants)
    tests = [name for name in wanted if not _is_simulated(name)]
    commands = [*([" ".join(tests)] if tests else []), *filter(_is_simulated, wanted)]
    with source_copy() as tree:
        for command in commands:
            code, output = run(command, tree, TIMEOUT_S * 5)
            if code != 0:
                return output or f"{command}: nothing was said, exit code {code}"
    return ""


@contextmanager
def source_copy() -> Iterator[Path]:
    """A folder with a copy of ``src``, compiled modules included."""
    with TemporaryDirectory(prefix="headgate-mutant-") as folder:
        shutil.copytree(ROOT / "src", Path(folder, "src"))
        yield Path(folder)


def run(test: str, tree: Path, timeout_s: float = TIMEOUT_S) -> tuple[int | None, str]:
    """The exit code, None after a timeout, and what the test printed."""
    words = test.split()
    if _is_simulated(test):
        arguments = ["-m", "tests.sim", *words[1:]]
    else:
        arguments = [*PYTEST, *QUICK, *words]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None, f"not done after {timeout_s:.0f} s"
            raise
    return process.returncode, output


def report(findings: Iterable[Finding], count: int, say: Callable[[str], None]) -> bool:
    """Tell of each as it comes; returns whether all were caught."""
    missed = []
    for number, finding in enumerate(findings, 1):
        mutant, verdict = finding.mutant, finding.verdict
        say(f"{number:3}/{count} {verdict.value:8} {mutant.name} ({finding.took_s:.1f} s)")
        say(f"             {finding.said}")
        if verdict is not Verdict.CAUGHT:
            missed.append(f"{verdict.value}: {mutant.name}; {mutant.breaks} ({mutant.caught_by})")
    say(f"{count - len(missed)} of {count} mutants were caught")
    for line in missed:
        say(line)
    return not missed


def _is_simulated(test: str) -> bool:
    return test.split()[0] == "sim"


def _first_failure(output: str) -> str:
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (failed or lines[-1:] or [""])[0][:160]
