"""Which faults hit a job, when, and whom: a function of the seed."""

import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WEIGHTS = {"function": 4, "worker": 3, "executor": 2, "machine": 1, "driver": 1}
"""How often: a function raises, a Python worker, an executor, a machine, or the driver is lost."""
LAST_S = 20.0
"""No fault comes in so long before the end."""
EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Strike:
    """A fault; ``draw`` from 0 to 1 picks whom it hits."""

    at_s: float
    kind: str
    draw: float


def schedule(
    seed: int, seconds: float, every_s: float, kinds: Sequence[str] = tuple(WEIGHTS)
) -> list[Strike]:
    """About every so often, all kinds with their weights; the first when the job has begun."""
    chance = random.Random(seed)
    weights = [WEIGHTS[kind] for kind in kinds]
    strikes = []
    at_s = every_s * chance.uniform(0.5, 1.0)
    while at_s < seconds - LAST_S:
        (kind,) = chance.choices(kinds, weights)
        strikes.append(Strike(at_s, kind, chance.random()))
        at_s += every_s * chance.uniform(0.5, 1.5)
    return strikes


def kill(pid: int) -> None:
    """SIGKILL, unless it has gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def executor_of(pid: int) -> int | None:
    """The JVM above a Python worker; None: the worker has gone."""
    with suppress(OSError):
        while pid > 1:
            if EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None
