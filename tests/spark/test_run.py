"""``headgate run`` on real Spark: results, exit codes, signals; and the same with spark-submit."""

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.kit import ENVIRONMENT, TIMEOUT_S, headgate, write
from tests.spark.cluster import until
from tests.spark.java_kit import jvm_options

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
print("heavy", sorted({"numpy", "pandas", "pyarrow"} & {*sys.modules}))

import time

numbers = env.from_collection(range(10)).rebalance().map(lambda n: n).set_parallelism(5)
print(sorted(numbers.execute_and_collect("wide")))

def wait(n):
    time.sleep(0.2)
    return n

env.from_collection(range(4)).rebalance().map(wait).set_parallelism(2).print()
client = env.execute_async("beside")
print(sorted(numbers.key_by(lambda n: n).map(lambda n: n).set_parallelism(6).execute_and_collect()))
client.get_job_execution_result().result()

from headgate.base.errors import SlotsShort
from pyspark.sql import SparkSession

session = SparkSession.getActiveSession()
cores = session.sparkContext.defaultParallelism
env.get_configuration().set_string("worker.slots", "1")
try:
    env.from_collection(range(4)).map(abs).set_parallelism(1000).rebalance().print()
    env.execute("too wide")
except SlotsShort as error:
    print("too wide:", error.total >= 32, cores, session.conf.get("spark.sql.shuffle.partitions"))
    print(error)
"""
ENDLESS = """
numbers = env.from_source(DataGeneratorSource(abs, None, 200.0), None, "numbers")
numbers.key_by(lambda number: number % 3).map(str).print()
client = env.execute_async("endless")

import pathlib, sys, time
mark = pathlib.Path(sys.argv[1])

def stay(number):
    mark.touch()
    time.sleep(0.05)
    return number

env.from_collection(range(1_000_000)).map(stay).to_dataframe("n long", "rows").collect()
"""


def test_jobs_run_with_modules_and_slots_and_one_that_fails_ends_with_1(tmp_path: Path) -> None:
    """One program: a session of its own is what costs the time."""
    (tmp_path / "jobs").mkdir()
    write(tmp_path / "jobs", RESULT + WIDE + FAILS)
    (tmp_path / "jobs/helper.py").write_text(HELPER)
    done = headgate("run", "jobs/job.py", "-p", "2", "--", "x", cwd=tmp_path)
    assert done.returncode == 1, done.stderr

    # Modules beside the program, its arguments, and more slots than there are cores.
    printed = done.stdout.splitlines()
    assert printed[:2] == ["2 ['x']", "[0, 2, 4, 6]"]
    assert [line for line in printed[2:] if line.startswith("[")] == [str([*range(10)])] * 2
    assert {line.partition("> ")[2] for line in printed} >= {"0", "1", "2", "3"}, printed

    assert "heavy []" in printed, "what a plain job does not need costs time at every start"

    # Slots are threads: neither partitions nor shuffles grow with them; and they come to an end.
    assert f"too wide: True {max(4, os.cpu_count() or 1)} 200" in printed
    (refusal,) = [line for line in printed if line.startswith("the job needs 1000 slots")]
    assert refusal.endswith(
        "lower the parallelism, or give Spark more cores (local: a new session with master "
        "local[1000], cluster: more executors or cores)"
    )

    assert "INFO headgate.progress doubles: finished after" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "that is 3" in line]
    facts = r"job=doubles operator=Map task=\S+ subtask=[01] attempt=0"
    assert re.fullmatch(rf"\S+Z WARNING shop that is 3 {facts}", line), line

    # The user's own traceback, and at the end what happened.
    assert "in divide\n    return 1 // number\n" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("job 'division' failed in operator")
    assert "headgate/core" not in done.stderr
    assert "org.apache.spark" not in done.stderr


def test_a_spark_that_is_missing_exits_with_3(tmp_path: Path) -> None:
    done = headgate("run", write(tmp_path, FAILS), "--master", "spark://127.0.0.1:1")
    assert done.returncode == 3, done.stderr
    assert "no Spark master answers" in done.stderr
    assert "org.apache.spark" not in done.stderr


def test_a_signal_to_all_processes_cancels_job_and_action_and_has_its_exit_code(
    tmp_path: Path,
) -> None:
    """Of both signals; this is the one that Java and PySpark would not ignore by themselves."""
    mark, script = tmp_path / "it_runs", write(tmp_path, ENDLESS)
    with subprocess.Popen(
        [sys.executable, "-m", "headgate", "run", script, "-p", "2", "--", str(mark)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the job runs and prints"
        assert until(mark.exists, TIMEOUT_S), "the action runs"
        os.killpg(process.pid, signal.SIGTERM)  # as systemd does
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "endless: canceled after" in errors and "rows: canceled after" in errors
    assert errors.splitlines()[-1] == "headgate: terminated", errors
    assert "Traceback" not in errors and "java" not in errors.replace("jdk.incubator", ""), errors


def test_spark_submit_runs_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", jvm_options())
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
