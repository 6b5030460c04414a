"""Sessions in event time, a bundle at a time: each key has a short list of its sessions.

There is one note for each key of when to look at it, and it stays where it is while sessions grow:
whoever finds that they are not over yet writes a new one. Law: the results are those of the merging
keeper; the note of a key is not later than the end of any of its sessions.
"""

import heapq
from collections.abc import Iterable, MutableMapping
from itertools import count
from typing import TypeAlias, cast

from headgate.base.elements import Bundle, Key, Record
from headgate.core.state.backend import KeyedBackend
from headgate.core.window.contents import make_fold
from headgate.core.window.general import Parts, check_times
from headgate.core.window.spec import SESSIONS, WindowPlan
from headgate.functions.assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
)
from headgate.functions.context import TimeDomain
from headgate.functions.triggers import EventTimeTrigger
from headgate.functions.window import TimeWindow

Session: TypeAlias = "list[Record]"
"""Start, end, and the folded value."""

START, END, VALUE = range(3)


def can_gather(plan: WindowPlan, backend: KeyedBackend) -> bool:
    """Whether these windows can be kept so, in this backend."""
    return (
        type(plan.assigner) in (EventTimeSessionWindows, DynamicEventTimeSessionWindows)
        and type(plan.trigger) is EventTimeTrigger
        and plan.evictor is None
        and plan.lateness_ms == 0
        and backend.direct(SESSIONS) is not None
    )


class SessionKeeper:
    """Keeps the sessions of each key in a short list."""

    def __init__(self, parts: Parts) -> None:
        self._assigner = parts.plan.assigner
        self._cursor = parts.keyed.cursor
        self._timers = parts.keyed.timers
        self._tools = parts.tools
        self._answers = parts.answers
        self._late = parts.late
        self._fold = make_fold(parts.plan.contents, not parts.reuses_objects)
        spaces = parts.keyed.backend.direct(SESSIONS)
        assert spaces is not None
        self._sessions: MutableMapping[Key, list[Session]]
        spaces.plain.bound(self)
        self._notes: list[tuple[int, int, Key]] = []
        """A heap: when to look at which key. The number in the middle makes notes comparable."""
        self._noted: dict[Key, int] = {}
        """The time of the note of each key; others in the heap are void."""
        self._numbers = count()
        self._is_looked_up = False

    def bind(self, sessions: MutableMapping[Key, list[Session]]) -> None:
        self._sessions = sessions

    def process(self, bundle: Bundle, keys: list[Key]) -> None:
        if not self._is_looked_up:
            self._look_up()
        check_times(bundle.timestamps, self._assigner)
        times = cast(list[int], bundle.timestamps)
        ends = self._ends(
            bundle.records, times
        )  # one by one, so that a failing gap is its record's
        sessions_of, step = self._sessions.get, self._fold.step
        self._cursor.key = keys[-1]
        for record, key, start, end in zip(bundle.records, keys, times, ends, strict=True):
            sessions = sessions_of(key)
            if sessions is not None and len(sessions) == 1:
                (session,) = sessions
                if session[START] <= end and start <= session[END]:
                    session[VALUE] = step(session[VALUE], record)
                    if start < session[START]:
                        session[START] = start
                    if end > session[END]:
                        session[END] = end
                    continue
            self._place(record, key, start, end, sessions)

    def advance(self, watermark_ms: int) -> None:
        if not self._is_looked_up:
            self._look_up()
        self._timers.watermark_advanced(watermark_ms)
        notes = self._notes
        while notes and notes[0][0] <= watermark_ms:
            time_ms, _, key = heapq.heappop(notes)
            if self._noted.get(key) == time_ms:
                del self._noted[key]
                self._fire_over(key, time_ms)

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        raise AssertionError("sessions that are gathered have no timers")

    def close(self) -> None:
        """The keyed context is the operator's."""

    def _look_up(self) -> None:
        """Which sessions there are, after a restart."""
        self._is_looked_up = True
        for key, sessions in self._sessions.items():
            for session in sessions:
                self._note(session, key)

    def _ends(self, records: list[Record], times: list[int]) -> Iterable[int]:
        """Where the session of each record alone would end."""
        if isinstance(self._assigner, EventTimeSessionWindows):
            gap_ms = self._assigner.gap_ms
            return [time_ms + gap_ms for time_ms in times]
        assign, tools = self._assigner.assign_windows, self._tools
        return (
            next(iter(assign(record, time_ms, tools))).max_timestamp() + 1
            for record, time_ms in zip(records, times, strict=True)
        )

    def _place(
        self, record: Record, key: Key, start: int, end: int, sessions: list[Session] | None
    ) -> None:
        """A record that begins a session, or makes one of several, or is too late."""
        merged = [
            session for session in sessions or () if session[START] <= end and start <= session[END]
        ]
        if not merged:
            if end - 1 <= self._timers.watermark_ms:
                self._late.take(record, start, end - 1)
                return
            session = [start, end, self._fold.begin(record)]
            self._sessions[key] = [session] if sessions is None else [*sessions, session]
            self._note(session, key)
            return
        merged.sort(key=_start_of)
        value = merged[0][VALUE]
        for other in merged[1:]:
            value = self._fold.merge(value, other[VALUE])
        start, end = min(start, merged[0][START]), max(end, *map(_end_of, merged))
        others = [other for other in sessions or () if other[END] < start or end < other[START]]
        self._sessions[key] = [*others, [start, end, self._fold.step(value, record)]]

    def _fire_over(self, key: Key, time_ms: int) -> None:
        """A note was due: send what is over, and write a new note for what is not."""
        sessions = self._sessions[key]
        if len(sessions) == 1 and sessions[0][END] - 1 > time_ms:  # it has grown
            self._note(sessions[0], key)
            return
        over = [session for session in sessions if session[END] - 1 <= time_ms]
        growing = [session for session in sessions if session[END] - 1 > time_ms]
        if growing:
            self._sessions[key] = growing
            self._note(min(growing, key=_end_of), key)
        else:
            del self._sessions[key]
        cursor = self._cursor
        for start, end, value in sorted(over, key=_end_of):
            window = TimeWindow(start, end)
            cursor.key, cursor.namespace = key, window
            try:
                contents = self._fold.answer(value)
            except Exception as error:
                self._answers.failed(error, window)
                contents = None
            if contents is not None:
                self._answers.send(window, contents)
            self._answers.ended(window)
        cursor.namespace = None

    def _note(self, session: Session, key: Key) -> None:
        last_ms = session[END] - 1
        noted_ms = self._noted.get(key)
        if noted_ms is None or last_ms < noted_ms:
            self._noted[key] = last_ms
            heapq.heappush(self._notes, (last_ms, next(self._numbers), key))


def _start_of(session: Session) -> int:
    return cast(int, session[START])


def _end_of(session: Session) -> int:
    return cast(int, session[END])
