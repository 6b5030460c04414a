"""Latencies that markers have measured, of the last so many."""

from collections import deque
from dataclasses import dataclass
from typing import Final

KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class LatencyStatistics:
    """Over the last markers; zero if none came."""

    markers: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Latencies:
    """How long markers took from their source to here."""

    def __init__(self) -> None:
        self._count = 0
        self._last: deque[float] = deque(maxlen=KEPT)

    def measured(self, latency_ms: float) -> None:
        self._count += 1
        self._last.append(max(0.0, latency_ms))

    def statistics(self) -> LatencyStatistics:
        if not self._last:
            return LatencyStatistics(0, 0.0, 0.0, 0.0)
        ordered = sorted(self._last)
        last = len(ordered) - 1
        return LatencyStatistics(
            self._count, ordered[last // 2], ordered[round(last * 0.99)], ordered[-1]
        )
