"""The mailbox: mails and the default action take turns on one thread. Row 152, 153."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.mailbox import NORMAL, URGENT, Lap, Mailbox, MailboxLoop


def test_who_puts_a_mail_wakes_the_task() -> None:
    calls = []
    mailbox = Mailbox(lambda: calls.append(1))
    assert mailbox.put("a", lambda: None)
    assert calls == [1]


def test_a_mail_that_brings_a_mail_does_not_starve_the_input() -> None:
    mailbox, steps = Mailbox(), []

    def again() -> None:
        mailbox.put("again", again)

    def step() -> bool:
        steps.append(1)
        return True

    loop = MailboxLoop(mailbox, step)
    again()
    for _ in range(5):
        assert loop.lap() is Lap.WORKED
    assert len(steps) == 5


def test_busy_input_does_not_starve_a_mail() -> None:
    mailbox, done = Mailbox(), []
    loop = MailboxLoop(mailbox, lambda: True)
    loop.lap()
    mailbox.put("timer", lambda: done.append("timer"))
    loop.lap()
    assert done == ["timer"]


def test_without_input_the_action_is_suspended_until_it_is_resumed() -> None:
    mailbox, steps = Mailbox(), []

    def step() -> bool:
        steps.append(1)
        return False

    loop = MailboxLoop(mailbox, step)
    assert loop.lap() is Lap.WORKED
    assert loop.lap() is Lap.SUSPENDED
    mailbox.put("timer", lambda: None)
    assert loop.lap() is Lap.WORKED  # mails run all the same
    assert len(steps) == 1
    loop.resume()
    loop.lap()
    assert len(steps) == 2


def test_a_closed_mailbox_names_what_nobody_read_and_takes_no_more() -> None:
    mailbox = Mailbox()
    loop = MailboxLoop(mailbox, lambda: True)
    mailbox.put("late timer", lambda: None)
    mailbox.put("barrier", lambda: None, URGENT)
    assert loop.close() == ["barrier", "late timer"]
    assert not mailbox.put("more", lambda: None)
    assert loop.lap() is Lap.CLOSED


def test_a_mail_may_end_the_task_and_the_rest_is_not_run() -> None:
    mailbox, done = Mailbox(), []
    loop = MailboxLoop(mailbox, lambda: True)
    mailbox.put("end", lambda: done.extend(loop.close()))
    mailbox.put("never", lambda: done.append("ran"))
    assert loop.lap() is Lap.CLOSED
    assert done == ["never"]


@given(st.lists(st.tuples(st.sampled_from([URGENT, NORMAL]), st.booleans()), max_size=30))
def test_every_mail_runs_once_in_its_order(mails: list[tuple[int, bool]]) -> None:
    mailbox, done = Mailbox(), []
    for number, (priority, brings_more) in enumerate(mails):

        def run(number: int = number, brings_more: bool = brings_more) -> None:
            done.append(number)
            if brings_more:
                mailbox.put("more", lambda: done.append(number + 1000))

        mailbox.put(str(number), run, priority)
    first = sorted(range(len(mails)), key=lambda number: (mails[number][0], number))
    assert mailbox.run() == len(mails)
    assert done == first
    more = [number + 1000 for number in first if mails[number][1]]
    assert mailbox.run() == len(more)
    assert done == first + more
