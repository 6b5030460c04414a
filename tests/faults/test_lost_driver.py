"""A driver that is killed: another one with the same job id goes on, and nothing comes twice."""

import os
import random
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.faults.drivers import Driver
from tests.faults.program import TASKS, Place, Trial, check
from tests.spark.cluster import until

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")

FAULTS = ["driver"]
MASTER = f"local[{TASKS}]"
GONE_S = 30.0


@pytest.mark.timeout(240)
def test_another_driver_goes_on(fault: str, trial: Trial, tmp_path: Path) -> None:
    print(f"HEADGATE_FAULT_SEED={trial.seed}: {fault}, {trial}")
    chance, place = random.Random(f"{fault} {trial}"), Place(str(tmp_path))
    with Driver(trial, place, MASTER, os.environ) as first:
        first.await_checkpoints(2)
        time.sleep(chance.uniform(0, 0.4))
        assert len(first.family()) > 3, "the driver, its JVM, its workers"
        first.process.kill()
        if chance.random() < 0.5:  # else its workers are there when the next one starts
            assert until(lambda: not first.family(), GONE_S), first.family()
        with Driver(trial, place, MASTER, os.environ) as second:
            last = second.await_checkpoints(1)
            second.finish()
            (start,) = second.went_on_from()
            assert 0 < start < last
        assert until(lambda: not first.family(), GONE_S), first.family()
    check(trial, place)
