"""Windows of any kind, record by record: assigner, contents and trigger as the plan says.

Windows that merge, such as sessions, are kept in a set for each key; each has a *home*, the window
under which the state keeps its contents. A merged window takes over the home of one that it is made
of, and only the contents of the others move. Laws: a window is late when its end and the allowed
lateness have passed; it takes no more records, and nothing of it is kept. Windows that end by the
clock are never late. Windows of a set never overlap, and each has a home of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final, Protocol, TypeAlias

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Key, Record
from headgate.base.values import own
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.left_out import LateRecords
from headgate.core.state.backend import StateSpec
from headgate.core.window.contents import open_contents
from headgate.core.window.spec import WindowPlan
from headgate.core.window.user_code import NO_TIMESTAMP, Answers, WindowTools
from headgate.functions.assigners import MergingWindowAssigner, SessionWindows
from headgate.functions.context import TimeDomain
from headgate.functions.triggers import CONTINUE, TriggerResult
from headgate.functions.window import TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Parts:
    """What every way of keeping windows works with; the operator owns it all."""

    plan: WindowPlan
    context: OperatorContext
    keyed: KeyedContext
    tools: WindowTools
    answers: Answers
    late: LateRecords
    reuses_objects: bool


class WindowKeeper(Protocol):
    """Keeps the windows of one operator, in one way or another."""

    def process(self, bundle: Bundle, keys: list[Key]) -> None: ...

    def advance(self, watermark_ms: int) -> None:
        """Event time has moved on; in batch it may go back, to begin with another key."""

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        """A timer is due; the cursor stands at its key and window."""

    def close(self) -> None: ...


class GeneralKeeper:
    """Assigns, folds and asks the trigger for each record and each of its windows."""

    def __init__(self, parts: Parts) -> None:
        plan = parts.plan
        self._assigner = plan.assigner
        self._trigger = plan.trigger
        self._event_time = plan.assigner.is_event_time()
        self._lateness_ms = plan.lateness_ms if self._event_time else 0
        self._keyed = parts.keyed
        self._cursor = parts.keyed.cursor
        self._timers = parts.keyed.timers
        self._tools = parts.tools
        self._answers = parts.answers
        self._late = parts.late
        self._over_last_ms = MIN_WATERMARK_MS
        """When the last window was over, of those that the record at hand came too late for."""
        self._copies = not parts.reuses_objects
        self._contents = open_contents(plan, parts.keyed, parts.tools)

    def process(self, bundle: Bundle, keys: list[Key]) -> None:
        if self._event_time:
            check_times(bundle.timestamps, self._assigner)
        cursor, take = self._cursor, self._take
        times = bundle.timestamps or repeat(None)
        for record, key, time_ms in zip(bundle.records, keys, times):  # noqa: B905 - repeat
            cursor.key = key
            take(record, time_ms)
        cursor.namespace = None

    def advance(self, watermark_ms: int) -> None:
        self._timers.watermark_advanced(watermark_ms)

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        window = self._cursor.namespace
        assert isinstance(window, Window)
        self._ask_and_act(time_ms, domain, window, window)
        if self._is_over(window, time_ms, domain):
            self._end(window, window)

    def close(self) -> None:
        """The keyed context is the operator's."""

    def adopt(self, window: Window, value: Record, has_fired: bool) -> None:
        """A window of the cursor's key that another keeper has left, with its default trigger."""
        self._cursor.namespace = window
        self._contents.put(value)
        self._register_end(self._over_ms(window))
        if self._event_time and not has_fired:
            self._tools.register_event_time_timer(window.max_timestamp())

    def _take(self, record: Record, time_ms: int | None) -> None:
        stamp = MIN_WATERMARK_MS if time_ms is None else time_ms
        taken, self._over_last_ms = False, MIN_WATERMARK_MS
        windows = [*self._assigner.assign_windows(record, stamp, self._tools)]
        for number, window in enumerate(windows, 1):
            # Each window gets a record of its own: its fold may keep and change it.
            mine = own(record) if self._copies and number < len(windows) else record
            taken = self._put(window, mine, time_ms, stamp) or taken
        until_ms = stamp + self._lateness_ms
        if not taken and self._event_time and until_ms <= self._timers.watermark_ms:
            self._late.take(record, stamp, max(until_ms, self._over_last_ms))

    def _put(self, window: Window, record: Record, time_ms: int | None, stamp: int) -> bool:
        """A record into one of its windows; False: the window is late."""
        over_ms = self._over_ms(window)
        if self._event_time and over_ms <= self._timers.watermark_ms:
            self._over_last_ms = max(self._over_last_ms, over_ms)
            return False
        self._cursor.namespace = window
        try:
            self._contents.add(record, time_ms)
            result = self._trigger.on_element(record, stamp, window, self._tools)
            if result is not CONTINUE:
                self._act(window, window, result)
        finally:  # the record may be in it, and others
            self._cursor.namespace = window
            self._register_end(over_ms)
        return True

    def _ask_and_act(
        self, time_ms: int, domain: TimeDomain, window: Window, kept_at: Window
    ) -> None:
        """A timer has fired; a window that fails answers nothing, and ends at its time."""
        try:
            self._act(window, kept_at, self._ask(time_ms, domain, window))
        except Exception as error:
            self._answers.failed(error, window)
            self._cursor.namespace = window

    def _ask(self, time_ms: int, domain: TimeDomain, window: Window) -> TriggerResult:
        if domain is TimeDomain.EVENT_TIME:
            return self._trigger.on_event_time(time_ms, window, self._tools)
        return self._trigger.on_processing_time(time_ms, window, self._tools)

    def _act(self, window: Window, kept_at: Window, result: TriggerResult) -> None:
        """Do what the trigger wants; the contents are kept in the namespace ``kept_at``."""
        if result is CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise TypeError(
                f"{type(self._trigger).__name__} answered {result!r}; return a TriggerResult, "
                f"such as TriggerResult.CONTINUE"
            )
        fires, purges = result.value
        self._cursor.namespace = kept_at
        if fires:
            try:
                self._contents.fire(window, self._answers.send)
            except Exception as error:
                self._answers.failed(error, window)
        if purges:
            self._contents.clear()
        self._cursor.namespace = window

    def _over_ms(self, window: Window) -> int:
        """When the window is over, and nothing of it is kept any longer."""
        return min(window.max_timestamp() + self._lateness_ms, MAX_WATERMARK_MS)

    def _register_end(self, over_ms: int) -> None:
        if over_ms < MAX_WATERMARK_MS:  # else it has no end
            if self._event_time:
                self._tools.register_event_time_timer(over_ms)
            else:
                self._tools.register_processing_time_timer(over_ms)

    def _is_over(self, window: Window, time_ms: int, domain: TimeDomain) -> bool:
        is_event_time = domain is TimeDomain.EVENT_TIME
        return is_event_time is self._event_time and time_ms == self._over_ms(window)

    def _end(self, window: Window, kept_at: Window) -> None:
        cursor = self._cursor
        cursor.namespace = kept_at
        self._contents.clear()
        cursor.namespace = window
        try:
            self._trigger.clear(window, self._tools)
        except Exception as error:
            self._answers.failed(error, window)
        self._answers.ended(window)


def check_times(times: list[int | None] | None, assigner: object) -> None:
    """Every record has a timestamp, or it is an error that says what to do."""
    if times is None or None in times or MIN_WATERMARK_MS in times:
        raise ValueError(NO_TIMESTAMP.format(assigner=assigner))


Homes: TypeAlias = dict[Window, Window]
"""Each window of a key and its home. Never changed once it is in the state."""


SET: Final = StateSpec("window set", "value")


class MergingKeeper(GeneralKeeper):
    """Keeps windows that merge; timers and trigger state belong to the window, not to its home."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        assert isinstance(parts.plan.assigner, MergingWindowAssigner)
        self._merging = parts.plan.assigner
        self._covers = isinstance(parts.plan.assigner, SessionWindows)
        self._sets = parts.keyed.backend.value_state(SET)

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        window = self._cursor.namespace
        assert isinstance(window, Window)
        home = self._homes().get(window)
        if home is None:  # a timer of a window that was merged since
            return
        self._ask_and_act(time_ms, domain, window, home)
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
            self._over_last_ms = max(self._over_last_ms, over_ms)
            self._retire(window)
            return False
        self._cursor.namespace = home
        try:
            self._contents.add(record, time_ms)
            self._cursor.namespace = window
            result = self._trigger.on_element(record, stamp, window, self._tools)
            if result is not CONTINUE:
                self._act(window, home, result)
        finally:  # the window has others, which are to be answered
            self._cursor.namespace = window
            self._register_end(over_ms)
        return True

    def _homes(self) -> Homes:
        return self._sets.value() or {}

    def _retire(self, window: Window) -> None:
        homes = dict(self._homes())
        homes.pop(window, None)
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
            before = [window for window in merged if window in old]
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
        home, *others = [homes.pop(window) for window in before]
        homes[result] = home
        cursor.namespace = result
        replaced = [window for window in before if window != result]
        tools.merged = [*replaced]
        trigger.on_merge(result, tools)
        for window in replaced:
            cursor.namespace = window
            trigger.clear(window, tools)
            self._delete_end(window)
        if others:
            self._contents.merge(home, others)

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
    for session in homes:
        assert isinstance(session, TimeWindow)
        if session.start <= new.start and new.end <= session.end:
            return session
    return None


class _Groups:
    """Collects what an assigner says about windows that become one."""

    def __init__(self) -> None:
        self.found: list[tuple[list[Window], Window]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((list(to_be_merged), merge_result))
