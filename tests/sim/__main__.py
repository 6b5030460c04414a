"""The command: ``python -m tests.sim --seeds 300``, or one seed again with its whole trace.

One world, and two scenarios: ``jobs``, of one attempt, and ``recovery``, jobs that take checkpoints
and go on whatever happens. Many seeds run both, unless one is asked for.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.sim.jobs.random_jobs import draw_job
from tests.sim.jobs.random_recoveries import draw_recovery
from tests.sim.jobs.recovery_world import simulate_recovery
from tests.sim.jobs.world import simulate_job
from tests.sim.outcome import Outcome, RunFailed

CHUNK: Final = 5
"""Seeds that a process takes at once."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated: a run of a seed, and what the seed draws."""

    simulate: Callable[[int, Callable[[str], None] | None], Outcome]
    describe: Callable[[int], list[str]]


JOBS: Final = "jobs"
SCENARIOS: Final = {
    JOBS: Scenario(simulate_job, lambda seed: draw_job(seed).describe()),
    "recovery": Scenario(simulate_recovery, lambda seed: draw_recovery(seed).describe()),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate; 0 if all runs kept the laws, 1 if one did not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description="Simulate jobs under seeded faults."
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds (300)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="this seed alone, with what it draws (of jobs)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), help="this one only (all)")
    parser.add_argument("--processes", type=int, default=1, help="run seeds in so many (1)")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        name = options.scenario or JOBS
        print("\n".join(SCENARIOS[name].describe(options.seed)))
        if options.verbose:
            print("step, virtual time in ms, what happens")
        return run_seeds(range(options.seed, options.seed + 1), name, options.verbose)
    seeds = range(options.start, options.start + options.seeds)
    names = [options.scenario] if options.scenario else list(SCENARIOS)
    processes = 1 if options.verbose else max(1, options.processes)
    return int(any(run_seeds(seeds, name, options.verbose, processes) for name in names))


def run_seeds(seeds: range, name: str, verbose: bool = False, processes: int = 1) -> int:
    """Run them in the order of seeds, in several processes if asked to; stops at a failure."""
    if processes == 1 or len(seeds) == 1:
        return _report(seeds, name, (_outcome(name, verbose, seed) for seed in seeds))
    with ProcessPoolExecutor(min(processes, len(seeds))) as pool:
        outcomes = pool.map(partial(_outcome, name, verbose), seeds, chunksize=CHUNK)
        failed = _report(seeds, name, outcomes)
        pool.shutdown(cancel_futures=True)
    return failed


def _outcome(name: str, verbose: bool, seed: int) -> Outcome | str:
    """Of one seed; a text says how it has failed."""
    try:
        return SCENARIOS[name].simulate(seed, print if verbose else None)
    except RunFailed as failure:
        return str(failure)


def _report(seeds: range, name: str, outcomes: Iterable[Outcome | str]) -> int:
    steps = items = calm = 0
    for number, outcome in enumerate(outcomes, 1):
        if isinstance(outcome, str):
            print(f"\nFAILED {outcome}", flush=True)
            return 1
        steps += outcome.steps
        items += outcome.items
        calm += outcome.calm
        if number % 50 == 0 and sys.stdout.isatty():
            print(f"\r{name}: {number} of {len(seeds)} seeds", end="", flush=True)
    print(
        f"\r{name}: {len(seeds)} seeds kept every law: {calm} calm, {len(seeds) - calm} with "
        f"trouble; {steps} steps, {items} items read"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
