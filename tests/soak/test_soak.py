"""A soak of seconds on a local Spark: the same parts as an hour on a cluster."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.soak.faults import WEIGHTS, Strike, schedule
from tests.soak.run import Soak, trial_for
from tests.spark.cluster import is_running

SECONDS = 12.0


def test_the_same_seed_draws_the_same_faults() -> None:
    strikes = schedule(7, 3_600, 30)
    assert strikes == schedule(7, 3_600, 30)
    assert strikes != schedule(8, 3_600, 30)
    assert {strike.kind for strike in strikes} == set(WEIGHTS)
    assert 80 < len(strikes) < 160
    assert max(strike.at_s for strike in strikes) < 3_580


@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
@pytest.mark.timeout(240)
def test_a_short_soak_ends_with_every_record_once(tmp_path: Path) -> None:
    strikes = [Strike(2.0, "function", 0.1), Strike(5.0, "worker", 0.9)]
    soak = Soak(tmp_path, trial_for(SECONDS, 1), strikes, None, dict(os.environ))
    result = soak.run(SECONDS)
    assert result.problems == []
    assert [hit.kind for hit in result.hits][:1] == ["function"]
    assert result.restarts >= len(result.hits) > 0
    assert (soak.output.missing, soak.output.doubled) == (0, 0)
    figures = soak.sampler.samples[0].figures
    assert all(figures[f"{name} MB"] > 1 for name in ("driver python", "worker python"))
    assert figures["checkpoint files"] > 0
    assert not any(map(is_running, soak.place.processes()))
