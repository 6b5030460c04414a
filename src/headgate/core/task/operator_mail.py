"""What operators ask their task for: a call after a while, asynchronous calls, a wait.

Whatever comes of it runs as a mail on the task's thread, and what it sends leaves with it. Law:
while mails are kept back none runs, and those that came run afterwards, in order; dropped ones
never do.
"""

from collections.abc import Callable
from functools import partial

from headgate.core.chain.async_calls import AsyncCalls, AsyncWork, BatchWork, StartCalls
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.outputs import Loan, run_user_code
from headgate.core.egress.partition import Wait
from headgate.core.task.mailbox import NORMAL, Mailbox


class OperatorMail:
    """For all operators of one task; they ask from outside the baton."""

    def __init__(
        self,
        chain: Chain,
        loan: Loan,
        clock: Clock,
        mailbox: Mailbox,
        start_calls: StartCalls,
        wait: Wait,
    ) -> None:
        self._chain = chain
        self._loan = loan
        self._clock = clock
        self._mailbox = mailbox
        self._start_calls = start_calls
        self._wait = wait
        self._kept: list[Callable[[], None]] | None = None
        self._dropped = False

    def later(self, operator: str, delay_ms: float, action: Callable[[], None]) -> None:
        """An operator wants ``action`` to be run on its thread after a while."""

        def due() -> None:
            run = partial(self._run, operator, action, "in a timer")
            self._mailbox.put("timer", run, NORMAL)

        self._loan.regain()
        self._clock.later(delay_ms, due)
        self._loan.lend()

    def calls(
        self, operator: str, work: AsyncWork | BatchWork, completed: Callable[[], None]
    ) -> AsyncCalls:
        """Calls of an operator; their driver tells inside the baton that some have ended."""
        mailed = False

        def run() -> None:
            nonlocal mailed
            mailed = False
            self._run(operator, completed, "")

        def tell() -> None:
            nonlocal mailed
            if mailed:
                self._mailbox.notify()
            else:
                mailed = self._mailbox.put("ended calls", run, NORMAL)

        return self._start_calls(work, tell)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """An operator cannot go on: what it has sent leaves, and others run."""
        self._loan.regain()
        self._chain.seal()
        self._wait(ready)
        self._loan.lend()

    def suspend(self) -> None:
        """Keep mails back until ``resume``."""
        if self._kept is None:
            self._kept = []

    def resume(self) -> None:
        """Run the mails that were kept back, and go on."""
        kept, self._kept = self._kept or [], None
        for mail in kept:
            self._mailbox.put("kept mail", mail, NORMAL)

    def drop(self) -> None:
        """The operators have finished: run no more mails of theirs."""
        self._dropped = True
        self._kept = None

    def _run(self, operator: str, action: Callable[[], None], doing: str) -> None:
        if self._dropped:
            return
        if self._kept is not None:
            self._kept.append(partial(self._run, operator, action, doing))
            return
        with self._loan:
            run_user_code(operator, action, doing)
        self._chain.seal()
