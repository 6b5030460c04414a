"""Rows of state as users see them, made of what checkpoints hold.

Law: a row shows the user's own value: neither the time of the last touch that a time to live keeps
beside it, nor what stands for a result that is None.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.base.elements import Key, Record
from headgate.core.chain.keyed_context import EVENT_TIME
from headgate.core.chain.snapshots import unpack_parts
from headgate.core.operators.source_splits import saved_splits
from headgate.core.state.cursor import Namespace
from headgate.core.state.operator_state import BROADCAST, is_states, read_states
from headgate.core.state.snapshot import EVENT_TIMER, NONE, PROCESSING_TIMER, TTL, Entry, Load

TIMERS: Final = (EVENT_TIMER, PROCESSING_TIMER)
"""Kinds of entries that are no state."""


class KeyedRow(NamedTuple):
    """What a state holds for a key, and for a window if it has one for each."""

    key: Key
    namespace: Namespace
    """The window; None: the state is that of the key alone."""
    value: Record
    """A list for a list state, a dict for a map state."""
    touched_ms: int | None = None
    """When a value with a time to live was touched last."""


class TimerRow(NamedTuple):
    """A timer that has not fired."""

    domain: str
    """``event`` or ``processing``."""
    time_ms: int
    key: Key
    namespace: Namespace


class OperatorRow(NamedTuple):
    """An element of a list, or an entry of a broadcast map, or a split of a source."""

    state: str
    kind: str
    subtask: int
    value: Record
    map_key: Record = None
    function: str = ""
    """Which of the operator's functions has it."""


def keyed_row(entry: Entry) -> KeyedRow:
    """An entry of a state as users know it."""
    kind, _, namespace, key, content = entry
    touched_ms = None
    if kind.endswith(TTL):
        if isinstance(content, list):
            content = [value for value, _ in content]
        elif isinstance(content, dict):
            content = {name: value for name, (value, _) in content.items()}
        else:
            content, touched_ms = content
    return KeyedRow(key, namespace, None if content is NONE else content, touched_ms)


def timer_row(entry: Entry) -> TimerRow:
    """An entry of a timer as users know it."""
    kind, _, namespace, key, time_ms = entry
    return TimerRow("event" if kind == EVENT_TIMER else "processing", time_ms, key, namespace)


def plain_rows(data: bytes, subtask: int, load: Load) -> Iterator[OperatorRow]:
    """Lists, broadcast maps and event time of a task; raises StateBroken."""
    for part, held in unpack_parts(data).items():
        if part == EVENT_TIME:
            yield OperatorRow(
                EVENT_TIME, "watermark", subtask, int.from_bytes(held, "little", signed=True)
            )
            continue
        if not is_states(held):
            yield OperatorRow(part, "records under way", subtask, held)
            continue
        for (kind, name), content in read_states(held, load).items():
            if kind == BROADCAST:
                for map_key, value in content.items():
                    yield OperatorRow(name, kind, subtask, value, map_key, part)
            else:
                for value in content:
                    yield OperatorRow(name, kind, subtask, value, None, part)


def split_rows(data: bytes, subtask: int, load: Load) -> Iterator[OperatorRow]:
    """Splits of a source that a task reads, with their positions; raises StateBroken."""
    for split, position, _ in saved_splits(data):
        at = load(position) if position else None
        yield OperatorRow("splits", "source", subtask, at, load(split) if split else None)
