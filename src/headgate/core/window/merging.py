"""Windows that merge, such as sessions: which ones a key has, and what becomes of those that meet.

A key keeps a set of windows; each has a *home*, the window under which its contents are kept in the
state. When windows merge, the new one takes over the home of one of them, and only the contents of
the others move. Law: windows of a set never overlap; each has a home of its own.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from headgate.base.elements import MAX_WATERMARK_MS, Record
from headgate.core.state.backend import StateSpec
from headgate.core.window.general import GeneralKeeper, Parts
from headgate.functions.assigners import MergingWindowAssigner, SessionWindows
from headgate.functions.context import TimeDomain
from headgate.functions.triggers import CONTINUE
from headgate.functions.window import TimeWindow, Window

Homes: TypeAlias = dict[Window, Window]
"""Each window of a key and its home. Never changed once it is in the state."""

SET: Final = StateSpec("window set", "value")


class MergingKeeper(GeneralKeeper):
    """See ``GeneralKeeper``; timers and trigger state are those of the window, not of its home."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        assert isinstance(parts.plan.assigner, MergingWindowAssigner)
        self._merging = parts.plan.assigner
        self._covers = isinstance(parts.plan.assigner, SessionWindows)
        self._sets = parts.room.backend.value_state(SET)

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        window = self._cursor.namespace
        assert isinstance(window, Window)
        home = self._homes().get(window)
        if home is None:  # a timer of a window that was merged since
            return
        self._act(window, home, self._ask(time_ms, domain, window))
        if self._is_over(window, time_ms, domain):
            self._end(window, home)
            self._retire(window)

    def adopt(self, window: Window, value: Record, has_fired: bool) -> None:
        super().adopt(window, value, has_fired)
        self._sets.update({**self._homes(), window: window})

    def _put(self, window: Window, record: Record, time_ms: int | None, stamp: int) -> bool:
        window, home = self._join(window)
        over_ms = self._over_ms(window)
        if self._event_time and over_ms <= self._timers.watermark_ms:
            self._retire(window)
            return False
        self._cursor.namespace = home
        self._contents.add(record, time_ms)
        self._cursor.namespace = window
        result = self._trigger.on_element(record, stamp, window, self._tools)
        if result is not CONTINUE:
            self._act(window, home, result)
        self._register_end(over_ms)
        return True

    def _homes(self) -> Homes:
        return self._sets.value() or {}

    def _retire(self, window: Window) -> None:
        homes = {one: home for one, home in self._homes().items() if one != window}
        if homes:
            self._sets.update(homes)
        else:
            self._sets.clear()

    def _join(self, new: Window) -> tuple[Window, Window]:
        """Put a window into the set; answers with what it has become, and its home."""
        old = self._homes()
        if self._covers:
            found = _covering(old, new)
            if found is not None:
                return found, old[found]
        groups = _Groups()
        if old:
            self._merging.merge_windows([*old, new], groups)
        homes, joined = dict(old), new
        for merged, result in groups.found:
            if new in merged:
                joined = result
            before = [one for one in merged if one in old]
            if before and before != [result]:
                self._merge(before, result, homes)
        homes.setdefault(joined, joined)
        if homes != old:
            self._sets.update(homes)
        return joined, homes[joined]

    def _merge(self, before: list[Window], result: Window, homes: Homes) -> None:
        """Windows of the set become one: its trigger is told, timers and contents move."""
        self._refuse_past(result)
        cursor, tools, trigger = self._cursor, self._tools, self._trigger
        home, *left = [homes.pop(one) for one in before]
        homes[result] = home
        cursor.namespace = result
        tools.merged = [one for one in before if one != result]
        trigger.on_merge(result, tools)
        for one in before:
            if one != result:
                cursor.namespace = one
                trigger.clear(one, tools)
                self._delete_end(one)
        if left:
            self._contents.merge(home, left)

    def _delete_end(self, window: Window) -> None:
        over_ms = self._over_ms(window)
        if over_ms < MAX_WATERMARK_MS:
            if self._event_time:
                self._tools.delete_event_time_timer(over_ms)
            else:
                self._tools.delete_processing_time_timer(over_ms)

    def _refuse_past(self, result: Window) -> None:
        if self._event_time and self._over_ms(result) <= self._timers.watermark_ms:
            raise ValueError(
                f"{type(self._merging).__name__} merged windows into {result!r}, which is over "
                f"already; a merged window must not end before those that it is made of"
            )


def _covering(homes: Homes, new: Window) -> Window | None:
    """A session that the new one lies within, so that nothing changes."""
    assert isinstance(new, TimeWindow)
    for one in homes:
        assert isinstance(one, TimeWindow)
        if one.start <= new.start and new.end <= one.end:
            return one
    return None


class _Groups:
    """Collects what an assigner says about windows that become one."""

    def __init__(self) -> None:
        self.found: list[tuple[list[Window], Window]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((list(to_be_merged), merge_result))
