"""What windows hold, compared with what they held when the checkpoint was taken.

Law: nothing is left behind that no keeper would find again, and nothing is taken for what it is not
(a record for an accumulator, a session for a tumbling window): such a change is refused when the
operator opens. Records and accumulators whose declared type has become wider are rewritten.
"""

from collections.abc import Callable
from typing import Final

from headgate.base.elements import Record
from headgate.base.state_shapes import OPERATOR, StateShape
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.state.backend import StateSpec
from headgate.core.state.type_changes import Change, converter, shape_of
from headgate.core.window.contents import FOLDED, LISTED
from headgate.core.window.session_keeper import SESSIONS
from headgate.core.window.sliced import FIRED, OPEN
from headgate.core.window.spec import Aggregated, Listed, Reduced, WindowPlan
from headgate.functions.assigners import (
    CountSlidingWindowAssigner,
    GlobalWindows,
    MergingWindowAssigner,
)
from headgate.functions.evictors import TimestampedValue

NAME: Final = "contents of windows"

Convert = Callable[[Record], Record]


def settle_contents(plan: WindowPlan, record_type: object, room: KeyedContext) -> None:
    """Before windows are kept: make of what was restored what they hold now.

    ``record_type``: declared of the records; None: nothing. Raises StateChanged.
    """
    contents, type_info = plan.contents, record_type
    if isinstance(contents, Aggregated) and plan.evictor is None:
        type_info = contents.accumulator_type
    shape = StateShape(NAME, _kind(plan), (shape_of(type_info),), OPERATOR)
    before = room.shapes.before(NAME, OPERATOR)
    if room.shapes.compare(shape) is Change.REWRITTEN:
        convert = converter(before[0].types[0], type_info)
        try:
            _rewrite(room, convert, isinstance(contents, Listed))
        except TypeError as error:
            room.shapes.refuse(shape, str(before[0]), str(error))
    room.shapes.enter(shape)


def _kind(plan: WindowPlan) -> str:
    what = _held(plan)
    match plan.assigner:
        case MergingWindowAssigner():
            return f"{what} in windows that merge"
        case GlobalWindows():
            return f"{what} in global windows"
        case CountSlidingWindowAssigner():
            return f"{what} in windows by count"
        case _:
            return f"{what} in windows"


def _held(plan: WindowPlan) -> str:
    if plan.evictor is not None:
        return "all records with their times"
    match plan.contents:
        case Reduced():
            return "reduced records"
        case Aggregated():
            return "accumulators"
        case Listed():
            return "all records"


def _rewrite(room: KeyedContext, convert: Convert, listed: bool) -> None:
    """Every state that a keeper may have left."""

    def whole(content: Record) -> Record:
        return list(map(convert, content)) if listed else convert(content)

    def element(content: Record) -> Record:
        if isinstance(content, TimestampedValue):
            return TimestampedValue(convert(content.value), content.timestamp)
        return convert(content)

    def sessions(content: Record) -> Record:
        return [[start, end, whole(value)] for start, end, value in content]

    for spec, change in ((FOLDED, convert), (OPEN, whole), (FIRED, whole), (SESSIONS, sessions)):
        _rewrite_values(room, spec, change)
    records = room.backend.list_state(LISTED)
    _each(room, LISTED, lambda: records.update(list(map(element, records.get()))))


def _rewrite_values(room: KeyedContext, spec: StateSpec, change: Convert) -> None:
    value = room.backend.value_state(spec)
    _each(room, spec, lambda: value.update(change(value.value())))


def _each(room: KeyedContext, spec: StateSpec, rewrite: Callable[[], None]) -> None:
    cursor = room.cursor
    key, namespace = cursor.key, cursor.namespace
    try:
        for cursor.namespace, cursor.key in room.backend.places(spec):
            rewrite()
    finally:
        cursor.key, cursor.namespace = key, namespace
