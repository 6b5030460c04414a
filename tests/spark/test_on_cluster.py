"""Programs on a real cluster, started as users start them, with modules of the users' own."""

import json
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.spark.job_files import zip_folder
from tests.spark.cluster import LOOPBACK, Cluster, free_port
from tests.spark.connect.server import connect_server


def own_address() -> str:
    """Of this machine, as others see it; the loopback address if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing; the address is one for documents
        return str(probe.getsockname()[0])
    return LOOPBACK


ROOT = Path(__file__).parents[2]
DRIVE_S = 500
# Over the loopback address workers would find the driver's modules in its own folders.
ADDRESS = own_address()
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": ADDRESS,
    "spark.driver.bindAddress": "0.0.0.0",
    "spark.ui.enabled": "false",
}

PROGRAM = '''
import json
import logging
import os
import signal
import sys
from pathlib import Path

import cloudpickle
import prices
from shop.orders import Order, total

from headgate.base.errors import HeadgateError
from headgate.datastream import MapFunction, StreamExecutionEnvironment
from headgate.spark.driver_services import driver_services
from pyspark.sql import SparkSession


class Where(MapFunction):
    """Of this very file: travels by value."""

    def map(self, order):
        import prices
        import shop
        if order.key == 7:
            logging.getLogger("shop").warning("order 7 is late")
        place = os.environ["SPARK_EXECUTOR_DIRS"], shop.__file__, prices.__file__
        return order.key, total(order, prices.of(order.key)), os.getpid(), *place


def failure(env):
    try:
        env.execute("failing")
    except HeadgateError as error:
        return str(error)


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(4)
if sys.argv[1:]:
    env.add_python_file(sys.argv[1])
orders = env.from_collection([Order(key, key + 1) for key in range(40)]).rebalance()
report = {"rows": list(orders.map(Where()).execute_and_collect("orders"))}

env.from_collection([1]).map(lambda n: n / 0).name("divide").print()
report["failure"] = failure(env)

env.from_collection([1]).rebalance().map(lambda n: os.kill(os.getpid(), signal.SIGKILL)).print()
report["killed"] = failure(env)

numbers = env.from_collection(range(1000)).key_by(lambda n: n % 10)
ports = driver_services(SparkSession.getActiveSession())
report["ports"] = [ports.control.address[1], ports.results.address[1]]
report["sums"] = sorted(numbers.reduce(lambda a, b: a + b).execute_and_collect())[-10:]

sys.path.append(sys.argv[2])
from tests.spark import cluster_program

cloudpickle.register_pickle_by_value(cluster_program)
spark, folder = SparkSession.getActiveSession(), Path(sys.argv[3])
report["program"] = cluster_program.report(spark, folder)
report["streams"] = cluster_program.named_streams(spark, folder)
print("REPORT", json.dumps(report))
'''

ORDERS = """
class Order:
    def __init__(self, key, count):
        self.key, self.count = key, count


def total(order, price):
    return order.count * price
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program beside a module, and a package in another place."""
    (tmp_path / "job.py").write_text(PROGRAM)
    (tmp_path / "prices.py").write_text("def of(key):\n    return 10\n")
    package = tmp_path / "elsewhere" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "orders.py").write_text(ORDERS)
    return tmp_path


def drive(cluster: Cluster, folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        words, env=cluster.environ, cwd=folder, capture_output=True, text=True, timeout=DRIVE_S
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    return {**json.loads(line.removeprefix("REPORT ")), "log": done.stdout + done.stderr}


def check(report: dict[str, Any], project: Path) -> None:
    rows = report["rows"]
    assert sorted(row[:2] for row in rows) == [[key, 10 * (key + 1)] for key in range(40)]
    assert len({row[2] for row in rows}) == 4  # processes
    assert len({row[3] for row in rows}) == 2  # executors
    if ADDRESS != LOOPBACK:  # Spark has brought the user's modules to its own folders
        assert {Path(path).name for row in rows for path in row[4:6]} == {
            "__init__.py",
            "prices.py",
        }
        assert not any(path.startswith(str(project)) for row in rows for path in row[4:6])
    failure = report["failure"]
    assert failure.startswith("Traceback (most recent call last):\n  File ")
    assert failure.endswith("failed in operator 'divide': ZeroDivisionError: division by zero")
    assert "is lost: it closed the connection (process " in report["killed"]
    assert "order 7 is late" in report["log"], "a worker's warning, in the driver's log"
    assert report["sums"] == [sum(range(key, 1000, 10)) for key in range(10)]


def check_program(report: dict[str, Any]) -> None:
    """Of `cluster_program`, whatever session it has."""
    assert report["transform"] == [56, 2], "the sum, and the executors"
    assert report["frames"] == [1, 4, 9]


@pytest.mark.timeout(600)
def test_plain_spark_submit(standalone_cluster: Cluster, project: Path) -> None:
    shop = zip_folder(project / "elsewhere" / "shop", project)
    ports = [free_port(), free_port()]
    keys = ("spark.headgate.jobmanager.rpc.port", "spark.headgate.jobmanager.results.port")
    conf = {**CONF, **dict(zip(keys, map(str, ports), strict=True))}
    flags = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    report = drive(
        standalone_cluster,
        project,
        str(standalone_cluster.home / "bin" / "spark-submit"),
        *("--master", standalone_cluster.url, *flags, "--py-files", shop, "job.py", "prices.py"),
        *(str(ROOT), str(project)),
    )
    check(report, project)
    check_program(report["program"])
    streams = report["streams"]
    assert streams["ids"] == [0, 1, 2, 3], "each row once"
    assert streams["totals"] == [1.0, 2.0]
    assert streams["state"] == [[0, 1.0], [1, 2.0]]
    assert report["ports"] == ports


@pytest.mark.timeout(600)
def test_a_connect_server_whose_master_is_a_cluster(
    standalone_cluster: Cluster, tmp_path: Path
) -> None:
    settings = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    with connect_server(tmp_path, standalone_cluster.url, settings) as environ:
        command = [sys.executable, "-m", "tests.spark.cluster_program", str(tmp_path)]
        done = subprocess.run(
            command, env=dict(environ), cwd=ROOT, capture_output=True, text=True, timeout=DRIVE_S
        )
    assert done.returncode == 0, done.stderr
    check_program(json.loads(done.stdout.splitlines()[-1]))
