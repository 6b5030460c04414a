"""How a run of the simulator ends: what it did, or which law it broke and how to see that again."""

from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb

from headgate.sim.worker import CheckFailed


class RunFailed(Exception):
    """A run broke a law. Says which, what happened before, and how to see it again."""

    def __init__(self, seed: int, problem: str, trace: list[str], scenario: str) -> None:
        self.seed = seed
        self.problem = problem
        self.trace = trace
        self.replay = f"make sim SCENARIO={scenario} SEED={seed}"
        lines = "\n".join(f"    {line}" for line in trace)
        super().__init__(
            f"seed {seed}: {problem}\n  last steps:\n{lines}\n  see it again: {self.replay}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run that kept all laws did."""

    seed: int
    calm: bool
    steps: int
    now_ms: float
    items: int
    fates: dict[str, str]
    faults: list[str]


def problem_of(error: Exception) -> str:
    """What went wrong, in a line; an assertion without words is told by its place."""
    if isinstance(error, CheckFailed):
        return str(error)
    frame = extract_tb(error.__traceback__)[-1]
    return f"{error!r} at {Path(frame.filename).name}:{frame.lineno}: {frame.line}"
