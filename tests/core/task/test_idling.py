"""When an idle source is polled again: wakes, descriptors, the clock."""

from collections.abc import Callable, Sequence
from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.chain.context import Clock
from headgate.core.task.idling import (
    FUTILE_MS,
    LINGER_MS,
    MOST_FUTILE,
    PAUSE_MS,
    NothingWatched,
    SourceIdling,
)
from tests.core.pair import Timers


class Watch:
    """Descriptors of the test; ``open`` are those that can be watched."""

    def __init__(self) -> None:
        self.open = {3, 4, 5}
        self.watched: set[int] = set()
        self._ready: Callable[[int], None] = lambda descriptor: None

    def start(self, ready: Callable[[int], None]) -> "Watch":
        self._ready = ready
        return self

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        assert not self.watched
        assert len(set(descriptors)) == len(descriptors)
        self.watched = {each for each in descriptors if each in self.open}
        return [each for each in descriptors if each not in self.open]

    def end(self) -> None:
        self.watched = set()

    def readable(self, descriptor: int) -> None:
        assert descriptor in self.watched
        self._ready(descriptor)
        assert not self.watched


class Bench:
    """An idling with everything around it; posted callbacks wait for ``deliver``."""

    def __init__(self, linger_ms: float = LINGER_MS) -> None:
        self.timers = Timers()
        self.clock = Clock(lambda: self.timers.now_ms, lambda: 0, self.timers.later)
        self.watch = Watch()
        self.posted: list[Callable[[], None]] = []
        self.roused = 0
        self.idling = SourceIdling(
            self.clock, self._rouse, self.posted.append, self.watch.start, linger_ms
        )

    def poll_in_vain(self, wait_ms: float = inf, *descriptors: int) -> bool:
        self.idling.poll_begins()
        return self.idling.rest(wait_ms, descriptors)

    def deliver(self) -> None:
        posted, self.posted[:] = list(self.posted), []
        for call in posted:
            call()

    def _rouse(self) -> None:
        self.roused += 1


def test_a_source_is_due_from_the_start() -> None:
    assert Bench().idling.due


def test_a_source_that_waits_for_ever_sets_no_timer() -> None:
    bench = Bench()
    assert bench.poll_in_vain(inf, 3)
    assert bench.timers.pauses == []
    assert not bench.idling.due


def test_wakes_of_a_sleeping_source_rouse_it_once() -> None:
    bench = Bench()
    bench.poll_in_vain()
    for _ in range(1000):
        bench.idling.wake()
    assert bench.idling.due
    assert len(bench.posted) == 1
    bench.deliver()
    assert bench.roused == 1


def test_a_thread_that_wakes_again_and_again_does_so_by_the_clock() -> None:
    bench = Bench()
    for _ in range(1000):
        bench.poll_in_vain()
        bench.idling.wake()
        bench.deliver()
        bench.timers.pass_ms(LINGER_MS / 10)
    assert 90 <= bench.roused <= 102


def test_where_waking_costs_nothing_every_wake_counts_at_once() -> None:
    bench = Bench(linger_ms=0.0)
    for round_number in range(1, 10):
        bench.poll_in_vain()
        bench.idling.wake()
        bench.deliver()
        assert bench.roused == round_number


def test_after_a_pause_the_first_wake_counts_at_once() -> None:
    bench = Bench()
    for round_number in range(1, 10):
        bench.poll_in_vain()
        bench.timers.pass_ms(LINGER_MS)
        bench.idling.wake()
        bench.deliver()
        assert bench.roused == round_number


def test_a_wait_that_ends_before_the_linger_does_is_not_made_longer() -> None:
    bench = Bench()
    bench.poll_in_vain()
    bench.idling.wake()
    bench.deliver()
    bench.poll_in_vain(LINGER_MS / 5)
    bench.timers.pass_ms(LINGER_MS / 5)
    assert bench.idling.due
    assert bench.roused == 2


def test_wakes_of_a_source_that_is_being_polled_cost_nothing_and_are_kept() -> None:
    bench = Bench()
    bench.idling.poll_begins()
    for _ in range(1000):
        bench.idling.wake()
    assert bench.posted == []
    assert not bench.idling.rest(inf), "it must be polled again"
    assert bench.poll_in_vain()


def test_a_wake_before_the_first_poll_and_after_the_end_does_no_harm() -> None:
    bench = Bench()
    bench.idling.wake()
    assert bench.poll_in_vain()
    bench.idling.close()
    bench.idling.wake()
    bench.deliver()
    assert bench.roused == 0


def test_a_wake_that_is_on_its_way_at_the_end_does_no_harm() -> None:
    bench = Bench()
    bench.poll_in_vain()
    bench.idling.wake()
    bench.idling.close()
    bench.deliver()
    assert bench.roused == 0


def test_a_readable_descriptor_rouses_the_source_and_ends_the_watch() -> None:
    bench = Bench()
    bench.poll_in_vain(inf, 3, 4)
    assert bench.watch.watched == {3, 4}
    bench.watch.readable(4)
    assert bench.idling.due
    assert bench.roused == 1


def test_descriptors_are_watched_only_while_the_source_is_idle() -> None:
    bench = Bench()
    bench.poll_in_vain(inf, 3)
    bench.idling.wake()
    bench.idling.poll_begins()
    assert bench.watch.watched == set()


def test_the_end_ends_the_watch() -> None:
    bench = Bench()
    bench.poll_in_vain(50.0, 3)
    bench.idling.close()
    assert bench.watch.watched == set()
    bench.timers.pass_ms(100)
    assert bench.roused == 0


def test_splits_may_share_a_descriptor() -> None:
    bench = Bench()
    bench.poll_in_vain(inf, 3, 3)
    assert bench.watch.watched == {3}


def test_a_descriptor_that_cannot_be_watched_leaves_the_source_to_the_clock() -> None:
    bench = Bench()
    bench.poll_in_vain(inf, 3, 99)
    assert bench.watch.watched == {3}
    bench.timers.pass_ms(PAUSE_MS)
    assert bench.idling.due


def test_a_descriptor_that_is_always_readable_is_watched_with_pauses() -> None:
    bench = Bench()
    polls = 0
    while bench.timers.now_ms < 1000:
        bench.poll_in_vain(inf, 3, 4)
        polls += 1
        if 3 in bench.watch.watched:
            bench.watch.readable(3)
        else:
            assert bench.watch.watched == {4}, "the other one is honest"
            bench.timers.pass_ms(PAUSE_MS)
        assert bench.idling.due
    assert polls <= MOST_FUTILE + 2 * 1000 / PAUSE_MS


def test_a_descriptor_that_keeps_its_promise_after_a_pause_is_trusted_again() -> None:
    bench = Bench()
    for _ in range(MOST_FUTILE):
        bench.poll_in_vain(inf, 3)
        bench.watch.readable(3)
    bench.poll_in_vain(inf, 3)
    assert bench.watch.watched == set()
    bench.timers.pass_ms(PAUSE_MS)
    for _ in range(MOST_FUTILE):
        bench.poll_in_vain(inf, 3)
        bench.timers.pass_ms(FUTILE_MS)
        bench.watch.readable(3)
    bench.poll_in_vain(inf, 3)
    assert bench.watch.watched == {3}


def test_a_descriptor_that_brings_records_in_quick_succession_is_trusted() -> None:
    bench = Bench()
    for _ in range(10 * MOST_FUTILE):
        bench.idling.poll_begins()
        bench.idling.records_came()
        bench.poll_in_vain(inf, 3)
        bench.watch.readable(3)


def test_the_clock_rouses_the_source_when_its_wait_is_over() -> None:
    bench = Bench()
    bench.poll_in_vain(20.0)
    bench.timers.pass_ms(19.9)
    assert not bench.idling.due
    bench.timers.pass_ms(0.1)
    assert bench.idling.due
    assert bench.roused == 1


def test_a_source_that_is_woken_often_keeps_few_timers() -> None:
    bench = Bench()
    for _ in range(1000):
        bench.poll_in_vain(100.0)
        bench.idling.wake()
        bench.timers.pass_ms(0.01)
    assert len(bench.timers.pauses) < 5


def test_a_timer_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    bench = Bench()
    bench.poll_in_vain(10.0)
    bench.idling.wake()
    bench.timers.pass_ms(5)
    bench.poll_in_vain(10.0)
    bench.timers.pass_ms(5)
    assert not bench.idling.due
    bench.timers.pass_ms(5)
    assert bench.idling.due


def test_where_nothing_can_be_watched_descriptors_are_left_to_the_clock() -> None:
    bench = Bench()
    idling = SourceIdling(bench.clock, lambda: None, start_watch=NothingWatched)
    idling.poll_begins()
    assert idling.rest(inf, [3])
    bench.timers.pass_ms(PAUSE_MS)
    assert idling.due
    idling.close()


class IdlingTwin(RuleBasedStateMachine):
    """Law: whatever happens after a poll has begun, the source does not sleep over it."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.polls_between = False
        self.cause = True
        """There is a reason to poll: the source is due, or about to be."""
        self.deadline_ms = inf
        self.roused_before: int | None = None
        """When it began to rest; None: it does not."""

    @rule()
    def a_thread_wakes(self) -> None:
        self.bench.idling.wake()
        self.cause = True

    @rule()
    def posts_are_delivered(self) -> None:
        self.bench.deliver()

    @rule()
    def a_moment_later_whoever_rests_and_is_due_was_roused(self) -> None:
        self.bench.deliver()
        self.bench.timers.pass_ms(LINGER_MS)
        self.bench.deliver()
        if self.roused_before is not None and self.cause:
            assert self.bench.roused > self.roused_before
        self.time_passes(0.0)

    @precondition(lambda self: not self.polls_between)
    @rule()
    def a_poll_begins(self) -> None:
        self.bench.idling.poll_begins()
        self.polls_between, self.cause, self.deadline_ms = True, False, inf
        self.roused_before = None

    @precondition(lambda self: self.polls_between)
    @rule(
        wait_ms=st.sampled_from([0.5, 3.0, 10.0, 70.0, inf]),
        descriptors=st.lists(st.sampled_from([3, 4, 99]), max_size=3),
    )
    def the_poll_finds_nothing(self, wait_ms: float, descriptors: list[int]) -> None:
        self.polls_between = False
        rests = self.bench.idling.rest(wait_ms, descriptors)
        assert rests is not self.cause
        self.roused_before = self.bench.roused if rests else None
        if 99 in descriptors:
            wait_ms = min(wait_ms, PAUSE_MS)
        self.deadline_ms = self.bench.timers.now_ms + wait_ms

    @precondition(lambda self: self.bench.watch.watched)
    @rule()
    def a_descriptor_is_readable(self) -> None:
        self.bench.watch.readable(min(self.bench.watch.watched))
        self.cause = True

    @rule(pause_ms=st.sampled_from([0.1, 2.0, 9.0, 50.0]))
    def time_passes(self, pause_ms: float) -> None:
        self.bench.timers.pass_ms(pause_ms)
        if not self.polls_between and self.bench.timers.now_ms >= self.deadline_ms + 0.1:
            self.cause = True
            assert self.bench.idling.due, "it overslept"

    @invariant()
    def a_reason_to_poll_makes_it_due(self) -> None:
        assert self.bench.idling.due or not self.cause

    @invariant()
    def nothing_is_watched_during_a_poll(self) -> None:
        assert not (self.polls_between and self.bench.watch.watched)


TestIdlingTwin = IdlingTwin.TestCase


def test_a_source_that_has_more_stays_due_while_it_is_not_polled() -> None:
    bench = Bench()
    bench.idling.poll_begins()
    bench.idling.records_came()
    assert bench.idling.due, "its outputs may be full now"
    assert not bench.poll_in_vain(0.0)
    assert bench.idling.due, "it does not wait"


@pytest.mark.parametrize("wait_ms", [1.0, inf])
def test_a_source_that_became_due_inside_the_baton_is_roused(wait_ms: float) -> None:
    bench = Bench()
    bench.poll_in_vain(wait_ms)
    bench.idling.become_due()
    assert bench.idling.due
    assert bench.roused == 1
