"""The command: ``python -m tests.mutants [name …] [--jobs 2]``; every mutant must be caught."""

import argparse
import sys
from collections.abc import Sequence

from tests.mutants.check import check_all, failures_without_mutants, report
from tests.mutants.table import MUTANTS


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all were caught, 1 if one was not, 2 if the check itself makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="these alone")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time (2)")
    options = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no mutant {', '.join(unknown)}; tests/mutants has their names")
    chosen = [known[name] for name in options.names] or list(MUTANTS)
    if problem := failures_without_mutants(chosen):
        _say(f"{problem}\nthese tests fail without any mutant; mend them first")
        return 2
    return 0 if report(check_all(chosen, options.jobs), len(chosen), _say) else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
