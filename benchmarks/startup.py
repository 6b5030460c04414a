"""``bench startup``: from ``execute()`` to the first record processed, warm and cold.

Cold is measured from the start of a fresh Python process (imports, Java, Spark, the first worker
processes), warm in the same process and session, from the call of ``execute()``. On a busy machine
the CPU time of the first job, of all processes to its end, says more than the clock.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

WARM_JOBS = 5


def run_startup_bench(rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    cold, cold_cpu, warm = [], [], []
    for _ in range(rounds):
        started = time.time()
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.startup"],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        report = json.loads(child.stdout.splitlines()[-1])
        cold.append(report["cold_at"] - started)
        cold_cpu.append(report["cold_cpu_s"])
        warm += report["warm_s"]
    return {
        "warm_s": round(median(warm), 3),
        "cold_s": round(median(cold), 3),
        "cold_cpu_s": round(median(cold_cpu), 2),
        "rounds": rounds,
        "warm_s_all": [round(seconds, 3) for seconds in warm],
        "cold_s_all": [round(seconds, 3) for seconds in cold],
        "cold_cpu_s_all": [round(seconds, 2) for seconds in cold_cpu],
    }


def tree_cpu_s() -> float:
    """CPU time of this process and all below it, also of those that have ended; on Linux."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    total = 0
    for pid, used in ticks.items():
        above = pid
        while above not in (os.getpid(), 0):
            above = parents.get(above, 0)
        total += used if above else 0
    return total / os.sysconf("SC_CLK_TCK")


def first_record_at() -> tuple[float, float]:
    """Run a small job; when ``execute`` was called, and when its function saw its first record."""
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.settings.configuration import Configuration

    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(2)
    stream = env.from_collection(list(range(100))).rebalance().map(lambda number: time.time())
    called = time.time()
    with stream.execute_and_collect("bench startup") as moments:
        return called, min(moments)


def main() -> None:
    """The child process of the benchmark."""
    _, cold_at = first_record_at()
    cold_cpu_s = tree_cpu_s()
    warm = [first - called for called, first in (first_record_at() for _ in range(WARM_JOBS))]
    print(json.dumps({"cold_at": cold_at, "cold_cpu_s": cold_cpu_s, "warm_s": warm}))


if __name__ == "__main__":
    main()
