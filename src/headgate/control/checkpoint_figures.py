"""Figures of the checkpoints of a run, for people and for metrics."""

from dataclasses import dataclass

from headgate.base.checkpoints import CheckpointKind
from headgate.control.pending_checkpoint import Pending


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """How a checkpoint has gone that is stored."""

    checkpoint: int
    kind: CheckpointKind
    took_ms: float
    state_bytes: int
    in_flight_bytes: int
    align_ms: float
    """Of the slowest task; so are the next two."""
    sync_ms: float
    async_ms: float
    unaligned: bool


@dataclass(frozen=True, slots=True)
class CheckpointStatistics:
    """Counts of one run, without savepoints, and the last one that was stored."""

    triggered: int
    completed: int
    failed: int
    pending: int
    last: CheckpointSummary | None


def summary_of(pending: Pending, now_ms: float) -> CheckpointSummary:
    """Of a checkpoint that was stored now."""
    metadata, figures = pending.metadata, pending.figures
    assert metadata is not None, f"checkpoint {pending.checkpoint} was not stored"
    return CheckpointSummary(
        checkpoint=pending.checkpoint,
        kind=metadata.kind,
        took_ms=now_ms - pending.began_ms,
        state_bytes=metadata.state_bytes,
        in_flight_bytes=sum(one.in_flight_bytes for one in figures),
        align_ms=max((one.align_ms for one in figures), default=0.0),
        sync_ms=max((one.sync_ms for one in figures), default=0.0),
        async_ms=max((one.async_ms for one in figures), default=0.0),
        unaligned=metadata.unaligned,
    )
