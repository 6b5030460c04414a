"""A run is a function of its seed, in this process and in any other."""

import os
import subprocess
import sys

import pytest

from tests.sim.scenario import draw
from tests.sim.world import Outcome, simulate

SEEDS = (1, 7, 56)

DIGEST = """
import sys, zlib
from tests.sim.world import simulate
lines = []
simulate(int(sys.argv[1]), lines.append)
print(len(lines), zlib.crc32("\\n".join(lines).encode()))
"""


def traced(seed: int) -> tuple[list[str], Outcome]:
    lines: list[str] = []
    outcome = simulate(seed, lines.append)
    return lines, outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = traced(seed), traced(seed)
    assert len(first[0]) > 100
    assert first == second


def test_other_seeds_are_other_runs() -> None:
    assert len({tuple(traced(seed)[0]) for seed in SEEDS}) == len(SEEDS)


def test_a_seed_replays_in_another_process_with_other_hashes() -> None:
    digests = [digest_in_process(7, hash_seed) for hash_seed in ("1", "2")]
    assert digests[0] == digests[1] != ""


def digest_in_process(seed: int, hash_seed: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", DIGEST, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout


def test_about_half_of_the_seeds_are_calm() -> None:
    calm = sum(draw(seed).calm for seed in range(200))
    assert 80 < calm < 120


def test_seeds_reach_every_corner() -> None:
    """What a seed may draw is drawn by some: nothing is switched off by mistake."""
    scenarios = [draw(seed) for seed in range(300)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert kinds == {
        *("cut", "stall", "freeze", "kill", "refuse", "black-hole", "cancel", "doze", "stranger"),
    }
    jobs = [job for scenario in scenarios for job in scenario.jobs]
    outputs = [job.output for job in jobs if job.output is not None]
    assert len({output.kind for output in outputs}) == 3
    assert len({output.route for output in outputs}) == 6
    assert {1, 2, 3, 5} <= {output.subpartitions for output in outputs}
    assert any(len(job.feeds) > 1 for job in jobs), "unions"
    assert any(job.feeds and job.output for job in jobs), "relays"
    assert any(job.start_ms is None for job in jobs), "producers that never start"
    assert any(place for job in jobs for places in job.place_ms for place in places), "unknown"
    assert {scenario.workers for scenario in scenarios} == {1, 2, 3, 4}
    assert {scenario.settings.segment_bytes for scenario in scenarios} >= {1, 16, 512}
    assert len({scenario.settings.flow_control for scenario in scenarios}) == 2
    assert len({scenario.settings.compression for scenario in scenarios}) == 2
    assert {scenario.settings.buffer_timeout_ms for scenario in scenarios} >= {-1, 0, 20}
