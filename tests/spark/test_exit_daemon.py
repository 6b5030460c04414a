"""The daemon of the workers notes how they end, leaves their own children alone, and loads once."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from headgate.spark.exit_daemon import installed_archives

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


ARCHIVED = """
import importlib, json, sys, time
from headgate.spark import exit_daemon
exit_daemon.drop_archives()
exit_daemon.preload()
import py4j, pyspark
print(json.dumps([pyspark.__file__, py4j.__file__, sys.path, [*sys.path_importer_cache]]))
"""


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_it_loads_an_installed_pyspark_from_its_folder_and_forgets_the_archives() -> None:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent
    archives = [*map(str, home.glob("python/lib/*.zip")), *map(str, home.glob("jars/spark-core_*"))]
    assert len(archives) == 3, "the package has others than it had"
    users = "/somebody/modules.zip"
    path = os.pathsep.join([*archives, users, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVED],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=60,
        stdout=-1,
    )
    spark, py4j, found, cached = json.loads(done.stdout)
    assert Path(spark).parent == home
    assert Path(py4j).parent == home.parent / "py4j"
    assert users in found
    assert not [known for known in [*found, *cached] if known.startswith(tuple(archives))]


def test_archives_of_a_spark_that_is_no_installed_package_stay(tmp_path: Path) -> None:
    library = tmp_path / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (library / "pyspark.zip").touch()
    assert installed_archives([str(tmp_path)]) == set()
    for name in ("pyspark/worker.py", "py4j/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert installed_archives([str(tmp_path)]) == {str(library / "pyspark.zip")}
