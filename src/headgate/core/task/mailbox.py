"""The mailbox: everything that happens to a task happens on its own thread, one thing at a time.

The default action (process input) and mails (timers, checkpoints, cancellation) take turns. Law:
mails run in order of priority, then of arrival; the mails that were there when a lap began run
before the default action, those that come meanwhile after it, so neither can starve the other.
"""

import heapq
from collections.abc import Callable
from enum import Enum
from typing import Final

Mail = Callable[[], None]

URGENT: Final = 0
"""Runs before all others: cancellation, a barrier that overtakes."""

NORMAL: Final = 10


class Lap(Enum):
    """How a lap of the mailbox ended."""

    WORKED = "something was done"
    SUSPENDED = "nothing to do until a mail or the input comes"
    CLOSED = "the task has ended"


class Mailbox:
    """Mails of one task. ``notify`` wakes its thread; putting mail is the holder's right."""

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        self.notify = notify
        self._mails: list[tuple[int, int, str, Mail]] = []
        self._number = 0
        self._closed = False

    def put(self, what: str, mail: Mail, priority: int = NORMAL) -> bool:
        """Queue a mail; False if the task has ended and will not read it."""
        if self._closed:
            return False
        heapq.heappush(self._mails, (priority, self._number, what, mail))
        self._number += 1
        self.notify()
        return True

    def has_mail(self) -> bool:
        return bool(self._mails)

    def run(self) -> int:
        """Run the mails that are there now; those that they bring wait for the next lap."""
        last = self._number
        later: list[tuple[int, int, str, Mail]] = []
        count = 0
        while self._mails and not self._closed:
            entry = heapq.heappop(self._mails)
            if entry[1] >= last:
                later.append(entry)
                continue
            count += 1
            entry[3]()
        for entry in later:
            heapq.heappush(self._mails, entry)
        return count

    def close(self) -> list[str]:
        """Take no more mail; tells what was not read."""
        self._closed = True
        unread = [what for _, _, what, _ in sorted(self._mails, key=lambda entry: entry[:2])]
        self._mails.clear()
        return unread


class MailboxLoop:
    """Takes turns between mails and the default action, which says whether it has more to do."""

    def __init__(self, mailbox: Mailbox, default_action: Callable[[], bool]) -> None:
        self.suspended = False
        self._mailbox = mailbox
        self._default_action = default_action
        self._closed = False

    def lap(self) -> Lap:
        """The mails that are there, then one default action unless it is suspended."""
        worked = self._mailbox.run() > 0
        if self._closed:
            return Lap.CLOSED
        if not self.suspended:
            worked = True
            self.suspended = not self._default_action()
        if self._closed:
            return Lap.CLOSED
        return Lap.WORKED if worked or self._mailbox.has_mail() else Lap.SUSPENDED

    def resume(self) -> None:
        """The input or the output is available again."""
        self.suspended = False

    def close(self) -> list[str]:
        """End after the current action; tells which mails nobody read."""
        self._closed = True
        return self._mailbox.close()
