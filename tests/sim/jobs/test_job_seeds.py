"""Whole jobs: every seed keeps every law and gives what the reference says."""

from tests.sim.jobs.world import simulate_job


def test_a_job_keeps_every_law(job_seed: int) -> None:
    simulate_job(job_seed)
