"""The command: ``python -m headgate.sim --seeds 300``, or one seed again with its whole trace."""

import argparse
import sys
from collections.abc import Sequence

from headgate.sim.scenario import draw
from headgate.sim.world import RunFailed, simulate


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate; 0 if all runs kept the laws, 1 if one did not."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate.sim", description="Simulate the data exchange under seeded faults."
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds (300)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="this seed alone, with what it draws")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
        print("\n".join(draw(options.seed).describe()))
    else:
        seeds = range(options.start, options.start + options.seeds)
    return run_seeds(seeds, verbose=options.verbose)


def run_seeds(seeds: range, *, verbose: bool = False) -> int:
    """Run them one after the other; stops at the first failure."""
    steps = items = calm = 0
    for number, seed in enumerate(seeds, 1):
        try:
            outcome = simulate(seed, print if verbose else None)
        except RunFailed as failure:
            print(f"\nFAILED {failure}", flush=True)
            return 1
        steps += outcome.steps
        items += outcome.items
        calm += outcome.calm
        if number % 50 == 0 and sys.stdout.isatty():
            print(f"\r{number} of {len(seeds)} seeds", end="", flush=True)
    print(
        f"\r{len(seeds)} seeds kept every law: {calm} calm, {len(seeds) - calm} with trouble; "
        f"{steps} steps, {items} items read"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
