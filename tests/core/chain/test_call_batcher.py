"""Batches of records: in order, as large as allowed, due by size, cost and time."""

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import CallBatcher, PricedCall


def priced(*costs: float) -> list[PricedCall]:
    return [(PendingCall(number, None), cost) for number, cost in enumerate(costs)]


def records(batch: list[PricedCall]) -> list[object]:
    return [call.record for call, _ in batch]


def test_a_batch_is_due_when_its_first_record_has_waited() -> None:
    batcher = CallBatcher(10, 20)
    assert batcher.due_ms() is None
    batcher.add(priced(0), 100)
    batcher.add(priced(0), 115)
    assert batcher.due_ms() == 120
    assert len(batcher.take()) == 2
    assert batcher.due_ms() is None


def test_a_full_batch_is_due_at_once_and_the_rest_waits_its_own_time() -> None:
    batcher = CallBatcher(2, 20)
    batcher.add(priced(0), 100)
    batcher.add(priced(0, 0), 110)
    assert batcher.due_ms() == -math.inf
    assert len(batcher.take()) == 2
    assert batcher.due_ms() == 130


def test_the_cost_closes_a_batch_before_the_record_that_does_not_fit() -> None:
    batcher = CallBatcher(10, 20, max_cost=10)
    batcher.add(priced(4, 5, 3, 20, 1), 0)
    assert [records(batcher.take()) for _ in range(4)] == [[0, 1], [2], [3], [4]]
    assert len(batcher) == 0


def test_a_batch_whose_cost_is_reached_waits_for_no_more() -> None:
    batcher = CallBatcher(10, 20, max_cost=10)
    batcher.add(priced(4, 6), 0)
    assert batcher.due_ms() == -math.inf
    assert batcher.cost == 10


def test_at_the_end_of_the_input_nobody_waits() -> None:
    batcher = CallBatcher(10, 20)
    batcher.add(priced(0), 100)
    batcher.input_ended()
    assert batcher.due_ms() == -math.inf
    batcher.take()
    batcher.add(priced(0), 100)
    assert batcher.due_ms() == -math.inf


class BatcherTwin(RuleBasedStateMachine):
    """Against a list that is cut anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = CallBatcher(4, 10, max_cost=9)
        self.waiting: list[tuple[PricedCall, float]] = []
        self.now_ms = 0.0
        self.ended = False

    def expected(self) -> list[PricedCall]:
        batch: list[PricedCall] = []
        for call, _ in self.waiting[:4]:
            if batch and sum(cost for _, cost in [*batch, call]) > 9:
                break
            batch.append(call)
        return batch

    def is_full(self) -> bool:
        batch = self.expected()
        cost = sum(cost for _, cost in batch)
        return len(batch) == 4 or len(batch) < len(self.waiting) or (bool(batch) and cost >= 9)

    @rule(costs=st.lists(st.integers(0, 12), max_size=6))
    def records_come(self, costs: list[float]) -> None:
        calls = priced(*costs)
        self.batcher.add(calls, self.now_ms)
        until_ms = -math.inf if self.ended else self.now_ms + 10
        self.waiting += [(call, until_ms) for call in calls]

    @rule(ms=st.integers(1, 20))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: bool(self.waiting))
    @rule()
    def batch_leaves(self) -> None:
        expected = self.expected()
        assert self.batcher.take() == expected
        del self.waiting[: len(expected)]

    @rule()
    def input_ends(self) -> None:
        self.ended = True
        self.batcher.input_ended()
        self.waiting = [(call, -math.inf) for call, _ in self.waiting]

    @invariant()
    def next_batch_is_known(self) -> None:
        self.batcher.check()
        assert len(self.batcher) == len(self.waiting)
        if self.waiting:
            due_ms = -math.inf if self.is_full() else self.waiting[0][1]
            assert self.batcher.due_ms() == due_ms
            assert self.batcher.cost == sum(cost for _, cost in self.expected())


TestBatcherTwin = BatcherTwin.TestCase
