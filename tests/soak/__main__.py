"""The command: ``python -m tests.soak --minutes 15 --seed 1``; 1 if something grows or is wrong.

A Spark standalone cluster of a master and two workers, on the loopback address, runs one job under
seeded faults. Figures go to ``--report``, the picture to ``--picture``.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.soak.faults import schedule
from tests.soak.picture import draw
from tests.soak.run import Result, Soak, trial_for
from tests.soak.samples import Sample
from tests.spark.cluster import Cluster


def main() -> int:
    """Run, report, draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between faults (30)")
    parser.add_argument("--report", type=Path, help="a file for all samples, as JSON")
    parser.add_argument("--picture", type=Path, help="a file for the picture, as SVG")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # every process is ended first
    seconds = options.minutes * 60
    strikes = schedule(options.seed, seconds, options.every)
    with tempfile.TemporaryDirectory(prefix="headgate-soak-") as name:
        folder = Path(name)
        os.environ["SPARK_LOCAL_DIRS"] = str(folder / "tmp")
        os.environ["TMPDIR"] = str(folder / "tmp")
        for needed in ("cluster", "tmp"):
            (folder / needed).mkdir()
        with Cluster(folder / "cluster") as cluster:
            soak = Soak(folder, trial_for(seconds, options.seed), strikes, cluster, cluster.environ)
            try:
                result = soak.run(seconds)
            finally:
                _keep(options.report, soak.sampler.samples, soak)
    _keep(options.report, soak.sampler.samples, soak, result)
    if options.picture:
        options.picture.write_text(draw(soak.sampler.samples, result.hits))
    report(result)
    return int(bool(result.problems))


def _keep(
    path: Path | None, samples: list[Sample], soak: Soak, result: Result | None = None
) -> None:
    if path is not None:
        found = asdict(result) if result else {"hits": [asdict(hit) for hit in soak.hits]}
        path.write_text(json.dumps({**found, "samples": [asdict(sample) for sample in samples]}))


def report(result: Result) -> None:
    """For people."""
    print(f"{result.seconds / 60:.1f} minutes, {result.records} records, {len(result.hits)} faults")
    for kind in sorted({hit.kind for hit in result.hits}):
        times = sorted(hit.recovered_s or 0.0 for hit in result.hits if hit.kind == kind)
        middle = times[len(times) // 2]
        print(
            f"  {kind:10} {len(times):3} times, a checkpoint again after {middle:.1f} s "
            f"(at most {times[-1]:.1f} s)"
        )
    print(f"  {result.restarts} restores; second half of the run:")
    for verdict in result.verdicts:
        print(
            f"  {verdict.name:20} median {verdict.median:9.1f}, gain {verdict.gain:+8.1f} "
            f"of {verdict.allowed:.1f} allowed"
        )
    print("\n".join(result.problems) or "nothing grows, and every record is there once")


if __name__ == "__main__":
    sys.exit(main())
