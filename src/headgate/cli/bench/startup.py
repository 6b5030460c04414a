"""``bench startup``: from ``execute()`` to the first record processed, warm and cold.

Cold is measured from the start of a fresh Python process (imports, Java, Spark, the first worker
processes), warm in the same process and session, from the call of ``execute()``.
"""

import json
import subprocess
import sys
import time
from statistics import median
from typing import Any

WARM_JOBS = 5


def run_startup_bench(rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds."""
    cold, warm = [], []
    for _ in range(rounds):
        started = time.time()
        child = subprocess.run(
            [sys.executable, "-m", "headgate.cli.bench.startup"],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        report = json.loads(child.stdout.splitlines()[-1])
        cold.append(report["cold_at"] - started)
        warm += report["warm_s"]
    return {
        "warm_s": round(median(warm), 3),
        "cold_s": round(median(cold), 3),
        "rounds": rounds,
        "warm_s_all": [round(seconds, 3) for seconds in warm],
        "cold_s_all": [round(seconds, 3) for seconds in cold],
    }


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
    warm = [first - called for called, first in (first_record_at() for _ in range(WARM_JOBS))]
    print(json.dumps({"cold_at": cold_at, "warm_s": warm}))


if __name__ == "__main__":
    main()
