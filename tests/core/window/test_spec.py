"""A plan travels to its task by pickle."""

import pickle

from headgate.functions.assigners import (
    CountSlidingWindowAssigner,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.evictors import CountEvictor, TimeEvictor
from headgate.functions.triggers import CountTrigger, PurgingTrigger
from tests.core.window.kit import LISTED, SUMS, Lab, plan


def test_a_plan_does_the_same_after_pickling() -> None:
    plans = [
        plan(TumblingEventTimeWindows(10), SUMS),
        plan(SlidingEventTimeWindows(10, 5), LISTED, evictor=CountEvictor(2), lateness_ms=3),
        plan(EventTimeSessionWindows(5), SUMS, late_tag="late"),
        plan(EventTimeSessionWindows.with_dynamic_gap(len), LISTED, evictor=TimeEvictor(3)),
        plan(CountSlidingWindowAssigner(3, 2), SUMS),
        plan(TumblingEventTimeWindows(10), SUMS, trigger=PurgingTrigger(CountTrigger(2))),
    ]
    results = []
    for window_plan in plans:
        labs = [Lab(window_plan), Lab(pickle.loads(pickle.dumps(window_plan)))]
        for lab in labs:
            lab.send(*[(("ab"[n % 2], n), 3 * n) for n in range(12)])
            lab.end()
        first, second = [lab.taken() for lab in labs]
        assert first == second
        results.append(len(first))
    assert all(results)
