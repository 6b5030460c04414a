"""``headgate run`` on real Spark: results, exit codes, signals; and the same with spark-submit."""

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from headgate.spark.java import ensure_java, jvm_runs
from headgate.spark.session import spark_version
from tests.cli.kit import ENVIRONMENT, TIMEOUT_S, headgate, write
from tests.spark.cluster import Cluster

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")

RESULT = """
import sys
import helper

class Mine:
    def __init__(self, value): self.value = value

def both(number): return Mine(helper.double(number).value)

numbers = env.from_collection(range(4)).rebalance().map(both).key_by(lambda mine: mine.value)
print(env.get_parallelism(), sys.argv[1:])
print(sorted(numbers.map(lambda mine: mine.value).execute_and_collect("doubles")))
"""
HELPER = """
import logging

class Number:
    def __init__(self, value): self.value = value

def double(number):
    if number == 3:
        logging.getLogger("shop").warning("that is %s", number)
    return Number(2 * number)
"""
FAILS = """
def divide(number):
    return 1 // number

env.from_collection([1, 0]).map(divide).name("divide").print()
env.execute("division")
"""
WIDE = """
numbers = env.from_collection(range(10)).rebalance().map(lambda n: n).set_parallelism(5)
print(sorted(numbers.execute_and_collect("wide")))
import time
def wait(n):
    time.sleep(0.2)
    return n
env.from_collection(range(4)).rebalance().map(wait).set_parallelism(2).print()
client = env.execute_async("beside")
print(sorted(numbers.key_by(lambda n: n).map(lambda n: n).set_parallelism(6).execute_and_collect()))
"""
ENDLESS = """
numbers = env.from_source(DataGeneratorSource(abs, None, 200.0), None, "numbers")
numbers.key_by(lambda number: number % 3).map(str).print()
client = env.execute_async("endless")
"""


def test_a_job_runs_with_the_modules_beside_it_and_its_progress_is_logged(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    write(tmp_path / "jobs", RESULT)
    (tmp_path / "jobs/helper.py").write_text(HELPER)
    done = headgate("run", "jobs/job.py", "-p", "2", "--", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 ['x']\n[0, 2, 4, 6]\n"
    assert "INFO headgate.progress doubles: finished after" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "that is 3" in line]
    facts = r"job=doubles operator=Map task=\S+ subtask=[01] attempt=0"
    assert re.fullmatch(rf"\S+Z WARNING shop that is 3 {facts}", line), line


def test_jobs_that_need_more_slots_than_there_are_cores_simply_run(tmp_path: Path) -> None:
    done = headgate("run", write(tmp_path, WIDE), "--no-progress")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line for line in printed if line.startswith("[")] == [str([*range(10)])] * 2
    assert len(printed) == 6


def test_a_failed_job_shows_the_user_s_traceback_and_exits_with_1(tmp_path: Path) -> None:
    write(tmp_path, FAILS)
    done = headgate("run", "job.py", "-p", "1", "--no-progress", cwd=tmp_path)
    assert done.returncode == 1
    assert "in divide\n    return 1 // number\n" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("job 'division' failed in operator")
    assert "headgate/core" not in done.stderr
    assert "org.apache.spark" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--master", "spark://127.0.0.1:1"), "no Spark master answers"),
        (("--master", "local[2]", "-p", "3"), "the job needs 3 slots"),
    ],
)
def test_a_spark_that_is_missing_or_too_small_exits_with_3(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = headgate("run", write(tmp_path, FAILS), *words)
    assert done.returncode == 3, done.stderr
    assert message in done.stderr
    assert "org.apache.spark" not in done.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_cancels_the_job_and_has_its_exit_code(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", "run", write(tmp_path, ENDLESS), "-p", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the job runs and prints"
        os.killpg(process.pid, sent)  # as systemd and a terminal do
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "endless: canceled after" in errors
    assert errors.splitlines()[-1] in ("headgate: interrupted", "headgate: terminated")
    assert "Traceback" not in errors and "java" not in errors.replace("jdk.incubator", ""), errors


def test_spark_submit_runs_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    if not jvm_runs():
        ensure_java(spark_version() or "")
    (tmp_path / "helper.py").write_text(HELPER)
    submit = Path(sys.executable).with_name("spark-submit")
    flags = ["spark.headgate.parallelism.default=3", "spark.ui.enabled=false"]
    done = subprocess.run(
        [submit, "--master", "local[3]", *(w for flag in flags for w in ("--conf", flag)),
         write(tmp_path, RESULT), "x"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "3 ['x']\n[0, 2, 4, 6]\n"
    assert "INSECURE" not in done.stderr


def test_on_a_cluster_py_files_bring_the_modules(
    tmp_path: Path, standalone_cluster: Cluster
) -> None:
    (tmp_path / "elsewhere/helper").mkdir(parents=True)
    (tmp_path / "elsewhere/helper/__init__.py").write_text("")
    where = "lambda _: helper.__file__"
    text = f"import helper\nprint(*env.from_collection([1]).map({where}).execute_and_collect())"
    spark = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    defines = [word for pair in spark.items() for word in ("-D", "=".join(pair))]
    done = headgate(
        "run",
        write(tmp_path, text),
        *("--master", standalone_cluster.url, "-p", "2", *defines),
        *("--py-files", str(tmp_path / "elsewhere/helper")),
        env=standalone_cluster.environ,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("helper.zip/helper/__init__.py")
