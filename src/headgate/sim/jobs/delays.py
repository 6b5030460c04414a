"""How long things take in a simulated job, in milliseconds; chance picks one of each."""

from dataclasses import dataclass
from typing import Final

from headgate.core.task.idling import LINGER_MS


@dataclass(frozen=True, slots=True)
class Delays:
    """Values to draw from."""

    message: tuple[float, ...] = (0.1, 1.0, 6.0)
    """Between driver and workers."""
    store: tuple[float, ...] = (0.1, 2.0, 15.0)
    """Until the metadata of a checkpoint is stored."""
    write: tuple[float, ...] = (0.0, 0.1, 1.0, 12.0)
    """Until the snapshot of a task is written."""
    answer: tuple[float, ...] = (0.0, 0.1, 1.0, 20.0)
    """Of an asynchronous call."""
    post: tuple[float, ...] = (0.0, 0.1)
    """Until another thread's word has reached the task."""
    linger_ms: float = LINGER_MS
    """After a wake of a source, until the next one counts."""


AT_ONCE: Final = Delays((0.0,), (0.0,), (0.0,), (0.0,), (0.0,), 0.0)
