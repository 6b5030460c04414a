"""Windows in plain Python: what comes out of a sequence of records and watermarks, worked out anew.

Nothing of the real operators is used. A story is a list of ``Timed`` records and ``Mark``
watermarks; what it gives is an ``Account``: for each element of the story the firings that it
caused, in the order of their windows' ends, and the late records.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

MIN = -(2**63)
MAX = 2**63 - 1


class Timed(NamedTuple):
    """A record of the story."""

    key: str
    value: int
    time: int


class Mark(NamedTuple):
    """A watermark of the story."""

    time: int


Story = list[Timed | Mark]


class Firing(NamedTuple):
    """One result of one window; ``start`` is None if the result does not tell it."""

    key: str
    start: int | None
    end: int
    values: tuple[int, ...]


@dataclass
class Account:
    """What a story gives, element by element."""

    firings: list[list[Firing]] = field(default_factory=list)
    late: list[Timed] = field(default_factory=list)


def tumbling(size: int, offset: int = 0) -> Callable[[int], list[tuple[int, int]]]:
    return sliding(size, size, offset)


def sliding(size: int, slide: int, offset: int = 0) -> Callable[[int], list[tuple[int, int]]]:
    """All windows of a time, found by trying every start that could be one."""

    def assign(time: int) -> list[tuple[int, int]]:
        starts = range(time - size + 1, time + 1)
        return [(start, start + size) for start in starts if (start - offset) % slide == 0]

    return assign


def aligned(
    story: Story, assign: Callable[[int], list[tuple[int, int]]], lateness: int = 0
) -> Account:
    """Windows that do not merge, with the default trigger of event time."""
    account, watermark = Account(), MIN
    live: dict[tuple[str, int, int], list[int]] = {}
    for element in story:
        fired: list[Firing] = []
        if isinstance(element, Mark):
            due = [
                (end, start, key) for key, start, end in live if watermark < end - 1 <= element.time
            ]
            watermark = max(watermark, element.time)
            for end, start, key in sorted(due):
                fired.append(Firing(key, start, end, tuple(live[key, start, end])))
            live = {
                window: values
                for window, values in live.items()
                if not window[2] - 1 + lateness <= watermark
            }
        else:
            windows = [
                (start, end)
                for start, end in assign(element.time)
                if not end - 1 + lateness <= watermark
            ]
            # A record may be in no window at all, if these do not cover all time.
            if not windows and element.time + lateness <= watermark:
                account.late.append(element)
            for start, end in windows:
                values = live.setdefault((element.key, start, end), [])
                values.append(element.value)
                if end - 1 <= watermark:
                    fired.append(Firing(element.key, start, end, tuple(values)))
        account.firings.append(fired)
    return account


@dataclass
class Session:
    """Records of a key that belong together."""

    start: int
    end: int
    values: list[int]


def sessions(story: Story, gap_of: Callable[[Timed], int], lateness: int = 0) -> Account:
    """Sessions: after each record all stretches of its key are sorted and joined anew."""
    account, watermark = Account(), MIN
    live: dict[str, list[Session]] = {}
    for element in story:
        fired: list[Firing] = []
        if isinstance(element, Mark):
            fired = [
                Firing(key, session.start, session.end, tuple(session.values))
                for key, some in live.items()
                for session in some
                if watermark < session.end - 1 <= element.time
            ]
            watermark = max(watermark, element.time)
            for key in live:
                live[key] = [
                    session for session in live[key] if session.end - 1 + lateness > watermark
                ]
            fired.sort(key=lambda firing: firing.end)
        else:
            new = Session(element.time, element.time + gap_of(element), [element.value])
            joined = _joined([*live.get(element.key, []), new])
            (home,) = [session for session in joined if session.start <= element.time < session.end]
            if home.end - 1 + lateness <= watermark:
                account.late.append(element)  # then it stands alone: living sessions end later
            else:
                live[element.key] = joined
                if home.end - 1 <= watermark:
                    fired.append(Firing(element.key, home.start, home.end, tuple(home.values)))
        account.firings.append(fired)
    return account


def _joined(some: list[Session]) -> list[Session]:
    joined: list[Session] = []
    for session in sorted(some, key=lambda session: (session.start, session.end)):
        if joined and session.start <= joined[-1].end:
            last = joined[-1]
            joined[-1] = Session(
                last.start, max(last.end, session.end), last.values + session.values
            )
        else:
            joined.append(Session(session.start, session.end, list(session.values)))
    return joined


def counted(values: list[tuple[str, int]], size: int, slide: int) -> list[tuple[str, list[int]]]:
    """Full windows of ``size`` records of a key, a new one every ``slide`` records."""
    seen: dict[str, list[int]] = {}
    windows: list[tuple[str, list[int]]] = []
    for key, value in values:
        mine = seen.setdefault(key, [])
        mine.append(value)
        start = len(mine) - size
        if start >= 0 and start % slide == 0:
            windows.append((key, mine[start:]))
    return windows


def hoarded(
    values: list[tuple[str, int]], every: int, purging: bool
) -> list[tuple[str, list[int]]]:
    """A global window that fires at every so many records of a key."""
    kept: dict[str, list[int]] = {}
    since: dict[str, int] = {}
    windows: list[tuple[str, list[int]]] = []
    for key, value in values:
        mine = kept.setdefault(key, [])
        mine.append(value)
        since[key] = since.get(key, 0) + 1
        if since[key] == every:
            since[key] = 0
            windows.append((key, list(mine)))
            if purging:
                mine.clear()
    return windows
