"""Whole runs: every seed keeps every law. More of them: `make sim SEEDS=3000`."""

from tests.sim.world import simulate


def test_a_run_keeps_every_law(sim_seed: int) -> None:
    simulate(sim_seed)
