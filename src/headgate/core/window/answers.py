"""What a window answers when it fires: its folded value, or what the user's function makes of it.

Law: everything it sends has the last time of its window as its timestamp, and belongs to its
receiver. With an error policy a window that fails answers nothing, and ends as any other.
"""

from collections.abc import Callable
from typing import Final

from headgate.base.elements import Record
from headgate.core.chain.collector import Collector
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.record_failures import RecordFailures
from headgate.core.chain.runtime import KeyedStates
from headgate.core.chain.user_function import UserFunction, iterable
from headgate.core.state.cursor import Cursor
from headgate.core.window.spec import Listed, WindowPlan
from headgate.core.window.tools import Compartment
from headgate.functions.assigners import MergingWindowAssigner
from headgate.functions.context import KeyedStateStore
from headgate.functions.error_policy import FailedWindow
from headgate.functions.window import Window


class FiredContext:
    """What a process window function learns beside key and elements; one object, set anew."""

    def __init__(self, keyed: KeyedContext, context: OperatorContext, merges: bool) -> None:
        self.at: Window
        self._timers = keyed.timers
        self._merges = merges
        self._operator = context.operator
        self._global = KeyedStates(keyed.opener, context.operator)
        self._window = KeyedStates(Compartment(keyed, context, "window"), context.operator)

    def window(self) -> Window:
        """The window that fires."""
        return self.at

    def current_watermark(self) -> int:
        """Event time as far as it is known."""
        return self._timers.watermark_ms

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""
        return self._timers.current_processing_time()

    def window_state(self) -> KeyedStateStore:
        """State of this key and this window; clear it in ``clear``."""
        if self._merges:
            raise RuntimeError(
                "window_state() is not there for windows that merge, such as sessions; "
                "use global_state()"
            )
        return self._window

    def global_state(self) -> KeyedStateStore:
        """State of this key, the same in all its windows."""
        return self._global


class Answers:
    """Calls the user's window function, if there is one, and sends on what it answers."""

    def __init__(
        self, plan: WindowPlan, sorter: Collector, failures: RecordFailures | None = None
    ) -> None:
        self._sorter = sorter
        self.tolerates = failures is not None
        """Whether a window that fails is left out."""
        self._streak = None if failures is None else failures.streak()
        self._plan = plan
        self._listed = isinstance(plan.contents, Listed)
        style = None if plan.function is None else plan.function.style
        self._method = "process" if style in ("process", "process_all") else "apply"
        self._with_key = style in ("process", "apply")
        self.user_function = (
            None if plan.function is None else UserFunction(plan.function.function, self._method)
        )
        self.clears = False
        """Whether the function wants to be told that a window has ended."""

    def open(self, context: OperatorContext, keyed: KeyedContext) -> None:
        """Open the function."""
        self._cursor: Cursor = keyed.cursor
        merges = isinstance(self._plan.assigner, MergingWindowAssigner)
        self._context = FiredContext(keyed, context, merges)
        if self.user_function is not None:
            self.user_function.open(context, keyed.opener)
            self._call = self.user_function.call
            clear = getattr(self.user_function.function, "clear", None)
            self._clear: Callable[[FiredContext], None] | None = clear
            self.clears = clear is not None and self._method == "process"

    def send(self, window: Window, contents: Record) -> None:
        """The window fires with its folded value, or a list of its records."""
        time_ms = window.max_timestamp()
        if self.user_function is None:
            self._sorter.take((contents,), time_ms)
        elif self._streak is None:
            self._call_for(window, contents, time_ms)
        else:
            before = self._sorter.mark
            try:
                self._call_for(window, contents, time_ms)
                self._streak.passed()
            except Exception as error:
                self._sorter.take_back(before)
                self.failed(error, window)

    def failed(self, error: Exception, window: Window) -> None:
        """User code has raised for the window at hand; it answers nothing.

        Raises the error if the operator has no policy for that.
        """
        if self._streak is None:
            raise error
        record = FailedWindow(self._cursor.plain_key, window)
        self._streak.failed(error, record, window.max_timestamp())

    def _call_for(self, window: Window, contents: Record, time_ms: int) -> None:
        context = self._context
        context.at = window
        about = context if self._method == "process" else window
        elements = contents if self._listed else [contents]
        if self._with_key:
            found = self._call(self._cursor.plain_key, about, elements)
        else:
            found = self._call(about, elements)
        if found is not None:
            self._sorter.take(iterable(found, f"{self._method}() of a window function"), time_ms)

    def ended(self, window: Window) -> None:
        """The window is over; its contents are gone already."""
        if self.clears and self._clear is not None:
            self._context.at = window
            try:
                self._clear(self._context)
            except Exception as error:
                self.failed(error, window)

    def flush(self) -> None:
        """Send on what was collected."""
        self._sorter.flush()

    def close(self) -> None:
        """Close the function. Idempotent."""
        if self.user_function is not None:
            self.user_function.close()


NO_TIMESTAMP: Final = (
    "a record without a timestamp came into windows in event time ({assigner}); call "
    "assign_timestamps_and_watermarks() before, or take windows in processing time"
)
