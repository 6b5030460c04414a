"""Faults of functions, workers, storage and connections on a local Spark, under load."""

from pathlib import Path

import pytest

from tests.faults.kit import FAULTS, run_with
from tests.faults.program import Trial

__all__ = ["FAULTS"]

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(240)]


def test_nothing_is_lost_and_nothing_comes_twice(fault: str, trial: Trial, tmp_path: Path) -> None:
    print(f"HEADGATE_FAULT_SEED={trial.seed}: {fault}, {trial}")
    run_with(fault, trial, tmp_path)
