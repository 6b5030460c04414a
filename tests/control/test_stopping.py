"""How savepoints stop a job: one machine for the driver, whose tasks hold, end or go on."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.checkpoints import Stop
from headgate.base.life_cycle import next_state
from headgate.control.stopping import Stopping, StopState
from headgate.core.task.life_cycle import COURSES, Course, CourseChange

ENDS = [Stop.SUSPEND, Stop.DRAIN]


@pytest.mark.parametrize("how", ENDS)
def test_a_job_stops_with_the_savepoint_when_it_is_stored(how: Stop) -> None:
    stopping = Stopping()
    stopping.begun(1, Stop.NO)
    assert not stopping.refusal
    stopping.begun(2, how)
    assert not stopping.stored(1), "one that was on its way"
    assert stopping.refusal == "the job is ending with another savepoint"
    assert stopping.stored(2)
    assert stopping.state is StopState.STOPPED and stopping.refusal


def test_a_job_goes_on_when_the_savepoint_is_given_up_unless_it_was_drained() -> None:
    stopping = Stopping()
    stopping.begun(1, Stop.SUSPEND)
    assert not stopping.given_up(7), "another one"
    assert not stopping.given_up(1)
    assert not stopping.refusal
    stopping.begun(2, Stop.DRAIN)
    assert stopping.given_up(2)
    assert stopping.refusal == "the job is failing"
    assert not stopping.given_up(2), "that is news once"


@dataclass
class Obedient:
    """A task: it reads barriers while it reads, and obeys in the order of what it is told."""

    course: Course = Course.READING
    holds_for: int = 0
    read: int = 0
    """The last savepoint whose barrier it has read, or that it was told to forget."""
    messages: deque[tuple[str, int]] = field(default_factory=deque)

    def move(self, what: CourseChange) -> None:
        self.course = next_state(COURSES, self.course, what, "a task")


class StoppingTwin(RuleBasedStateMachine):
    """People want savepoints of a job; its tasks hear of them late, each in its own time."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Stopping()
        self.tasks = [Obedient(), Obedient(), Obedient()]
        self.options: dict[int, Stop] = {}  # of all that were begun
        self.open: int | None = None
        self.expected: list[str] = []
        self.answered = 0
        self.wanted = 0

    @rule(stop=st.sampled_from([Stop.NO, *ENDS]))
    def somebody_wants_one(self, stop: Stop) -> None:
        self.wanted += 1
        self.expected.append(f"sp-{self.wanted}")
        self.machine.savepoint_wanted(self.expected[-1], stop)

    @precondition(lambda self: self.open is None and self.machine.wanted)
    @rule()
    def the_next_one_begins_or_all_are_refused(self) -> None:
        if self.machine.refusal:
            directories = self.machine.refuse_wanted()
            assert directories == self.expected
            self.expected.clear()
            self.answered += len(directories)
            return
        directory, stop = self.machine.next_wanted()
        assert directory == self.expected.pop(0)
        self.answered += 1
        self.open = len(self.options) + 1
        self.options[self.open] = stop
        self.machine.begun(self.open, stop)

    @rule(number=st.integers(0, 2))
    def a_barrier_is_read(self, number: int) -> None:
        task = self.tasks[number]
        ahead = [checkpoint for checkpoint in self.options if checkpoint > task.read]
        if not ahead or task.course is not Course.READING:
            return
        task.read = ahead[0]
        if self.options[task.read].ends:
            task.move(CourseChange.BARRIER)
            task.holds_for = task.read

    @rule(number=st.integers(0, 2))
    def a_message_arrives(self, number: int) -> None:
        task = self.tasks[number]
        if not task.messages:
            return
        what, checkpoint = task.messages.popleft()
        task.read = max(task.read, checkpoint)  # a barrier that comes later is ignored
        if task.course is not Course.HELD or task.holds_for != checkpoint:
            return
        if what == "complete":
            task.move(CourseChange.COMPLETE)
        elif self.options[checkpoint] is not Stop.DRAIN:
            task.move(CourseChange.ABORTED)

    @precondition(lambda self: self.open is not None)
    @rule()
    def the_savepoint_is_stored(self) -> None:
        checkpoint = self.open
        assert checkpoint is not None
        if any(task.read < checkpoint for task in self.tasks):
            return  # some have not answered
        self.open = None
        if self.machine.stored(checkpoint):
            self.tell("complete", checkpoint)

    @precondition(lambda self: self.open is not None)
    @rule()
    def the_savepoint_is_given_up(self) -> None:
        checkpoint, self.open = self.open, None
        assert checkpoint is not None
        breaks = self.machine.given_up(checkpoint)
        assert breaks == (self.options[checkpoint] is Stop.DRAIN)
        self.tell("abort", checkpoint)

    def tell(self, what: str, checkpoint: int) -> None:
        for task in self.tasks:
            task.messages.append((what, checkpoint))

    @invariant()
    def nobody_ends_before_the_savepoint_is_stored(self) -> None:
        self.machine.check()
        stopped = [task for task in self.tasks if task.course is Course.STOPPED]
        assert not stopped or self.machine.state is StopState.STOPPED

    @invariant()
    def who_has_heard_everything_does_what_the_driver_wants(self) -> None:
        for task in self.tasks:
            if task.messages or task.read < len(self.options):
                continue
            match self.machine.state:
                case StopState.RUNNING:
                    assert task.course is Course.READING
                case StopState.STOPPED:
                    assert task.course is Course.STOPPED
                case StopState.STOPPING:
                    assert task.course is Course.HELD
                case StopState.BROKEN:
                    assert task.course is not Course.STOPPED

    @invariant()
    def every_wish_is_answered_once(self) -> None:
        assert self.answered + len(self.expected) == self.wanted
        assert [directory for directory, _ in self.machine.wanted] == self.expected


TestStoppingTwin = StoppingTwin.TestCase
