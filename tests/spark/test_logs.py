"""Lines of a job on Spark: what its workers warn of is known in the driver."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.observe.history.archive import decode_archive
from headgate.spark.job import SparkJob
from headgate.spark.submission import on_launched
from tests.host.processes import ROOT
from tests.spark.cluster import until
from tests.spark.programs import environment, fail_at

PROGRAM = """
import logging
from headgate.common import Configuration
from headgate.datastream import StreamExecutionEnvironment

def price(item):
    logging.getLogger("shop").info("looks up %s", item)
    return item

configuration = Configuration()
configuration.set_string("headgate.log.format", "json")
configuration.set_string("headgate.log.level", "info")
configuration.set_string("rest.enabled", "false")
configuration.set_string("jobmanager.archive.fs.dir", "archives")
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
env.from_collection(["tea"]).map(price).name("prices").add_sink(lambda item: None)
env.execute("orders")
"""


def careful(value: int) -> int:
    if value == 3:
        logging.getLogger("shop").warning("three is odd")
    return value


@pytest.mark.usefixtures("spark")
def test_warnings_of_workers_and_the_failure_are_in_the_log_of_the_job() -> None:
    jobs: list[SparkJob] = []
    on_launched.append(jobs.append)
    try:
        env = environment()
        env.set_restart_strategy(_once())
        numbers = env.from_collection(range(10)).map(careful).name("careful")
        numbers.map(fail_at(7)).name("failing").add_sink(lambda value: None)
        client = env.execute_async("numbers")
        with pytest.raises(Exception, match="7 is bad"):
            client.get_job_execution_result().result()
    finally:
        on_launched.remove(jobs.append)
    (job,) = jobs
    until(lambda: len(_of(job, "three is odd")) == 2, 30)
    (vertex,) = {line.task for line in _of(job, "three is odd")}
    assert vertex.startswith("careful -> failing")
    assert [line.attempt for line in _of(job, "three is odd")] == [0, 1]
    assert {line.operator for line in _of(job, "three is odd")} == {"careful"}
    own = [line for line in job.log_lines() if line.host == "driver"]
    assert any("7 is bad" in line.message and line.attempt == 0 for line in own), own
    assert [line.number for line in job.log_lines()] == list(range(1, len(job.log_lines()) + 1))


def _once() -> object:
    from headgate.common import RestartStrategies

    return RestartStrategies.fixed_delay_restart(1, 10)


def _of(job: SparkJob, message: str) -> list:  # type: ignore[type-arg]
    return [line for line in job.log_lines() if line.message == message]


def test_a_plain_program_has_json_lines_and_an_archive_by_setting(tmp_path: Path) -> None:
    program = tmp_path / "orders.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (looked,) = [line for line in lines if line["message"] == "looks up tea"]
    assert (looked["job"], looked["operator"], looked["subtask"], looked["attempt"]) == (
        "orders",
        "prices",
        0,
        0,
    )
    driver = [line for line in lines if line["logger"] == "headgate.host.driver.driver_run"]
    assert driver and {line["job"] for line in driver} == {"orders"}
    assert {line["attempt"] for line in driver} == {0}
    assert looked["job_id"] == driver[0]["job_id"]
    (archive,) = (tmp_path / "archives").iterdir()  # the program has waited for it
    answers = decode_archive(archive.name, [archive.read_bytes()])
    assert json.loads(answers[""])["state"] == "FINISHED"
    assert {"/why", "/logs", "/plan", "/metrics?get"} <= set(answers)
    assert [line for line in lines if line["level"] not in ("INFO", "WARNING")] == []
