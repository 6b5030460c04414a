"""Whether something grows in a long run: a robust slope over its second half, and a bound."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.soak.samples import Sample

SHARE = 0.15
"""Of its median: what a figure may gain over the second half of a run."""
FEWEST = 8
"""Samples without which there is no verdict on a figure."""


@dataclass(frozen=True)
class Watched:
    """A figure that must not grow; ``floor``: a gain that is never held against it."""

    name: str
    floor: float
    falls: bool = False
    """It must not fall instead."""


WATCHED = (
    Watched("driver python MB", 12),
    Watched("driver jvm MB", 60),
    Watched("executor jvm MB", 80),
    Watched("worker python MB", 25),
    Watched("descriptors", 40),
    Watched("threads", 20),
    Watched("checkpoint files", 30),
    Watched("checkpoint MB", 4),
    Watched("temporary files", 60),
    Watched("temporary MB", 24),
    Watched("records/s", 100, falls=True),
)


@dataclass(frozen=True)
class Verdict:
    """On one figure: its median, what it gained over the second half, and what it may gain."""

    name: str
    median: float
    gain: float
    allowed: float
    grows: bool


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen: the median slope of all pairs, which a third of outliers does not move."""
    slopes = [(y - v) / (x - u) for (u, v), (x, y) in combinations(points, 2) if x != u]
    return statistics.median(slopes) if slopes else 0.0


def judge(samples: Sequence[Sample], watched: Sequence[Watched] = WATCHED) -> list[Verdict]:
    """Steady samples of the second half alone: a job that recovers has fewer processes."""
    if not samples:
        return []
    half = samples[-1].at_s / 2
    late = [sample for sample in samples if sample.at_s >= half and sample.is_steady]
    if len(late) < FEWEST:
        return []
    length = late[-1].at_s - late[0].at_s
    verdicts = []
    for figure in watched:
        points = [(sample.at_s, sample.figures[figure.name]) for sample in late]
        median = statistics.median(value for _, value in points)
        gain = slope(points) * length
        allowed = max(figure.floor, SHARE * median)
        grows = (-gain if figure.falls else gain) > allowed
        verdicts.append(Verdict(figure.name, median, gain, allowed, grows))
    return verdicts
