"""Jobs that take checkpoints: whatever happens, they commit what the reference says."""

from tests.sim.jobs.recovery_world import simulate_recovery


def test_a_job_that_goes_on_loses_nothing_and_repeats_nothing(recovery_seed: int) -> None:
    simulate_recovery(recovery_seed)
