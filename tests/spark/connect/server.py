"""A Spark Connect server in a process of its own, from the installed package alone."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.servers import ServerProcess, accepts, free_port
from tests.spark.java_kit import jvm_options

TOKEN = "planted-token-4711"
"""What the server asks of its clients; nothing of ours may ever show it."""
ROOT = Path(__file__).parents[3]


@contextmanager
def connect_server(
    folder: Path, master: str, settings: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """The environment of a program that uses the server, which has files in the folder."""
    for package in ("pyspark", "grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package)
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home, port = Path(spec.origin).parent, free_port()
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "tables"),
        **settings,
    }
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN,
        "SPARK_SUBMIT_OPTS": jvm_options(),
    }
    command = ["env", *(f"{key}={text}" for key, text in variables.items())]
    command += [str(home / "bin" / "spark-submit"), "--master", master, "--class"]
    command += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    log = folder / "log"
    server = ServerProcess([*command, "spark-internal"], lambda: accepts(port), log)
    server.start()
    try:
        yield {
            **os.environ,
            "SPARK_REMOTE": f"sc://localhost:{port}/;token={TOKEN}",
            "PYTHONPATH": path,
            "HEADGATE__REST__ENABLED": "false",
            "CONNECT_SERVER": str(server.pid),
            "CONNECT_LOG": str(log),
        }
    finally:
        server.stop()
