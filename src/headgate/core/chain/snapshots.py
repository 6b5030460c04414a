"""What operators leave at a checkpoint, and what they get back from one.

A snapshot is taken on the task's thread between two steps, and is short: keyed state is written
later, beside the task's work. Law: what is restored is what was there at the snapshot; lists and
positions that only the operator can redistribute come from all old tasks, in the order of their
subtasks. State without keys consists of named parts (functions, waiting records, event time); each
part gets back what was left under its name, and parts that no longer exist are ignored.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headgate.base.checkpoints import StateShape
from headgate.base.errors import StateBroken
from headgate.core.state.backend import Snapshot, StoredDatabase


@dataclass(slots=True)
class OperatorSnapshot:
    """What one operator has at one moment; the fields are those of ``OperatorState``."""

    keyed: Snapshot | None = None
    """Written in the background, closed on the task's thread."""
    plain: bytes | None = None
    """State without keys."""
    plain_is_own: bool = False
    """With the same parallelism a task needs its own ``plain`` alone."""
    source: bytes | None = None
    """Splits of a source and their positions."""
    sink: bytes | None = None
    """What a sink has prepared and not committed."""
    shapes: tuple[StateShape, ...] = ()
    """Kinds and types of its states."""

    def close(self) -> None:
        """No longer needed. Idempotent."""
        if self.keyed is not None:
            self.keyed.close()


def _no_groups() -> Iterator[tuple[int, bytes]]:
    return iter(())


@dataclass(frozen=True, slots=True)
class OperatorRestored:
    """What one operator of a task gets back."""

    checkpoint: int = 0
    keyed: Callable[[], Iterator[tuple[int, bytes]]] = _no_groups
    """Key groups that the task owns, and their bytes; read from the storage as they are asked."""
    plain: tuple[bytes | None, ...] = ()
    """State without keys of each old task, by subtask; None: it left none, or none is needed."""
    source: tuple[bytes | None, ...] = ()
    """Splits and positions of each old task, by subtask; None: it left none."""
    sinks: tuple[bytes, ...] = ()
    """What sinks had prepared and this task is to commit."""
    databases: tuple[StoredDatabase, ...] = ()
    """With keyed state of the task's key groups, and perhaps of others."""
    shapes: tuple[StateShape, ...] = ()
    """Kinds and types of the states of all old tasks; none: an older version has not noted them."""


def pack_parts(parts: Mapping[str, bytes]) -> bytes | None:
    """All parts in one; None: there are none."""
    return _ENCODER.encode(dict(parts)) if parts else None


def restored_parts(restored: OperatorRestored | None, name: str) -> tuple[bytes | None, ...]:
    """The state of the part with this name, for each old task; raises StateBroken."""
    if restored is None:
        return ()
    return tuple(
        state if state is None else unpack_parts(state).get(name) for state in restored.plain
    )


def unpack_parts(data: bytes) -> dict[str, bytes]:
    """The parts of one task, by name; raises StateBroken."""
    try:
        return _DECODER.decode(data)
    except Exception as error:
        raise StateBroken(f"an operator's state without keys cannot be read: {error}") from error


_ENCODER = msgspec.msgpack.Encoder()

_DECODER = msgspec.msgpack.Decoder(dict[str, bytes])
