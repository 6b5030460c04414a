"""Watermark alignment: sources of a group that are ahead wait for the others.

Law: what is announced is the least watermark of the tasks of the group that have reported, are not
idle and have not ended; None if there are none. It is announced when it changes, to every slot with
a task of the group, and to the slot of a task that has reported for the first time. Nothing is
announced before all tasks of the run have started: the slowest may be among those to come.
"""

from dataclasses import dataclass, field

from headgate.base.messages import TimeAnnounced


@dataclass(slots=True)
class _Group:
    slots: dict[str, int] = field(default_factory=dict)  # of each task
    reached_ms: dict[str, int | None] = field(default_factory=dict)  # None: it is idle
    announced_ms: int | None = None

    @property
    def least_ms(self) -> int | None:
        counting = [reached for reached in self.reached_ms.values() if reached is not None]
        return min(counting, default=None)


class WatermarkAlignment:
    """Takes the reports of source tasks; answers with announcements for their slots."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._groups: dict[str, _Group] = {}
        self._begun = False

    def all_started(self) -> list[tuple[int, TimeAnnounced]]:
        """Every task of the run is there, and has reported if it is aligned."""
        self._begun = True
        messages: list[tuple[int, TimeAnnounced]] = []
        for group, members in self._groups.items():
            members.announced_ms = members.least_ms
            messages += self._messages(group, members)
        return messages

    def reported(
        self, group: str, task: str, slot: int, watermark_ms: int | None
    ) -> list[tuple[int, TimeAnnounced]]:
        """A task has reached this watermark; None: it is idle and holds nobody back."""
        members = self._groups.setdefault(group, _Group())
        is_known = task in members.slots
        members.slots[task] = slot
        members.reached_ms[task] = watermark_ms
        messages = self._announce(group, members)
        if messages or is_known or not self._begun:
            return messages
        return [(slot, TimeAnnounced(self._run, group, members.announced_ms))]

    def ended(self, task: str) -> list[tuple[int, TimeAnnounced]]:
        """A task has ended, in whatever way; it holds nobody back any more."""
        messages: list[tuple[int, TimeAnnounced]] = []
        for group, members in self._groups.items():
            members.slots.pop(task, None)
            if members.reached_ms.pop(task, None) is not None:
                messages += self._announce(group, members)
        return messages

    def _announce(self, group: str, members: _Group) -> list[tuple[int, TimeAnnounced]]:
        if not self._begun or members.least_ms == members.announced_ms:
            return []
        members.announced_ms = members.least_ms
        return self._messages(group, members)

    def _messages(self, group: str, members: _Group) -> list[tuple[int, TimeAnnounced]]:
        message = TimeAnnounced(self._run, group, members.announced_ms)
        return [(slot, message) for slot in dict.fromkeys(members.slots.values())]
