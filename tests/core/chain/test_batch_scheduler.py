"""Batches of calls: when they begin, and what becomes of every outcome."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.figures import BatchFigures
from headgate.functions.async_functions import Batching, CallCache, RateLimit, RateLimited
from headgate.functions.time import Time
from tests.core.chain.batch_kit import Desk, Negate
from tests.core.chain.kit import StubRetryStrategy

WAIT = Time.milliseconds(10)


# When calls begin.


def test_a_full_batch_begins_at_once_and_the_rest_after_its_wait() -> None:
    desk = Desk(None, Batching(2, WAIT))
    desk.submit(1, 2, 3)
    assert desk.values() == [[1, 2]]
    assert desk.scheduler.wake_ms == 10
    desk.wake()
    assert desk.values() == [[1, 2], [3]]
    desk.answer()
    desk.answer()
    assert desk.outcomes() == {1: -1, 2: -2, 3: -3}


def test_the_cost_of_records_closes_batches() -> None:
    desk = Desk(None, Batching(10, WAIT, max_cost=10))
    desk.submit(4, 5, 3)
    assert desk.values() == [[4, 5]]


def test_batches_grow_while_all_calls_are_taken() -> None:
    desk = Desk(None, Batching(4, Time.milliseconds(0), max_calls=1))
    desk.submit(1)
    desk.submit(2)
    desk.submit(3)
    assert desk.values() == [[1]]
    desk.answer()
    assert desk.values() == [[2, 3]]


def test_batches_grow_while_they_wait_for_the_rate_limit() -> None:
    desk = Desk(
        None,
        Batching(4, Time.milliseconds(0)),
        rate_limit=RateLimit(10, burst=Time.milliseconds(0)),
    )
    desk.submit(1)
    desk.submit(2)
    desk.submit(3)
    assert desk.values() == [[1]]
    desk.advance(60)
    desk.submit(4)
    assert desk.values() == [[1]]
    desk.wake()
    assert desk.now_ms == 100
    assert desk.values() == [[1], [2, 3, 4]]
    figures = desk.scheduler.figures(desk.now_ms)
    assert (figures.calls, figures.records, figures.throttled_ms) == (2, 4, 100)


def test_a_rate_limit_is_shared_by_the_tasks_of_an_operator() -> None:
    limit = RateLimit(10, burst=Time.milliseconds(0))
    desk = Desk(None, Batching(1), rate_limit=limit, parallelism=5)
    desk.submit(1, 2)
    desk.wake()
    assert desk.now_ms == 500


def test_throttled_time_is_counted_while_it_lasts() -> None:
    desk = Desk(None, Batching(1), rate_limit=RateLimit(10, burst=Time.milliseconds(0)))
    desk.submit(1, 2)
    assert desk.scheduler.figures(40).throttled_ms == 40


def test_the_end_of_the_input_begins_what_waits() -> None:
    desk = Desk(None, Batching(10, Time.hours(1)))
    desk.submit(1, 2)
    assert desk.called == []
    desk.scheduler.input_ended()
    desk.advance()
    assert desk.values() == [[1, 2]]


# Outcomes of calls.


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (7, "returned a value of type int; return a list with one result for each of the 2"),
        ("ab", "returned a value of type str; return a list"),
        ({1: 1, 2: 2}, "returned a value of type dict; return a list"),
        ({1, 2}, "returned a value of type set; return a list"),
        ([1], "returned 1 results; return a list with one result for each of the 2 values"),
        ([1, 2, 3], "returned 3 results; return a list"),
        ((value for value in "ab"), "returned a value of type generator; return a list"),
    ],
)
def test_a_wrong_answer_fails_its_records_with_what_to_return(found: Any, text: str) -> None:
    desk = Desk(None, Batching(2))
    desk.submit(1, 2)
    desk.answer(found)
    for slot in desk.answers:
        assert f"async_invoke_batch() of Negate {text}" in str(slot.error)


def test_none_is_no_answer() -> None:
    desk = Desk(None, Batching(1))
    desk.submit(1)
    desk.scheduler.succeeded(desk.called.pop(), None, 0.0)
    desk.advance()
    assert "returned None; return a list" in str(desk.answers[0].error)


def test_an_exception_in_the_place_of_a_result_fails_only_its_record() -> None:
    desk = Desk(None, Batching(3))
    desk.submit(1, 2, 3)
    desk.answer([-1, ValueError("too long"), -3])
    assert desk.outcomes() == {1: -1, 2: "too long", 3: -3}
    assert desk.scheduler.figures(0).failures == 1


def test_a_result_belongs_to_its_receiver() -> None:
    desk = Desk(None, Batching(1))
    mine = [1]
    desk.submit(1)
    desk.answer([mine])
    mine.append(2)
    assert desk.answers[0].results == [[1]]


def test_a_result_that_cannot_be_copied_fails_its_record() -> None:
    desk = Desk(None, Batching(2))
    desk.submit(1, 2)
    desk.answer([(lock for lock in ()), -2])
    assert "cannot be copied" in str(desk.outcomes()[1])
    assert desk.outcomes()[2] == -2


@pytest.mark.parametrize("splits", [True, False])
def test_an_exit_of_the_user_fails_all_records_and_is_not_tried_again(splits: bool) -> None:
    retry = StubRetryStrategy(9, error=lambda e: True)
    desk = Desk(None, Batching(2), retry, splits_failed=splits)
    desk.submit(1, 2)
    error = SystemExit(3)
    desk.fail(error)
    assert [slot.error for slot in desk.answers] == [error, error]
    assert desk.called == []


# Retries.


def test_a_failed_batch_is_called_again_after_the_pause() -> None:
    desk = Desk(None, Batching(2), StubRetryStrategy(1, error=lambda e: True))
    desk.submit(1, 2)
    desk.fail(ConnectionError("busy"))
    assert desk.called == []
    desk.wake()
    assert (desk.now_ms, desk.values()) == (10, [[1, 2]])
    desk.fail(ConnectionError("busy"))
    assert desk.outcomes() == {1: "busy", 2: "busy"}
    assert desk.scheduler.figures(0).retries == 1


def test_a_result_that_is_not_good_enough_is_asked_for_again() -> None:
    desk = Desk(None, Batching(1), StubRetryStrategy(5, result=lambda found: found == [0]))
    desk.submit(1)
    desk.answer([0])
    desk.wake()
    desk.answer([-1])
    assert desk.outcomes() == {1: -1}


def test_of_a_batch_only_the_records_that_failed_are_called_again() -> None:
    retry = StubRetryStrategy(1, error=lambda e: isinstance(e, ConnectionError))
    desk = Desk(None, Batching(4), retry)
    desk.submit(1, 2, 3, 4)
    desk.answer([-1, ConnectionError("busy"), ValueError("bad"), ConnectionError("busy")])
    assert desk.outcomes() == {1: -1, 3: "bad"}
    desk.wake()
    assert desk.values() == [[2, 4]]
    desk.answer()
    assert desk.outcomes() == {1: -1, 2: -2, 3: "bad", 4: -4}


def test_a_strategy_that_fails_fails_the_batch() -> None:
    desk = Desk(None, Batching(2), StubRetryStrategy(1, error=lambda e: 1 // 0))
    desk.submit(1, 2)
    desk.fail(ConnectionError("busy"))
    assert [type(slot.error) for slot in desk.answers] == [ZeroDivisionError] * 2
    desk.submit(3, 4)
    desk.answer([-3, ConnectionError("busy")])
    assert type(desk.answers[-1].error) is ZeroDivisionError


# Halving.


def test_a_failed_batch_is_halved_until_the_bad_record_is_found() -> None:
    desk = Desk(None, Batching(8), splits_failed=True)
    desk.submit(*range(8))
    seen = []
    while desk.called:
        values = desk.values()[0]
        seen.append(values)
        if 5 in values:
            desk.fail(ValueError(f"bad among {values}"))
        else:
            desk.answer()
    assert desk.outcomes() == {**{n: -n for n in range(8)}, 5: "bad among [5]"}
    assert len(seen) == 7
    assert desk.scheduler.figures(0).splits == 3


# Refusals of the server.


def test_nothing_begins_until_the_server_wants_calls_again() -> None:
    desk = Desk(None, Batching(2), timeout_ms=1000)
    desk.submit(1, 2)
    desk.advance(400)
    desk.fail(RateLimited(5))
    desk.submit(3, 4)
    assert desk.called == []
    desk.wake()
    assert (desk.now_ms, desk.values()) == (5400, [[1, 2], [3, 4]]), "the refused batch is first"
    assert desk.cancelled == [], "the pause does not count towards the timeout"
    desk.advance(599)
    assert desk.cancelled == []
    desk.wake()
    assert desk.cancelled[0].values() == [1, 2], "but the time of the first call does"
    figures = desk.scheduler.figures(desk.now_ms)
    assert (figures.refused, figures.retries, figures.throttled_ms) == (1, 0, 5000)


def test_the_server_may_refuse_single_records() -> None:
    desk = Desk(None, Batching(3))
    desk.submit(1, 2, 3)
    desk.answer([-1, RateLimited("2"), RateLimited("2")])
    assert desk.outcomes() == {1: -1}
    desk.wake()
    assert (desk.now_ms, desk.values()) == (2000, [[2, 3]])


# Timeouts.


def test_a_call_that_takes_too_long_is_answered_by_timeout() -> None:
    class Patient(Negate):
        def timeout(self, value: int) -> int:
            if value == 2:
                raise TimeoutError("too slow for 2")
            return 1000 + value

    desk = Desk(Patient(), Batching(2))
    desk.submit(1, 2)
    (batch,) = desk.called
    desk.wake()
    assert desk.cancelled == [batch]
    assert desk.outcomes() == {1: 1001, 2: "too slow for 2"}
    desk.scheduler.succeeded(batch, [-1, -2], desk.now_ms)
    desk.advance()
    assert len(desk.answers) == 2, "what comes later is dropped"
    assert desk.scheduler.figures(0).in_flight == 0


def test_the_timeout_covers_retries_and_their_pauses() -> None:
    retry = StubRetryStrategy(9**9, error=lambda e: True)
    desk = Desk(None, Batching(1), retry, timeout_ms=25)
    desk.submit(1)
    desk.fail(ConnectionError())
    desk.wake()
    desk.fail(ConnectionError())
    desk.wake()
    assert desk.now_ms == 25
    assert "timed out for the record 1" in str(desk.answers[0].error)
    assert desk.cancelled == [], "nothing was called at that moment"
    desk.advance(1000)
    assert desk.called == []


def test_waiting_for_the_limit_never_times_out() -> None:
    limit = RateLimit(1, burst=Time.milliseconds(0))
    desk = Desk(None, Batching(1), rate_limit=limit, timeout_ms=100)
    desk.submit(1, 2, 3)
    for _ in range(3):
        desk.answer()
        if len(desk.answers) < 3:
            desk.wake()
    assert desk.outcomes() == {1: -1, 2: -2, 3: -3}
    assert desk.now_ms == 2000


def test_deadlines_of_calls_that_have_ended_are_not_kept() -> None:
    desk = Desk(None, Batching(1), timeout_ms=1e6)
    for number in range(1000):
        desk.submit(number)
        desk.answer()
    assert len(desk.scheduler._deadlines) < 100


# What a record costs.


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (-1, "returned -1 for the record -1; it must return a number of 0 or more"),
        (float("nan"), "returned nan for the record nan"),
        (float("inf"), "returned inf"),
        ("x", "returned 'x' for the record 'x'"),
        (None, "returned None"),
    ],
)
def test_a_cost_that_is_none_fails_only_its_record(record: Any, text: str) -> None:
    desk = Desk(None, Batching(2, max_cost=10))
    desk.submit(1, record, 2)
    assert f"cost() of Negate {text}" in str(desk.answers[0].error)
    assert desk.values() == [[1, 2]]


def test_a_cost_that_raises_fails_only_its_record() -> None:
    class Counts(Negate):
        def cost(self, value: Any) -> float:
            return 1 / value  # type: ignore[no-any-return]

    desk = Desk(Counts(), Batching(2, max_cost=10))
    desk.submit(0, 1, 2)
    error = desk.answers[0].error
    assert "cost() of Counts raised ZeroDivisionError: division by zero for the record 0" in str(
        error
    )
    assert isinstance(error.__cause__, ZeroDivisionError)  # type: ignore[union-attr]
    assert desk.values() == [[1, 2]]


def test_cost_is_not_asked_for_where_nothing_depends_on_it() -> None:
    class Refuses(Negate):
        def cost(self, value: Any) -> float:
            raise AssertionError("nobody wants to know")

    desk = Desk(Refuses(), Batching(1), rate_limit=RateLimit(5))
    desk.submit(1)
    desk.answer()
    assert desk.outcomes() == {1: -1}


# The cache.


def test_a_key_is_called_for_once_while_its_result_is_young() -> None:
    cache = CallCache(Time.milliseconds(100), key=lambda n: n % 10)
    desk = Desk(None, Batching(1), cache=cache)
    first, second = desk.submit(1, 11)
    assert desk.values() == [[1]]
    desk.answer([[7]])
    assert (first.results, second.results) == ([[7]], [[7]])
    assert first.results[0] is not second.results[0]  # type: ignore[index]
    (third,) = desk.submit(21)
    assert third.results == [[7]]
    desk.advance(100)
    desk.submit(31)
    assert desk.values() == [[31]]
    figures = desk.scheduler.figures(0)
    assert (figures.cache_hits, figures.cache_misses) == (2, 2)


def test_errors_and_timeouts_are_not_kept_but_shared() -> None:
    class Late(Negate):
        def timeout(self, value: Any) -> Any:
            return "late"

    desk = Desk(Late(), Batching(1), cache=CallCache(Time.hours(1), key=lambda n: 0))
    first, second = desk.submit(1, 2)
    desk.fail(ValueError("no"))
    assert first.error is second.error is not None
    third, fourth = desk.submit(3, 4)
    desk.advance(1000)
    assert (third.results, fourth.results) == (["late"], ["late"])
    desk.submit(5)
    assert desk.values() == [[5]]


@pytest.mark.parametrize("key", [None, lambda record: record["id"]])
def test_a_record_without_a_usable_key_fails_alone(key: Any) -> None:
    desk = Desk(None, Batching(1), cache=CallCache(Time.hours(1), key))
    (slot,) = desk.submit({"a": 1})
    assert "cache key of the record {'a': 1} cannot be used" in str(slot.error)
    assert desk.called == []


def test_all_figures_are_reported() -> None:
    desk = Desk(None, Batching(1))
    desk.submit(1)
    assert desk.scheduler.figures(0) == BatchFigures("embed", 1, 1, 1)


class SchedulerTwin(RuleBasedStateMachine):
    """Whatever happens, every record is answered once, and calls stay within their limits."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(
            None,
            Batching(3, WAIT, max_cost=12, max_calls=2),
            StubRetryStrategy(1, error=lambda e: isinstance(e, ConnectionError)),
            rate_limit=RateLimit(100, 2000, Time.milliseconds(20)),
            cache=CallCache(Time.milliseconds(50), lambda n: n // 3),
            timeout_ms=200,
            splits_failed=True,
        )
        self.number = 0

    @rule(count=st.integers(0, 6))
    def records_come(self, count: int) -> None:
        self.desk.submit(*range(self.number, self.number + count))
        self.number += count

    @rule(ms=st.integers(0, 60))
    def time_passes(self, ms: int) -> None:
        self.desk.advance(ms)

    @precondition(lambda self: self.desk.scheduler.wake_ms is not None)
    @rule()
    def timer_fires(self) -> None:
        self.desk.wake()

    @precondition(lambda self: bool(self.desk.called))
    @rule(place=st.integers(0, 1), how=st.integers(0, 7))
    def call_ends(self, place: int, how: int) -> None:
        desk = self.desk
        place %= len(desk.called)
        values = desk.values()[place]
        match how:
            case 0:
                desk.fail(ConnectionError(), place)
            case 1:
                desk.fail(ValueError(), place)
            case 2:
                desk.fail(RateLimited(0.03), place)
            case 3:
                desk.answer([1], place)
            case 4:
                kinds = (ConnectionError(), ValueError(), RateLimited(0.01), 5)
                desk.answer([kinds[value % 4] for value in values], place)
            case _:
                desk.answer(None, place)

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        desk = self.desk
        assert len({id(slot) for slot in desk.answers}) == len(desk.answers)
        assert len(desk.called) == desk.scheduler.figures(0).in_flight <= 2
        for batch in desk.called:
            assert len(batch.calls) <= 3
            assert batch.cost <= 12 or len(batch.calls) == 1

    @invariant()
    def somebody_goes_on(self) -> None:
        desk = self.desk
        if len(desk.answers) < len(desk.slots):
            assert desk.called or desk.scheduler.wake_ms is not None, "records wait for nothing"

    def teardown(self) -> None:
        desk = self.desk
        for _ in range(10_000):
            if len(desk.answers) == len(desk.slots):
                break
            if desk.called:
                desk.answer()
            else:
                desk.wake()
        assert sorted(slot.record for slot in desk.answers) == list(range(self.number))


TestSchedulerTwin = SchedulerTwin.TestCase
