"""How a job that takes checkpoints is simulated, over all its runs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random
from typing import Final

from headgate.base.recovery_settings import CheckpointSettings
from headgate.plan.stream_graph import StreamGraph
from headgate.sim.jobs.scenario import JobScenario

SCALES: Final = 3
"""Runs of a job have so many parallelisms to choose from."""


@dataclass(slots=True)
class RecoveryScenario(ABC):
    """All runs of a job, before the first."""

    first: JobScenario
    graph: StreamGraph
    settings: CheckpointSettings
    retained: int
    write_fails: float
    """Share of snapshots of tasks that cannot be written …"""
    store_fails: float
    """… and of checkpoints whose metadata cannot."""
    pause_ms: float
    """Before a restart."""
    notices_ms: float
    """The driver gives up a worker that is silent for so long."""
    rescales: bool

    @property
    def seed(self) -> int:
        return self.first.seed

    @abstractmethod
    def scaled(self, scale: int, random: Random) -> JobScenario:
        """The same program with another parallelism, for another run; ``scale`` is below SCALES."""
