"""``python -m benchmarks``: measures, from the root of a clone."""

from benchmarks.commands import bench
from headgate.cli.commands import run_command
from headgate.cli.entry import signals_raise

if __name__ == "__main__":
    with signals_raise():
        run_command(bench, "python -m benchmarks")
