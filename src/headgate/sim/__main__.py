"""The command: ``python -m headgate.sim --seeds 300``, or one seed again with its whole trace.

There are two families of runs: the data exchange with programs of its own, and (``--jobs``) whole
jobs. Many seeds run both, unless one is asked for.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from headgate.sim.jobs.scenario import draw_job
from headgate.sim.jobs.world import simulate_job
from headgate.sim.scenario import draw
from headgate.sim.world import Outcome, RunFailed, simulate

Simulate = Callable[[int, Callable[[str], None] | None], Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate; 0 if all runs kept the laws, 1 if one did not."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate.sim", description="Simulate exchange and jobs under seeded faults."
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds (300)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="this seed alone, with what it draws")
    parser.add_argument("--jobs", action="store_true", help="whole jobs only")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
        drawn = draw_job(options.seed) if options.jobs else draw(options.seed)
        print("\n".join(drawn.describe()))
        return run_seeds(seeds, simulate_job if options.jobs else simulate, options.verbose)
    seeds = range(options.start, options.start + options.seeds)
    families: list[Simulate] = [simulate_job] if options.jobs else [simulate, simulate_job]
    return int(any(run_seeds(seeds, family, options.verbose) for family in families))


def run_seeds(seeds: range, run: Simulate, verbose: bool = False) -> int:
    """Run them one after the other; stops at the first failure."""
    steps = items = calm = 0
    what = "jobs" if run is simulate_job else "exchange"
    for number, seed in enumerate(seeds, 1):
        try:
            outcome = run(seed, print if verbose else None)
        except RunFailed as failure:
            print(f"\nFAILED {failure}", flush=True)
            return 1
        steps += outcome.steps
        items += outcome.items
        calm += outcome.calm
        if number % 50 == 0 and sys.stdout.isatty():
            print(f"\r{what}: {number} of {len(seeds)} seeds", end="", flush=True)
    print(
        f"\r{what}: {len(seeds)} seeds kept every law: {calm} calm, {len(seeds) - calm} with "
        f"trouble; {steps} steps, {items} items read"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
