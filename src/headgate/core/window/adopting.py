"""State from before a restart that another keeper has left behind.

A snapshot can be taken with one backend and restored into another, so that windows may have been
kept in bundles before and must be kept record by record now. Law: no window is lost. The other way
round nothing is taken over: whoever finds state of a general keeper goes on with that one.
"""

from collections.abc import Iterator

from headgate.base.elements import Record
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.window.contents import FOLDED, LISTED
from headgate.core.window.general import GeneralKeeper
from headgate.core.window.session_keeper import SESSIONS
from headgate.core.window.sliced import FIRED, OPEN
from headgate.functions.window import TimeWindow


def holds_general_state(backend: KeyedBackend) -> bool:
    """Whether a general or merging keeper has been here."""
    backend.value_state(FOLDED)
    backend.list_state(LISTED)
    return any(next(backend.places(spec), None) is not None for spec in (FOLDED, LISTED))


def adopt(room: KeyedContext, keeper: GeneralKeeper) -> None:
    """Take over what was kept in bundles; the cursor is moved about."""
    for spec, has_fired in ((OPEN, False), (FIRED, True)):
        for window, value in _taken(room, spec):
            assert isinstance(window, TimeWindow)
            keeper.adopt(window, value, has_fired)
    for _, sessions in _taken(room, SESSIONS):
        for start, end, value in sessions:
            keeper.adopt(TimeWindow(start, end), value, False)
    room.cursor.namespace = None


def _taken(room: KeyedContext, spec: StateSpec) -> Iterator[tuple[object, Record]]:
    """What the state holds, by namespace, the cursor at its key; it is empty afterwards."""
    state, cursor = room.backend.value_state(spec), room.cursor
    for namespace, key in list(room.backend.places(spec)):
        cursor.key, cursor.namespace = key, namespace
        value = state.value()
        state.clear()
        yield namespace, value
