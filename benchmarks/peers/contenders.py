"""Headgate and its peers: each checks a program on a few records, and measures it on many.

The time runs from the first record of any source to the end of the last sink. Input is made before
its first record is given.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import click

from benchmarks.ordinary_programs import Records
from benchmarks.peers.compared import COMPARED
from benchmarks.peers.tools import bytewax_python, flink_command
from benchmarks.programs import CHECKED, CORES, check_program, check_records, run_program

PATIENCE_S: Final = 900
"""A run that takes longer has failed."""


class PeerFailed(click.ClickException):
    """A run of a peer has failed; says what it wrote last."""


class Contender(Protocol):
    @property
    def programs(self) -> Collection[str]:
        """Those of ``COMPARED`` that it has."""

    def check(self, name: str) -> None:
        """What comes out of a few records has to be what the plain loop gives."""

    def rate(self, name: str, scale: float) -> float:
        """Records a second."""


class Headgate:
    """On embedded Spark, in this process."""

    programs = tuple(COMPARED)

    def check(self, name: str) -> None:
        check_program(name, COMPARED[name])

    def rate(self, name: str, scale: float) -> float:
        count = _scaled(COMPARED[name].records, scale)
        return run_program(name, COMPARED[name], count)[0]


class JavaFlink:
    """A mini cluster of two task managers, in a process of its own for each run.

    It compares what comes out of a few records with sums of its own before each run.
    """

    programs = ("count-words", "count-lengths", "two-exchanges", "sessions")
    LONGER: Final = 4
    """So many times the records of the others: its compiler takes a second to warm up."""

    def __init__(self) -> None:
        self._command = flink_command()

    def check(self, name: str) -> None:
        self._run(name, CHECKED)

    def rate(self, name: str, scale: float) -> float:
        return self._run(name, _scaled(COMPARED[name].records * self.LONGER, scale))

    def _run(self, name: str, count: int) -> float:
        said = run_peer([*self._command, name, str(count)], os.environ)
        found = json.loads(said.splitlines()[-1])
        return float(found["records"] / found["seconds"])


class Bytewax:
    """Two processes."""

    programs = tuple(COMPARED)
    MOST: Final = 2_000_000
    """Records of a run: more would only take longer."""

    def __init__(self) -> None:
        self._python = bytewax_python()

    def check(self, name: str) -> None:
        check_records(name, COMPARED[name], self._run(name, CHECKED, keeps=True)[1])

    def rate(self, name: str, scale: float) -> float:
        return self._run(name, _scaled(min(COMPARED[name].records, self.MOST), scale))[0]

    def _run(self, name: str, count: int, keeps: bool = False) -> tuple[float, Records]:
        # Its interpreter also finds what this one does: Headgate, and what that needs.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with tempfile.TemporaryDirectory(prefix="headgate-peers-") as folder:
            flow = f"benchmarks.peers.bytewax_flows:flow({name!r}, {count}, {folder!r}, {keeps})"
            module = ["-m", "bytewax.testing", flow, "--processes", str(CORES)]
            run_peer([str(self._python), *module], environment)
            found = Path(folder)
            began_ns = min(int(file.read_text()) for file in found.glob("began-*"))
            ended_ns = max(int(file.read_text()) for file in found.glob("ended-*"))
            kept = [pickle.loads(file.read_bytes()) for file in found.glob("records-*")]
        return count / (ended_ns - began_ns) * 1e9, [record for part in kept for record in part]


CONTENDERS: Final[Mapping[str, Callable[[], Contender]]] = {
    "headgate": Headgate,
    "java": JavaFlink,
    "bytewax": Bytewax,
}
PEERS: Final = ("java", "bytewax")


def run_peer(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What it prints. If it fails or takes too long, all processes that it has started end.

    It prints to files: a process that outlives the others would keep a pipe open.
    """
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, env=environment, stdout=printed, stderr=errors, start_new_session=True
        ) as process:
            try:
                code = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired as late:
                raise PeerFailed(f"{command[0]} has not ended after {PATIENCE_S} s") from late
            finally:
                if process.returncode != 0:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        printed.seek(0)
        if code:
            errors.seek(0)
            last = "".join([*printed, *errors][-12:])
            raise PeerFailed(f"{command[0]} has ended with {code}:\n{last}")
        return printed.read()


def _scaled(records: int, scale: float) -> int:
    return max(1000, int(records * scale))
