"""Reads of state wait for the task's thread, and each is answered once."""

import pickle
from typing import Any

from headgate.base.inspections import ReadState, StateValues
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.task.inspection import MOST_WAITING, StateReads
from headgate.core.task.mailbox import Mailbox
from headgate.functions.context import RuntimeContext, TaskInfo
from headgate.functions.state import ValueStateDescriptor
from tests.core.task.kit import Lab


class Keep:
    """Keeps the last value of each key."""

    def open(self, context: RuntimeContext) -> None:
        self.last = context.get_state(ValueStateDescriptor("last", None))

    def process_element(self, value: Any, context: Any) -> list[Any]:
        self.last.update(value)
        return []


class Desk:
    """A chain with an open keyed operator, its mailbox, and the answers that came."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.mailbox = Mailbox()
        self.function = Keep()
        self.chain = lab.chain(lambda: KeyedProcessOperator(self.function, abs))
        info = TaskInfo("job", "keep", 0, 1)
        self.chain.open(lambda spec: OperatorContext(spec.name, info, lambda: 0, uid=spec.uid))
        self.uid = self.chain.operators[0][0].uid
        self.reads = StateReads(self.chain, self.mailbox, lab.loan, lab.clock.now_ms)
        self.answers: list[StateValues | str] = []

    def ask(self, key: int, within_ms: float = 100, uid: str | None = None) -> None:
        keys = (pickle.dumps(key),)
        question = ReadState(self.uid if uid is None else uid, "last", keys, within_ms)
        self.reads.ask(question, self._answered)

    def _answered(self, answer: StateValues | str) -> None:
        assert not self.lab.loan.lent, "answers are sent inside the baton"
        self.answers.append(answer)

    def values(self) -> list[Any]:
        found = []
        for answer in self.answers:
            assert isinstance(answer, StateValues) and not answer.problem
            found += [value.data and pickle.loads(value.data) for value in answer.values]
        return found


def test_one_mail_answers_all_that_wait() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        cursor = desk.chain.head._keyed.cursor  # type: ignore[attr-defined]
        cursor.key = 3
        desk.function.last.update("three")
        desk.ask(3)
        desk.ask(4)
        assert desk.answers == []
        assert desk.mailbox.run() == 1
        assert desk.values() == ["three", None]
        assert cursor.key == 3
        desk.ask(3)
        assert desk.mailbox.run() == 1 and len(desk.answers) == 3
        desk.chain.close()


def test_nobody_is_answered_who_no_longer_waits() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ask(1, within_ms=10)
        desk.ask(2, within_ms=30)
        lab.timers.pass_ms(20)
        desk.mailbox.run()
        assert desk.values() == [None]
        desk.chain.close()


def test_a_task_that_is_busy_lets_so_many_wait() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        for _ in range(MOST_WAITING):
            desk.ask(1)
        assert desk.answers == []
        desk.ask(1)
        assert desk.answers == [
            f"{MOST_WAITING} other reads of its state wait already; ask again later"
        ]
        desk.mailbox.run()
        assert len(desk.answers) == MOST_WAITING + 1
        desk.chain.close()


def test_those_that_wait_at_the_end_learn_of_it_and_so_do_later_ones() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ask(1)
        desk.mailbox.close()
        desk.reads.close("it is finished")
        assert desk.answers == ["it is finished"]
        desk.ask(1)
        assert desk.answers == ["it is finished", "it has ended"]
        desk.chain.close()


def test_an_operator_without_keys_says_so() -> None:
    with Lab() as lab:
        desk = Desk(lab)
        desk.ask(1, uid="another")
        desk.mailbox.run()
        (answer,) = desk.answers
        assert isinstance(answer, StateValues) and "keeps no state by key" in answer.problem
        desk.chain.close()
