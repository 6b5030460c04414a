"""Which faults are tried: a part of them with all other tests, every one by `make faults`.

The part has each fault with both backends, both sinks and two modes, and each mode with both
backends and both sinks; of faults that need a Spark of their own it has one run. A seed decides
when a fault comes and whom it hits.
"""

import logging
import os

import pytest

from tests.faults.program import BACKENDS, MODES, Trial
from tests.spark.conftest import spark, standalone_cluster

__all__ = ["spark", "standalone_cluster"]

SEED = "HEADGATE_FAULT_SEED"
SINKS = ("files", "sqlite")
FAULTS = ("function", "worker", "frozen", "storage", "connections", "executor", "driver")
ALONE = {"executor": "timeout", "driver": "unaligned"}
"""Those that need a Spark of their own, and their mode in the part."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a `trial` runs with those of its `fault`, which its module names."""
    if "trial" not in metafunc.fixturenames:
        return
    seeds = metafunc.config.getoption("--fault-seeds")
    cases = [(fault, trial) for fault in metafunc.module.FAULTS for trial in trials(fault, seeds)]
    names = [
        f"{fault}-{trial.mode}-{trial.backend}-{trial.sink}-{trial.seed}" for fault, trial in cases
    ]
    metafunc.parametrize(("fault", "trial"), cases, ids=names)


def trials(fault: str, seeds: int) -> list[Trial]:
    """The whole matrix for each seed; without seeds the part of it."""
    first, turn = int(os.environ.get(SEED, "1")), FAULTS.index(fault)
    if not seeds:
        return part(fault, first)
    return [
        Trial(mode, backend, SINKS[(row + turn // 2 + seed) % 2], seed)
        for seed in range(first, first + seeds)
        for row, mode in enumerate(MODES)
        for backend in BACKENDS
    ]


def part(fault: str, seed: int) -> list[Trial]:
    """Two runs, or one."""
    if fault in ALONE:
        return [Trial(ALONE[fault], "rocksdb", "sqlite", seed)]
    turn = FAULTS.index(fault)
    modes = [mode for row, mode in enumerate(MODES) if row != turn % len(MODES)]
    return [
        Trial(mode, BACKENDS[(index + turn) % 2], SINKS[(index + turn // 2) % 2], seed)
        for index, mode in enumerate(modes)
    ]


@pytest.fixture(autouse=True)
def log_everything(caplog: pytest.LogCaptureFixture) -> None:
    """If a run fails, its log is shown."""
    caplog.set_level(logging.DEBUG, "headgate")
