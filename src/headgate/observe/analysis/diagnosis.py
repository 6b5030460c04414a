"""The answer to "is the job keeping up, and if not, why?", as it travels to pages and commands.

Law: ``summary`` says everything that the other fields say about the limit, for people; the fields
say it again for programs. What operators have left out stands apart, in ``left_out``. Rates are
records a second, shares are parts of one; field names have dashes in JSON.
"""

import msgspec

from headgate.observe.analysis.left_out import LeftOutRecords


class VertexAdvice(msgspec.Struct, frozen=True, rename="kebab"):
    """What the analysis says of one vertex."""

    vertex: int
    name: str
    parallelism: int
    suggested: int
    """Equal to the parallelism: leave it."""
    rate: float
    true_rate: float
    """What it could take; -1: unknown, it was hardly busy."""
    target_rate: float
    """What it would have to take to keep up with the sources."""
    busy: float
    """The largest share of its tasks."""
    backpressured: float
    limited_by: str = ""
    """Why more is not suggested: ``key groups``, ``max parallelism``, ``source splits``,
    ``cores``, ``hot key``, ``skew``, ``capacity``, ``link``, ``commit``, ``alternating``."""


class Diagnosis(msgspec.Struct, frozen=True, rename="kebab"):
    """Which vertex limits the job, why, and what to do about it."""

    cause: str
    """``unknown``, ``skew``, ``waits``, ``async-capacity``, ``rate-limit``, ``cpu``, ``state``,
    ``link``, ``commit``, ``alternating``, ``busy``, ``source`` or ``none``."""
    summary: str
    vertex: int = -1
    """That limits the job; -1: none does."""
    subtask: int = -1
    """If it is one subtask."""
    keys: tuple[tuple[str, float], ...] = ()
    """If it is skew: hot keys and their shares of all records of the vertex."""
    line: str = ""
    """The Python line that waits or costs most: ``function (file.py:12)``."""
    evidence: tuple[str, ...] = ()
    rate: float = 0.0
    """Of all sources now."""
    possible_rate: float = -1.0
    """Of all sources without the bottleneck; -1: unknown."""
    next_vertex: int = -1
    """What would limit the job then; -1: unknown, or no vertex."""
    advice: tuple[VertexAdvice, ...] = ()
    """For every vertex."""
    window_s: float = 0.0
    complete: bool = True
    """False: a quick answer from counters alone, no stacks or keys were looked at."""
    advised_rate: float = -1.0
    """Of all sources, if every suggestion were applied; -1: unknown."""
    headline: str = ""
    """The summary in one line."""
    left_out: tuple[LeftOutRecords, ...] = ()
    """What operators have dropped by design since the job began, whatever limits it."""
