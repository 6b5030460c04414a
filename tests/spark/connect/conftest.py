"""A Spark Connect server for all tests of this folder, and the answers of a program there."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connect.server import TOKEN, connect_server

CHECKS = (
    "no_server",
    "wrong_token",
    "records",
    "session",
    "failing_job",
    "slots",
    "cancelled_job",
    "killed_worker",
    "frames",
    "few_rows",
    "waiting_action",
    "other_calls",
    "failing_action",
    "files",
    "other_python",
    "missing_module",
    "uri",
    "addresses",
    "state_table",
    "streams",
)
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="session")
def connect_environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of a program that uses the server, which has 4 slots."""
    folder = tmp_path_factory.mktemp("connect-server")
    with connect_server(folder, "local[4]", {"spark.authenticate": "true"}) as environ:
        yield environ


@pytest.fixture(scope="session")
def answers(connect_environ: Mapping[str, str]) -> Mapping[str, Any]:
    """What the program says to each check; one process for all of them."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *CHECKS],
        env=dict(connect_environ),
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    assert TOKEN not in done.stdout + done.stderr
    return {**found, "stderr": done.stderr}
