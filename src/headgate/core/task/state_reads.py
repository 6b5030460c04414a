"""Point reads of a task's keyed state: asked from outside, answered between two bundles.

Whoever asks comes inside the baton; one mail on the task's own thread answers all that wait, while
no function of the user runs, so that each answer is of one moment. Law: every question is answered
once, at the latest when the task ends, unless nobody waits for it any more; there is a bound on
those that wait for a task that is busy.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.base.inspections import ReadState, StateValues
from headgate.core.chain.chain import Chain
from headgate.core.chain.outputs import Loan
from headgate.core.task.mailbox import NORMAL, Mailbox

MOST_WAITING: Final = 256

AnswerRead: TypeAlias = Callable[[StateValues | str], None]
"""Takes what was found, or why the task could not be looked at; called inside the baton."""


class StateReads:
    """Of one task."""

    def __init__(
        self, chain: Chain, mailbox: Mailbox, loan: Loan, now_ms: Callable[[], float]
    ) -> None:
        self._chain = chain
        self._mailbox = mailbox
        self._loan = loan
        self._now_ms = now_ms
        self._waiting: deque[tuple[ReadState, float, AnswerRead]] = deque()
        self._mailed = False

    def ask(self, question: ReadState, answer: AnswerRead) -> None:
        """Somebody wants to know (inside the baton)."""
        if len(self._waiting) >= MOST_WAITING:
            answer(f"{MOST_WAITING} other reads of its state wait already; ask again later")
            return
        self._waiting.append((question, self._now_ms() + question.within_ms, answer))
        if not self._mailed:
            self._mailed = self._mailbox.put("read state", self._read, NORMAL)
            if not self._mailed:
                self.close("it has ended")

    def close(self, problem: str) -> None:
        """The task has ended (inside the baton)."""
        self._mailed = False
        waiting, self._waiting = self._waiting, deque()
        for _, _, answer in waiting:
            answer(problem)

    def _read(self) -> None:
        self._mailed = False
        waiting, self._waiting = self._waiting, deque()
        now_ms = self._now_ms()
        asked = [(question, answer) for question, until, answer in waiting if until > now_ms]
        with self._loan:  # values may be of the user's classes
            found = [self._values(question) for question, _ in asked]
        for (_, answer), values in zip(asked, found, strict=True):
            answer(values)

    def _values(self, question: ReadState) -> StateValues:
        reader = self._chain.state_reader(question.uid)
        if reader is None:
            return StateValues(problem="it keeps no state by key; call key_by() before it")
        return reader.read(question.state, question.keys)
