"""Who asks for an inspection is answered exactly once, however the inspection ends."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.errors import InspectionFailed
from headgate.base.inspections import MAX_SECONDS, ChannelTable, ReadChannels, SampleStacks
from headgate.base.messages import Inspected
from headgate.host.driver.inspections import Calls, InspectionFutures, refused

FOUND = ChannelTable(0, ())


def make(calls: Calls) -> None:
    for call in calls:
        call()


def test_an_answer_reaches_who_has_asked() -> None:
    futures = InspectionFutures()
    first, unanswered = futures.asked("1.0", 0, ReadChannels(), 5, 0)
    second, answered = futures.asked("1.1", 0, ReadChannels(), 5, 0)
    assert first != second
    make(futures.answered(Inspected("run", second, "1.1", FOUND)))
    assert answered.result(0) == FOUND and not unanswered.done()


def test_a_problem_is_told_with_the_task() -> None:
    futures = InspectionFutures()
    number, future = futures.asked("1.0", 0, ReadChannels(), 5, 0)
    make(futures.answered(Inspected("run", number, "1.0", None, "it has ended")))
    with pytest.raises(InspectionFailed, match="task 1.0 cannot be inspected: it has ended"):
        future.result(0)


def test_the_time_counts_from_the_end_of_what_the_question_itself_takes() -> None:
    futures = InspectionFutures()
    _, future = futures.asked("1.0", 0, SampleStacks(seconds=3), 2, 1_000)
    assert futures.next_deadline_ms == 6_000
    assert futures.tick(5_999) == []
    make(futures.tick(6_000))
    with pytest.raises(InspectionFailed, match="has not answered within 2 s"):
        future.result(0)
    assert futures.next_deadline_ms is None


def test_nobody_waits_longer_than_the_longest_sampling() -> None:
    futures = InspectionFutures()
    futures.asked("1.0", 0, SampleStacks(seconds=1e9), 2, 0)
    assert futures.next_deadline_ms == (MAX_SECONDS + 2) * 1_000


def test_a_refusal_needs_no_task_manager() -> None:
    with pytest.raises(InspectionFailed, match="no such task"):
        refused("9.9", "the job has no such task").result(0)


class InspectionsTwin(RuleBasedStateMachine):
    """Answers, losses, deadlines and ends come in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.futures = InspectionFutures()
        self.asked: list = []
        self.answers = 0
        self.now_ms = 0.0

    @precondition(lambda self: not self.futures.is_full)
    @rule(slot=st.integers(0, 2), timeout_s=st.integers(1, 5))
    def somebody_asks(self, slot: int, timeout_s: int) -> None:
        number, future = self.futures.asked(
            f"0.{slot}", slot, ReadChannels(), timeout_s, self.now_ms
        )
        future.add_done_callback(self._answered)
        self.asked.append((number, slot, self.now_ms + timeout_s * 1_000, future))

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 1_000), found=st.booleans())
    def an_answer_comes(self, which: int, found: bool) -> None:
        number, _, _, future = self.asked[which % len(self.asked)]
        make(self.futures.answered(Inspected("r", number, "0.0", FOUND if found else None, "no")))
        assert future.done()

    @rule(slot=st.integers(0, 2))
    def a_slot_is_lost(self, slot: int) -> None:
        make(self.futures.slot_lost(slot, "killed"))
        assert all(future.done() for _, of, _, future in self.asked if of == slot)

    @rule(ms=st.integers(1, 3_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        make(self.futures.tick(self.now_ms))

    @rule()
    def the_run_ends(self) -> None:
        make(self.futures.run_ended("the run restarts"))
        assert all(future.done() for *_, future in self.asked)

    @invariant()
    def each_is_answered_once_and_in_time(self) -> None:
        done = [future for *_, future in self.asked if future.done()]
        assert self.answers == len(done)
        assert all(future.done() for _, _, at_ms, future in self.asked if at_ms <= self.now_ms)

    def _answered(self, future: object) -> None:
        self.answers += 1


TestInspectionsTwin = InspectionsTwin.TestCase
