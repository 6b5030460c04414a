"""Windows of an earlier run: compared with what the operator keeps now, and taken over.

Laws: nothing stays in the state that no keeper would find again, and nothing is taken for what it
is not (a record for an accumulator, a session for a tumbling window): such a change is refused when
the operator opens. Records and accumulators whose declared type has become wider are rewritten.
Windows that were kept in bundles are taken over by a general keeper, if the backend is another one
now; state of a general keeper stays with a general keeper.
"""

from collections.abc import Callable, Iterator
from typing import Final

from headgate.base.checkpoints import OPERATOR, StateShape
from headgate.base.elements import Record
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.migration import Change, converter, shape_of
from headgate.core.window.general import GeneralKeeper
from headgate.core.window.spec import (
    FIRED,
    FOLDED,
    LISTED,
    OPEN,
    SESSIONS,
    Aggregated,
    Listed,
    Reduced,
    WindowPlan,
)
from headgate.functions.assigners import (
    CountSlidingWindowAssigner,
    GlobalWindows,
    MergingWindowAssigner,
)
from headgate.functions.evictors import TimestampedValue
from headgate.functions.window import TimeWindow

NAME: Final = "contents of windows"


Convert = Callable[[Record], Record]


def settle_contents(plan: WindowPlan, record_type: object, keyed: KeyedContext) -> None:
    """Before windows are kept: make of what was restored what they hold now.

    ``record_type``: declared of the records; None: nothing. Raises StateChanged.
    """
    contents, type_info = plan.contents, record_type
    if isinstance(contents, Aggregated) and plan.evictor is None:
        type_info = contents.accumulator_type
    shape = StateShape(NAME, _kind(plan), (shape_of(type_info),), OPERATOR)
    before = keyed.shapes.before(NAME, OPERATOR)
    if keyed.shapes.compare(shape) is Change.REWRITTEN:
        convert = converter(before[0].types[0], type_info)
        try:
            _rewrite(keyed, convert, isinstance(contents, Listed))
        except TypeError as error:
            keyed.shapes.refuse(shape, str(before[0]), str(error))
    keyed.shapes.enter(shape)


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


def _rewrite(keyed: KeyedContext, convert: Convert, listed: bool) -> None:
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
        _rewrite_values(keyed, spec, change)
    records = keyed.backend.list_state(LISTED)
    _each(keyed, LISTED, lambda: records.update(list(map(element, records.get()))))


def _rewrite_values(keyed: KeyedContext, spec: StateSpec, change: Convert) -> None:
    value = keyed.backend.value_state(spec)
    _each(keyed, spec, lambda: value.update(change(value.value())))


def _each(keyed: KeyedContext, spec: StateSpec, rewrite: Callable[[], None]) -> None:
    cursor = keyed.cursor
    key, namespace = cursor.key, cursor.namespace
    try:
        for cursor.namespace, cursor.key in keyed.backend.places(spec):
            rewrite()
    finally:
        cursor.key, cursor.namespace = key, namespace


def holds_general_state(backend: KeyedBackend) -> bool:
    """Whether a general or merging keeper has been here."""
    backend.value_state(FOLDED)
    backend.list_state(LISTED)
    return any(next(backend.places(spec), None) is not None for spec in (FOLDED, LISTED))


def adopt(keyed: KeyedContext, keeper: GeneralKeeper) -> None:
    """Take over what was kept in bundles; the cursor is moved about."""
    for spec, has_fired in ((OPEN, False), (FIRED, True)):
        for window, value in _taken(keyed, spec):
            assert isinstance(window, TimeWindow)
            keeper.adopt(window, value, has_fired)
    for _, sessions in _taken(keyed, SESSIONS):
        for start, end, value in sessions:
            keeper.adopt(TimeWindow(start, end), value, False)
    keyed.cursor.namespace = None


def _taken(keyed: KeyedContext, spec: StateSpec) -> Iterator[tuple[object, Record]]:
    """What the state holds, by namespace, the cursor at its key; it is empty afterwards."""
    state, cursor = keyed.backend.value_state(spec), keyed.cursor
    for namespace, key in list(keyed.backend.places(spec)):
        cursor.key, cursor.namespace = key, namespace
        value = state.value()
        state.clear()
        yield namespace, value
