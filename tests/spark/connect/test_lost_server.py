"""The Spark Connect server dies while a job runs and others wait; no test after this has one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.spark.connect.conftest import PROGRAM

pytestmark = pytest.mark.timeout(400)
WAIT_S = 120.0


def test_a_job_ends_with_the_server_and_the_program_with_the_job(
    connect_environ: Mapping[str, str], tmp_path: Path
) -> None:
    """PySpark itself would ask the server for ten minutes, and at the exit for ten more."""
    client = program(connect_environ, "hold", str(tmp_path))
    other = None
    try:
        deadline = time.monotonic() + WAIT_S
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline, "the workers have not come"
            time.sleep(0.1)
        other = program(connect_environ, "wait_in_vain")
        assert other.stdout is not None and other.stdout.readline() == "waits\n"
        os.kill(int(connect_environ["CONNECT_SERVER"]), signal.SIGKILL)
        _, said = client.communicate(timeout=WAIT_S)
        answers, _ = other.communicate(timeout=WAIT_S)
    finally:
        for process in filter(None, (client, other)):
            process.kill()
            process.wait()
    problem = "the Spark Connect server at localhost does not answer, and the job's workers"
    assert f"JobFailed: job 'held' failed: {problem} are lost" in said
    action, job = map(json.loads, answers.splitlines())
    assert action[0] in ("JobFailed", "SessionFailed"), "the job may be the first to notice"
    assert problem.partition(",")[0] in action[1]
    assert job[:2] == ["JobFailed", f"job 'never' failed: {problem} have not come"]


def program(environ: Mapping[str, str], *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *words],
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
