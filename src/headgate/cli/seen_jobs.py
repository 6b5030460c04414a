"""What the commands read of the answers of a job's REST API.

Law: a field that the driver leaves out has a default that says "unknown", and fields that nobody
here knows are skipped, so that a command can look at a job of another version. Numbers that mean
"unknown" to the driver, -1 and null, are None for those who draw.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from headgate.base.errors import HeadgateError
from headgate.cli.rest_client import RestClient

_Number = TypeVar("_Number", int, float)


class SeenLeftOut(msgspec.Struct, frozen=True, rename="kebab"):
    """What an operator has dropped by design."""

    operator: str = ""
    summary: str = ""
    late: int = 0
    most_late_ms: int = 0
    skipped: int = 0
    dead_letters: int = 0


class SeenWhy(msgspec.Struct, frozen=True, rename="kebab"):
    """Of a Diagnosis: what limits the job, in a paragraph and in a line; and what it leaves out."""

    summary: str = ""
    headline: str = ""
    left_out: list[SeenLeftOut] = []


class SeenFailure(msgspec.Struct, frozen=True, rename="kebab"):
    """The failure that ended an attempt."""

    at_ms: int = 0
    kind: str = ""
    message: str = ""
    operator: str = ""
    restarted: bool = False


class SeenRates(msgspec.Struct, frozen=True, rename="kebab"):
    """Records per second, over the last seconds."""

    in_per_s: float = 0.0
    out_per_s: float = 0.0


class SeenActivity(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """What vertices and subtasks have in common; shares are parts of one, over the last seconds."""

    status: str = ""
    rates: SeenRates = SeenRates()
    busy: float = 0.0
    backpressured: float = 0.0
    idle: float = 0.0
    cpu: float | None = None
    watermark: int | None = None
    watermark_lag_ms: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    state_bytes: int | None = None
    lag_records: int | None = None


class SeenVertex(SeenActivity, frozen=True, kw_only=True):
    """A vertex of the job, all its subtasks together."""

    id: str
    name: str
    parallelism: int = 1
    is_source: bool = False
    tasks: dict[str, int] = {}
    max_busy: float = 0.0


class SeenGate(msgspec.Struct, frozen=True, rename="kebab"):
    """What waits in front of a subtask."""

    queued_buffers: int = 0
    backlog: int = 0


class SeenSubtask(SeenActivity, frozen=True, kw_only=True):
    """One task of a vertex."""

    subtask: int
    host: str = ""
    gates: list[SeenGate] = []


class SeenVertexTasks(SeenVertex, frozen=True, kw_only=True):
    """``GET /jobs/{id}/vertices/{vid}``: a vertex with its subtasks."""

    subtasks: list[SeenSubtask] = []


class SeenJob(msgspec.Struct, frozen=True, rename="kebab"):
    """``GET /jobs/{id}``."""

    jid: str
    name: str
    state: str
    start_time: int = 0
    end_time: int = -1
    now: int = 0
    restarts: int = 0
    vertices: list[SeenVertex] = []
    latest_failure: SeenFailure | None = None
    why: SeenWhy | None = None

    @property
    def seconds(self) -> float:
        """How long it has run."""
        end_ms = self.end_time if self.end_time >= 0 else self.now
        return max(0, end_ms - self.start_time) / 1000


class CheckpointCounts(msgspec.Struct, frozen=True, rename="kebab"):
    """Over the life of the job."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    in_progress: int = 0


class SeenCheckpoint(msgspec.Struct, frozen=True, rename="kebab"):
    """One checkpoint or savepoint."""

    checkpoint: int = 0
    kind: str = "checkpoint"
    status: str = ""
    triggered_at_ms: int = 0
    took_ms: float = 0.0
    state_bytes: int = 0
    problem: str = ""


class SeenCheckpoints(msgspec.Struct, frozen=True, rename="kebab"):
    """``GET /jobs/{id}/checkpoints``; the newest first."""

    counts: CheckpointCounts = CheckpointCounts()
    history: list[SeenCheckpoint] = []


class VertexNotFound(HeadgateError):
    """No vertex is called so, or several are."""

    def __init__(self, called: str, problem: str, vertices: Sequence[SeenVertex]) -> None:
        named = ", ".join(f"{vertex.id} ({vertex.name})" for vertex in vertices)
        super().__init__(f"{called!r} {problem}; name one of {named or 'none'}")


def known(number: _Number | None) -> _Number | None:
    """None instead of what the driver says if it does not know."""
    return None if number is None or number < 0 else number


def find_vertex(page: RestClient, called: str) -> SeenVertex:
    """The vertex with this number or name, or whose name alone contains the text.

    Raises VertexNotFound, which lists the vertices.
    """
    return pick_vertex(page.get("", SeenJob).vertices, called)


def pick_vertex(vertices: Sequence[SeenVertex], called: str) -> SeenVertex:
    """The same, of these vertices."""
    text = called.casefold()
    for fits in (
        [vertex for vertex in vertices if vertex.id == called],
        [vertex for vertex in vertices if vertex.name == called],
        [vertex for vertex in vertices if text and text in vertex.name.casefold()],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise VertexNotFound(called, f"may be any of {len(fits)} vertices", fits)
    raise VertexNotFound(called, "is no vertex of the job", vertices)
