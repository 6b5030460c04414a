"""Who waits for inspections of a run's tasks.

Law: every future is answered exactly once: with what was found, or with ``InspectionFailed``, which
says why nothing was: the task or its process is gone, the run has ended or restarts, or the time is
over. Answers are returned as calls, to be made without the run's lock.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, TypeAlias

from headgate.base.errors import InspectionFailed
from headgate.base.inspections import MAX_SECONDS, Found, Inspection, ReadState, SampleStacks
from headgate.base.messages import Inspected

MAX_WAITING: Final = 256
"""Questions of one run that may be open at a time."""

BUSY: Final = (
    "it has not answered within {seconds:g} s: state is read between two bundles, and the task is "
    "busy with one, in a function of the user's most likely; `headgate flame` shows where"
)

Calls: TypeAlias = list[Callable[[], None]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: str
    slot: int
    deadline_ms: float
    timeout_s: float
    future: "Future[Found]"
    reads_state: bool = False

    def refuse(self, problem: str) -> Callable[[], None]:
        return partial(self.future.set_exception, InspectionFailed(self.task, problem))


class InspectionFutures:
    """Questions of one run that wait for answers; used by one thread at a time."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._ids = count(1)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MAX_WAITING

    def asked(
        self, task: str, slot: int, what: Inspection, timeout_s: float, now_ms: float
    ) -> tuple[int, "Future[Found]"]:
        """A question is about to be sent: its number, and who gets the answer.

        The time counts from the end of what the question itself takes.
        """
        takes_s = min(what.seconds, MAX_SECONDS) if isinstance(what, SampleStacks) else 0.0
        future: Future[Found] = Future()
        future.set_running_or_notify_cancel()  # so that nobody can cancel it, and the answer fits
        number = next(self._ids)
        deadline_ms = now_ms + (takes_s + timeout_s) * 1000
        reads_state = isinstance(what, ReadState)
        self._waiting[number] = _Waiting(task, slot, deadline_ms, timeout_s, future, reads_state)
        return number, future

    def answered(self, answer: Inspected) -> Calls:
        """A task manager has answered; late answers are dropped."""
        waiting = self._waiting.pop(answer.id, None)
        if waiting is None:
            return []
        if answer.found is None:
            return [waiting.refuse(answer.problem)]
        return [partial(waiting.future.set_result, answer.found)]

    def slot_lost(self, slot: int, problem: str) -> Calls:
        """The task manager of a slot is gone."""
        lost = [number for number, waiting in self._waiting.items() if waiting.slot == slot]
        why = f"its task manager was lost: {problem}"
        return [self._waiting.pop(number).refuse(why) for number in lost]

    def line_lost(self, slot: int) -> Calls:
        """The line is gone on which reads of state were asked for and answered."""
        lost = [
            number
            for number, waiting in self._waiting.items()
            if waiting.slot == slot and waiting.reads_state
        ]
        why = "the connection for reads of its state was lost"
        return [self._waiting.pop(number).refuse(why) for number in lost]

    def run_ended(self, problem: str) -> Calls:
        """The run has ended or restarts."""
        waiting, self._waiting = self._waiting, {}
        return [question.refuse(problem) for question in waiting.values()]

    @property
    def next_deadline_ms(self) -> float | None:
        return min((waiting.deadline_ms for waiting in self._waiting.values()), default=None)

    def tick(self, now_ms: float) -> Calls:
        """Time has passed."""
        late = [
            number for number, waiting in self._waiting.items() if waiting.deadline_ms <= now_ms
        ]
        calls: Calls = []
        for number in late:
            waiting = self._waiting.pop(number)
            why = f"its task manager has not answered within {waiting.timeout_s:g} s"
            if waiting.reads_state:
                why = BUSY.format(seconds=waiting.timeout_s)
            calls.append(waiting.refuse(why))
        return calls


def refused(task: str, problem: str) -> "Future[Found]":
    """The answer to a question that is not even sent."""
    future: Future[Found] = Future()
    future.set_exception(InspectionFailed(task, problem))
    return future
