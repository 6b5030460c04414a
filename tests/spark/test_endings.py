"""How jobs end, seen from outside: signals, exit codes, what is told, and who is left over.

A driver that is killed leaves no process, either: tests/faults/test_lost_driver.py.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import until

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")

ROOT = Path(__file__).parent.parent.parent
DRIVER = ROOT / "tests" / "spark" / "ending_driver.py"
GONE_S = 30
LONG_S = 90


class Driver:
    """A driver in a process of its own; all that come from it wear a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pids"
        self.folder.mkdir()
        self.mark = f"HEADGATE_TEST={uuid.uuid4()}"
        key, _, value = self.mark.partition("=")
        self.errors = folder / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), str(self.folder)],
                env={**os.environ, key: value, "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def next_line(self) -> dict[str, Any]:
        """The next line that it prints, as facts."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver has ended: {self.errors.read_text()}"
        return dict(json.loads(line))

    def workers(self, job: str = "") -> list[int]:
        """The processes of a job with two tasks, when they are there."""
        files = [self.folder / job / f"{subtask}.pid" for subtask in range(2)]
        assert until(lambda: all(file.exists() for file in files), LONG_S), self.errors.read_text()
        return [int(file.read_text()) for file in files]

    def family(self) -> list[int]:
        """Every process with the mark: the driver, its JVM, its workers."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def end(self) -> None:
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """Whatever happens, nothing of it is left."""
    driver = Driver(tmp_path)
    try:
        yield driver
    finally:
        driver.end()


def test_endings_of_jobs_are_short_and_clear(driver: Driver) -> None:
    page = driver.next_line()
    assert page["jobs"][0]["description"].startswith("Headgate: word count [Source: Collection")
    assert page["jobs"][0]["name"] == "Headgate: word count"
    assert page["jobs"][0]["jobGroup"].startswith("headgate-")
    assert page["jobs"][0]["status"] == "SUCCEEDED"

    fails = driver.next_line()
    assert fails["error"] == "JobFailed"
    assert fails["text"].endswith("job 'fails' failed in operator 'careful': ValueError: 7 is bad")

    victim = driver.workers()[0]
    os.kill(victim, signal.SIGKILL)
    killed = driver.next_line()
    assert killed["error"] == "JobFailed"
    assert f"(process {victim} on " in killed["text"]

    stuck = driver.next_line()
    assert (stuck["what"], stuck["error"]) == ("stuck", None)

    assert driver.next_line()["what"] == "interrupt me"
    driver.workers("last")
    os.kill(driver.process.pid, signal.SIGINT)
    assert driver.process.wait(LONG_S) == -signal.SIGINT
    assert until(lambda: not driver.family(), GONE_S), driver.family()

    errors = driver.errors.read_text()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "in sleep_long" in errors  # where the stuck function is
    assert "headgate-watchdog" not in errors
    assert "\tat " not in errors and "java." not in errors, errors
