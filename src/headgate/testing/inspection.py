"""Looks into the tasks of a program under test: state by key, and timers that have not fired."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.errors import HarnessMisused
from headgate.base.moved import loads
from headgate.core.state.reading import StateReader
from headgate.functions.context import TimeDomain
from headgate.testing.world import ProgramWorld

_NOTHING: Final[dict[str, Any]] = {"list": list, "map": dict}


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A timer that has not fired."""

    time_ms: int
    key: Any
    domain: TimeDomain = TimeDomain.EVENT_TIME


def read_state(world: ProgramWorld, name: str, key: object, operator: str | None) -> Any:
    """What a state holds at a key; raises HarnessMisused if there is no such state."""
    problems: dict[str, None] = {}
    kind: str | None = None
    for title, reader in _readers(world, operator):
        values = reader.read(name, [pickle.dumps(key)])
        if values.problem:
            problems[f"operator {title!r}: {values.problem}"] = None
            continue
        kind, (found,) = values.kind, values.values
        if found.problem:
            raise HarnessMisused(f"operator {title!r}, state {name!r}: {found.problem}")
        if found.data is not None:
            return loads(found.data)
    if kind is not None:
        return _NOTHING.get(kind, lambda: None)()
    raise HarnessMisused("; ".join(problems) or f"no operator has a state {name!r}")


def pending_timers(
    world: ProgramWorld, key: object = None, operator: str | None = None
) -> list[PendingTimer]:
    """Those that are due first in front; ``key`` None: of all keys."""
    found = [
        PendingTimer(*timer)
        for _, reader in _readers(world, operator)
        for timer in reader.timers()
        if key is None or timer[1] == key
    ]
    return sorted(found, key=lambda timer: (timer.time_ms, timer.domain.value, repr(timer.key)))


def _readers(world: ProgramWorld, operator: str | None) -> Iterator[tuple[str, StateReader]]:
    """Of each task of each operator that keeps state by key."""
    vertices = world.driver.vertices
    known: dict[str, None] = {}
    is_found = False
    for task in world.running:
        for spec in vertices[task.order.vertex].chain.operators:
            if operator is not None and operator not in (spec.name, spec.uid):
                known[spec.name] = None
                continue
            is_found = True
            reader = task.task.state_reader(spec.uid)
            if reader is not None:
                yield spec.name, reader
            elif operator is not None:
                raise HarnessMisused(
                    f"operator {operator!r} keeps no state by key; call key_by() before it"
                )
    if operator is not None and not is_found:
        raise HarnessMisused(
            f"there is no operator {operator!r}; there are {', '.join(map(repr, known))}"
        )
