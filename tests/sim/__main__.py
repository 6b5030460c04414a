"""The command: ``python -m tests.sim --seeds 300``, or one seed again with its whole trace.

There are three families of runs: the data exchange with programs of its own, (``--jobs``) whole
jobs, and (``--recovery``) jobs that take checkpoints and go on whatever befalls them. Many seeds
run all, unless one is asked for.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from tests.sim.jobs.random_jobs import draw_job
from tests.sim.jobs.random_recoveries import draw_recovery
from tests.sim.jobs.recovery_world import simulate_recovery
from tests.sim.jobs.world import simulate_job
from tests.sim.scenario import draw
from tests.sim.world import Outcome, RunFailed, simulate

CHUNK: Final = 5
"""Seeds that a process takes at once."""
Simulate = Callable[[int, Callable[[str], None] | None], Outcome]
NAMES: Final[dict[Simulate, str]] = {
    simulate: "exchange",
    simulate_job: "jobs",
    simulate_recovery: "recovery",
}
DRAW: Final[dict[Simulate, Callable[[int], list[str]]]] = {
    simulate: lambda seed: draw(seed).describe(),
    simulate_job: lambda seed: draw_job(seed).describe(),
    simulate_recovery: lambda seed: draw_recovery(seed).describe(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate; 0 if all runs kept the laws, 1 if one did not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description="Simulate exchange and jobs under seeded faults."
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds (300)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="this seed alone, with what it draws")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--jobs", action="store_true", help="whole jobs only")
    only.add_argument("--recovery", action="store_true", help="jobs that take checkpoints only")
    parser.add_argument("--processes", type=int, default=1, help="run seeds in so many (1)")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        seeds, family = range(options.seed, options.seed + 1), _family(options)
        print("\n".join(DRAW[family](options.seed)))
        if options.verbose:
            print("step, virtual time in ms, what happens")
        return run_seeds(seeds, family, options.verbose)
    seeds = range(options.start, options.start + options.seeds)
    families = [_family(options)] if options.jobs or options.recovery else list(NAMES)
    processes = 1 if options.verbose else max(1, options.processes)
    return int(any(run_seeds(seeds, family, options.verbose, processes) for family in families))


def _family(options: argparse.Namespace) -> Simulate:
    if options.recovery:
        return simulate_recovery
    return simulate_job if options.jobs else simulate


def run_seeds(seeds: range, run: Simulate, verbose: bool = False, processes: int = 1) -> int:
    """Run them in the order of seeds, in several processes if asked to; stops at a failure."""
    if processes == 1 or len(seeds) == 1:
        return _report(seeds, run, (_outcome(run, verbose, seed) for seed in seeds))
    with ProcessPoolExecutor(min(processes, len(seeds))) as pool:
        outcomes = pool.map(partial(_outcome, run, verbose), seeds, chunksize=CHUNK)
        failed = _report(seeds, run, outcomes)
        pool.shutdown(cancel_futures=True)
    return failed


def _outcome(run: Simulate, verbose: bool, seed: int) -> Outcome | str:
    """Of one seed; a text says how it has failed."""
    try:
        return run(seed, print if verbose else None)
    except RunFailed as failure:
        return str(failure)


def _report(seeds: range, run: Simulate, outcomes: Iterable[Outcome | str]) -> int:
    steps = items = calm = 0
    what = NAMES[run]
    for number, outcome in enumerate(outcomes, 1):
        if isinstance(outcome, str):
            print(f"\nFAILED {outcome}", flush=True)
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
