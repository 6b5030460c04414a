"""The daemon of the workers notes how they end, leaves their own children alone, and loads once."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys, time
from headgate.spark import exit_daemon
from types import SimpleNamespace

def manager():
    daemon.signal.signal(signal.SIGCHLD, daemon.signal.SIG_IGN)
    for how in ("killed", "exits", "fine"):
        pid = os.fork()
        if pid == 0:
            assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3 if how == "exits" else 0)
    time.sleep(0.5)

daemon = SimpleNamespace(manager=manager)
exit_daemon.import_module = lambda name: daemon
exit_daemon.main()
"""


def test_it_notes_who_was_killed_and_who_has_failed(tmp_path: Path) -> None:
    environment = {"HEADGATE_WORKER_EXITS": str(tmp_path), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=60)
    assert sorted(note.read_text() for note in tmp_path.iterdir()) == ["-9", "3"]


LOADED = """
import json, os, sys

def seen():
    tasks = "/proc/self/task"
    return len(os.listdir(tasks)) if os.path.isdir(tasks) else 1, [*sys.modules]

import pyspark.worker  # as Spark's daemon does in any case
before = seen()
from headgate.spark.exit_daemon import preload
preload()
print(json.dumps([before, seen()]))
"""


@pytest.mark.spark_smoke
@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_it_loads_what_workers_need_and_nothing_that_starts_threads() -> None:
    program = [sys.executable, "-c", LOADED]
    done = subprocess.run(program, env={**os.environ}, check=True, timeout=60, stdout=-1)
    (threads_before, before), (threads, modules) = json.loads(done.stdout)
    assert threads == threads_before, "a fork copies the locks of other threads, but no thread"
    assert {"pyspark.worker", "headgate.host.worker.task_manager"} <= {*modules}
    added = {*modules} - {*before}  # PySpark 4.0 loads pandas by itself
    assert not {"numpy", "pandas", "pyarrow", "headgate.spark.submission"} & added
