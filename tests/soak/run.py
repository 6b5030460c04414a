"""A job that runs for long under faults: strike, sample, judge, and compare the whole output."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.drivers import Driver, newest_checkpoint
from tests.faults.program import KEYS, Place, Trial, check
from tests.soak.faults import Strike, executor_of, kill
from tests.soak.judge import Verdict, judge
from tests.soak.samples import Output, Sampler, in_groups
from tests.spark.cluster import Cluster, descendants, until

PROGRAM = Path(__file__).with_name("driver.py")
SAMPLE_S = 3.0
LOOK_S = 0.2
RECOVERY_S = 120.0
"""A checkpoint completes so soon after any fault, or the soak fails."""
SETTLED_S = 4.0
"""Behind a recovery: from then on samples count as steady."""
GONE_S = 40.0
LOG_LINES = 40
END_S = 600.0
PAUSE_S = 0.02
RATE = 1_600
"""Records a second that the program takes at most, with two tasks and this pause."""


@dataclass(frozen=True)
class Hit:
    """A fault that came, and how long it was until the next checkpoint; None: not yet."""

    at_s: float
    kind: str
    recovered_s: float | None = None


@dataclass
class Result:
    """What a soak has found; ``problems`` is empty if all is well."""

    seconds: float
    hits: list[Hit]
    verdicts: list[Verdict]
    records: int
    restarts: int
    problems: list[str]


def trial_for(seconds: float, seed: int) -> Trial:
    """So many numbers that they do not run out; what is left at the end is hurried through."""
    numbers = (int(seconds * RATE) // KEYS + 1) * KEYS
    return Trial("timeout", "rocksdb", "sqlite", seed, numbers, PAUSE_S)


@dataclass
class Soak:
    """One run in a folder, on a cluster, or without one on a local Spark."""

    folder: Path
    trial: Trial
    strikes: list[Strike]
    cluster: Cluster | None
    environ: dict[str, str]
    hits: list[Hit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = Place(str(self.folder / "job"))
        self.temporary = self.folder / "tmp"
        for needed in (Path(self.place.folder), self.temporary):
            needed.mkdir(exist_ok=True)
        self.environ = {**self.environ, "TMPDIR": str(self.temporary)}
        self.output = Output(Path(self.place.folder, "counts"), self.trial.numbers)
        folders = {"checkpoint": self.place.storage, "temporary": self.temporary}
        self.sampler = Sampler(self._groups, folders, self.output)
        self._logs: list[Path] = []
        self._settled_s = 0.0
        self._checkpoint = 0

    def run(self, seconds: float) -> Result:
        """Strike and sample for so long, then let the job finish and compare its output."""
        self.driver = self._driver()
        try:
            self.driver.await_checkpoints(2)
            self._begun = time.monotonic()
            self._watch(seconds)
            self.place.hurry()
            output, _ = self.driver.process.communicate(timeout=END_S)
            assert self.driver.process.returncode == 0, f"the driver has failed: {output}"
        finally:
            self.driver.end()
        return self._result(seconds)

    def _watch(self, seconds: float) -> None:
        waiting, next_sample = list(self.strikes), 0.0
        while (now := self._now()) < seconds:
            code = self.driver.process.poll()
            assert code is None, f"the driver has ended with {code}:\n{self._last_lines()}"
            self._see_recovery(now)
            if now >= next_sample:
                self.sampler.take(now, not self._is_recovering and now >= self._settled_s)
                next_sample = now + SAMPLE_S
            if waiting and now >= waiting[0].at_s and not self._is_recovering:
                self._strike(waiting.pop(0))
            time.sleep(LOOK_S)

    def _now(self) -> float:
        return time.monotonic() - self._begun

    @property
    def _is_recovering(self) -> bool:
        return bool(self.hits) and self.hits[-1].recovered_s is None

    def _see_recovery(self, now: float) -> None:
        if not self._is_recovering:
            return
        hit = self.hits[-1]
        if newest_checkpoint(self.place) > self._checkpoint:
            self.hits[-1] = Hit(hit.at_s, hit.kind, now - hit.at_s)
            self._settled_s = now + SETTLED_S
        else:
            assert now - hit.at_s < RECOVERY_S, f"no checkpoint in {RECOVERY_S} s after {hit}"

    def _strike(self, strike: Strike) -> None:
        print(f"{self._now():7.1f} s  {strike.kind}", flush=True)
        workers = self.place.processes()
        pid = workers[int(strike.draw * len(workers))]
        if strike.kind == "function":
            self.place.let_fail()
            until(lambda: not self.place.is_to_fail, RECOVERY_S)
        elif strike.kind == "worker":
            kill(pid)
        elif strike.kind == "executor":
            kill(executor_of(pid) or pid)
        elif strike.kind == "machine":
            assert self.cluster is not None
            self.cluster.replace_worker(int(strike.draw * 2))
        else:
            self._replace_driver()
        # One that was on its way may still complete.
        self._checkpoint = newest_checkpoint(self.place) + 1
        self.hits.append(Hit(self._now(), strike.kind))

    def _replace_driver(self) -> None:
        lost = self.driver
        lost.process.kill()
        gone = until(lambda: lost.process.poll() is not None and not lost.family(), GONE_S)
        assert gone, f"processes {lost.family()} outlive their driver"
        lost.end()
        self.driver = self._driver()

    def _driver(self) -> Driver:
        master = "local[2]" if self.cluster is None else self.cluster.url
        driver = Driver(self.trial, self.place, master, self.environ, PROGRAM)
        self._logs.append(driver.log)
        return driver

    def _last_lines(self) -> str:
        return "\n".join(self.driver.log.read_text().splitlines()[-LOG_LINES:])

    def _groups(self) -> dict[str, list[int]]:
        if self.cluster is None:
            family = self.driver.family()
            workers = set(self.place.processes())
            return in_groups([pid for pid in family if pid not in workers], sorted(workers))
        return in_groups(descendants(self.driver.process.pid), self.cluster.processes())

    def _result(self, seconds: float) -> Result:
        self.output.look()
        problems = []
        try:
            check(self.trial, self.place)
        except AssertionError as error:
            problems.append(str(error))
        if self.output.doubled:
            problems.append(f"{self.output.doubled} numbers were committed twice")
        verdicts = judge(self.sampler.samples)
        problems += [
            f"{verdict.name} {'falls' if verdict.gain < 0 else 'grows'}: {verdict.gain:+.1f} over "
            f"the second half, {verdict.allowed:.1f} are allowed"
            for verdict in verdicts
            if verdict.grows
        ]
        restarts = sum(log.read_text().count(" goes on from checkpoint ") for log in self._logs)
        return Result(seconds, self.hits, verdicts, self.output.records, restarts, problems)
