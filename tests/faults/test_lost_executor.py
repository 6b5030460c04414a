"""An executor of a cluster that is killed: Spark gives another one, and the job goes on there."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.drivers import Driver
from tests.faults.program import Place, Trial, check
from tests.spark.cluster import Cluster

FAULTS = ["executor"]
BACKEND = b"CoarseGrainedExecutorBackend"


@pytest.mark.timeout(240)
def test_the_job_goes_on_with_other_executors(
    fault: str, trial: Trial, tmp_path: Path, standalone_cluster: Cluster
) -> None:
    print(f"HEADGATE_FAULT_SEED={trial.seed}: {fault}, {trial}")
    chance, place = random.Random(f"{fault} {trial}"), Place(str(tmp_path))
    with Driver(trial, place, standalone_cluster.url, standalone_cluster.environ) as driver:
        driver.await_checkpoints(2)
        time.sleep(chance.uniform(0, 0.4))
        os.kill(executor_of(chance.choice(place.processes())), signal.SIGKILL)
        driver.until(lambda: bool(driver.went_on_from()), "a restart")
        driver.await_checkpoints(2)
        assert driver.finish()["restarts"] >= 1
    check(trial, place)


def executor_of(pid: int) -> int:
    """The JVM above a Python worker."""
    while BACKEND not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "the worker is not of an executor"
    return pid
