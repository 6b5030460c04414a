"""Which faults are tried: a part of them with all other tests, every one by `make faults`.

The part has each fault with each mode, and the backends in turns; of those that need a Spark of
their own it has one mode. A seed decides when a fault comes and whom it hits.
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
"""Those that need a Spark of their own, and the mode of the part."""


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
    found = []
    for seed in range(first, first + max(1, seeds)):
        for row, mode in enumerate(MODES):
            for column, backend in enumerate(BACKENDS):
                is_part = (row + column + turn) % 2 == 0 and ALONE.get(fault, mode) == mode
                if seeds or is_part:
                    sink = SINKS[(row + turn // 2 + seed) % 2]
                    found.append(Trial(mode, backend, sink, seed))
    return found


@pytest.fixture(autouse=True)
def log_everything(caplog: pytest.LogCaptureFixture) -> None:
    """If a run fails, its log is shown."""
    caplog.set_level(logging.DEBUG, "headgate")
