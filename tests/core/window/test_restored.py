"""Windows that are restored into a program which keeps others, or other records in them."""

from typing import Any

import pytest

from headgate.api.types.types import Types
from headgate.base.errors import StateChanged
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import Aggregated, WindowPlan
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    count_assigner,
)
from headgate.functions.evictors import CountEvictor
from tests.core.chain.restore_kit import END, OperatorTasks, Send, StoredState
from tests.core.window.kit import LISTED, SUMS, CollectingAggregate, first, plan

TUMBLING = TumblingEventTimeWindows(10)
PLANS = {
    "reduced": plan(TUMBLING, SUMS),
    "aggregated": plan(TUMBLING, Aggregated(CollectingAggregate())),
    "listed": plan(TUMBLING, LISTED),
    "evicted": plan(TUMBLING, LISTED, evictor=CountEvictor.of(5)),
    "sessions": plan(EventTimeSessionWindows(5), SUMS),
    "by count": plan(count_assigner(3, None), SUMS),
    "global": plan(GlobalWindows.create(), SUMS),
}
OLD = Types.ROW_NAMED(["key", "amount"], [Types.STRING(), Types.INT()])
NEW = Types.ROW_NAMED(["key", "amount", "note"], [Types.STRING(), Types.DOUBLE(), Types.STRING()])


def begun(
    window_plan: WindowPlan, record_type: Any = None, bundled: bool = True
) -> list[StoredState]:
    """What a checkpoint stores of an operator with one record in a window."""
    tasks = OperatorTasks(
        lambda: WindowOperator(window_plan, bundled), (first,), types=(None, record_type)
    )
    record = ("a", 1) if record_type is None else record_type.coerced(("a", 1))
    tasks.apply(Send([(record, 1)]))
    states = tasks.stored_states()
    tasks.close()
    return states


def resumed(
    window_plan: WindowPlan,
    states: list[StoredState],
    record_type: Any = None,
    bundled: bool = True,
) -> OperatorTasks:
    make = lambda: WindowOperator(window_plan, bundled)  # noqa: E731
    return OperatorTasks(make, (first,), states=states, types=(None, record_type))


@pytest.mark.parametrize("had", PLANS)
@pytest.mark.parametrize("has", PLANS)
def test_windows_keep_what_they_hold(had: str, has: str) -> None:
    states = begun(PLANS[had])
    if had == has:
        resumed(PLANS[has], states).close()
    else:
        with pytest.raises(StateChanged, match="the state 'contents of windows' of operator 'op'"):
            resumed(PLANS[has], states)


def test_the_size_of_windows_may_change() -> None:
    tasks = resumed(plan(SlidingEventTimeWindows(20, 5), SUMS), begun(PLANS["reduced"]))
    tasks.close()


@pytest.mark.parametrize("bundled", [True, False])
@pytest.mark.parametrize("name", ["reduced", "listed", "evicted", "sessions"])
def test_records_in_windows_get_a_new_field(name: str, bundled: bool) -> None:
    states = begun(PLANS[name], OLD, bundled)
    tasks = resumed(PLANS[name], states, NEW, bundled)
    tasks.apply(END)
    tasks.close()
    (found,) = tasks.seen
    assert repr(NEW.coerced(("a", 1.0, None))) in repr(found)


def test_records_in_windows_that_would_lose_something_are_refused() -> None:
    with pytest.raises(StateChanged, match=r"Types\.ROW_NAMED.* and is .*Types\.INT\(\) now"):
        resumed(PLANS["reduced"], begun(PLANS["reduced"], OLD), Types.INT())


def test_an_accumulator_has_a_type_of_its_own() -> None:
    numbers = plan(TUMBLING, Aggregated(CollectingAggregate(), Types.LIST(Types.INT())))
    texts = plan(TUMBLING, Aggregated(CollectingAggregate(), Types.LIST(Types.STRING())))
    states = begun(numbers)
    resumed(numbers, states).close()
    with pytest.raises(StateChanged, match="accumulators in windows of"):
        resumed(texts, states)
