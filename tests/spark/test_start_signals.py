"""Signals while a program starts: one line, the exit code of the signal, and nobody left over."""

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.kit import ENVIRONMENT, write
from tests.spark.cluster import until

needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
LINES = {signal.SIGINT: "headgate: interrupted", signal.SIGTERM: "headgate: terminated"}

# The signal comes from within, so that it comes at this very moment; it goes to the whole group.
WHILE_IT_LOADS = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.killpg(0, {sent})

sys.meta_path.insert(0, Finder())
sys.argv = ["headgate", "run", "job.py"]
from headgate.cli.entry import main
main()
"""
WHILE_SPARK_STARTS = """
import os, sys, threading, time
from pathlib import Path

def java_starts():
    # The JVM, not one that is only asked for its version.
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"pyspark-shell" in Path("/proc", pid, "cmdline").read_bytes():
                return True

def session_is_made():
    context = sys.modules.get("pyspark.core.context")
    return context and context.SparkContext._active_spark_context is not None

def watch():
    while True:
        try:
            if {moment}():
                return os.killpg(0, {sent})
        except (OSError, AttributeError):  # it is gone, or not there yet
            pass
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
numbers = env.from_source(DataGeneratorSource(abs, None, 200.0), None, "numbers")
numbers.key_by(lambda number: number % 3).map(str).print()
env.execute("endless")
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["headgate.cli.commands", "headgate.spark.job"])
def test_a_signal_while_the_command_loads(sent: signal.Signals, module: str) -> None:
    text = WHILE_IT_LOADS.format(module=module, sent=int(sent))
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (CODES[sent], f"{LINES[sent]}\n")


@needs_spark
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["java_starts", "session_is_made"])
def test_a_signal_to_all_while_spark_starts(
    tmp_path: Path, sent: signal.Signals, moment: str
) -> None:
    script = write(tmp_path, WHILE_SPARK_STARTS.format(moment=moment, sent=int(sent)))
    mark = str(uuid.uuid4())
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "run", script, "-p", "2"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **ENVIRONMENT, "HEADGATE_TEST": mark},
        start_new_session=True,
    )
    assert done.returncode == CODES[sent], done.stderr
    lines = [line for line in done.stderr.splitlines() if "incubator" not in line]  # Java's own
    assert lines == [LINES[sent]]
    assert until(lambda: not marked(mark), 30), marked(mark)


def marked(mark: str) -> list[int]:
    """The processes that come from the program."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found
