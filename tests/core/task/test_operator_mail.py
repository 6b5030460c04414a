"""What operators ask their task for runs as mail; it can be held for a while, or dropped."""

from typing import Any

from headgate.base.elements import Bundle
from headgate.core.chain.immediate_calls import ImmediateCalls
from headgate.core.chain.operator import Operator
from headgate.core.egress.partition import cannot_wait
from headgate.core.task.mailbox import Mailbox
from headgate.core.task.operator_mail import OperatorMail
from tests.core.task.kit import Lab


class Passing(Operator):
    def process(self, bundle: Bundle, number: int) -> None:
        self.output.collect(bundle)


class Post:
    """A chain that writes to a partition, and the mail of its operator."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.mailbox = Mailbox()
        self.ran: list[Any] = []
        down = lab.writer("down")
        self.reader = lab.open_input("down")
        self.chain = lab.chain(Passing, writers=(down,))
        self.mail = OperatorMail(
            self.chain, lab.loan, lab.clock, self.mailbox, ImmediateCalls, cannot_wait
        )

    def ask(self, what: str) -> None:
        """As an operator does, from outside the baton."""
        self.lab.loan.lend()
        self.mail.later("op", 5, lambda: self._run(what))
        self.lab.loan.regain()

    def _run(self, what: str) -> None:
        assert self.lab.loan.lent, "user code runs outside"
        self.ran.append(what)
        self.chain.head.output.collect(Bundle([what]))


def test_what_a_mail_sends_leaves_with_it() -> None:
    with Lab() as lab:
        post = Post(lab)
        post.ask("a")
        assert post.mailbox.run() == 0
        lab.timers.pass_ms(5)
        assert post.mailbox.run() == 1
        assert post.reader.take(9) == Bundle(["a"])
        post.reader.close()


def test_held_mails_run_afterwards_in_their_order() -> None:
    with Lab() as lab:
        post = Post(lab)
        post.mail.suspend()
        post.ask("a")
        lab.timers.pass_ms(5)
        post.ask("b")
        lab.timers.pass_ms(5)
        post.mailbox.run()
        assert post.ran == []
        post.mail.suspend()
        post.mailbox.run()
        post.mail.resume()
        post.mailbox.run()
        assert post.ran == ["a", "b"]
        post.ask("c")
        lab.timers.pass_ms(5)
        post.mailbox.run()
        assert post.ran == ["a", "b", "c"]
        post.reader.close()


def test_dropped_mails_never_run() -> None:
    with Lab() as lab:
        post = Post(lab)
        post.mail.suspend()
        post.ask("a")
        lab.timers.pass_ms(5)
        post.mailbox.run()
        post.mail.drop()
        post.mail.resume()
        post.ask("b")
        lab.timers.pass_ms(5)
        post.mailbox.run()
        assert post.ran == []
        post.reader.close()
