"""Runs a user's ``SourceFunction`` without a thread: its call stack stands still between two polls.

Law as for the real one: records and watermarks come in order, then the exception of ``run`` or the
end; a checkpoint sees the function between two blocks under the checkpoint lock, never within one.
``time.sleep`` in it takes virtual time.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.extras import install_command
from headgate.base.values import own
from headgate.connectors.function import FunctionPosition, FunctionSource, Row, SourceContext
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.user_function import UserFunction
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.function import SourceFunction
from headgate.functions.source import Source, SplitReader
from headgate.testing.sources import next_entries

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ImportError as error:  # pragma: no cover - depends on the installation
    problem = f"headgate.testing needs greenlet: {install_command('testing')}"
    raise ImportError(problem) from error

AHEAD: Final = 4
"""How many records it may be ahead of the task."""


@dataclass(frozen=True)
class SteppedFunctionSource(Source):
    """One task runs the function; the source ends when ``run`` returns."""

    function: SourceFunction[Record]
    bounded: bool = False

    finds_more = False
    rewind_advice = FunctionSource.rewind_advice

    @property
    def rewinds(self) -> bool:
        return hasattr(self.function, "initialize_state")

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        assert position is None or isinstance(position, FunctionPosition), position
        assert isinstance(context, OperatorContext), context
        return SteppedFunctionReader(self, context, position or FunctionPosition())


class SteppedFunctionReader(SplitReader):
    """Lets the function run until it has something, sleeps or ends."""

    gives_away = True

    def __init__(
        self, source: SteppedFunctionSource, context: OperatorContext, before: FunctionPosition
    ) -> None:
        self._source = source
        self._context = context
        self._before = before
        self._rows: list[Row] = list(before.rows)
        self._user_function = UserFunction(source.function, "run")
        self._handover = Steps(self._rows)
        self._stack: Any = None
        self._is_open = False
        self._has_ended = before.has_ended
        self._error: BaseException | None = None

    def poll(self, limit: int) -> list[Record] | Bundle | Watermark | StreamStatus | None:
        if not self._has_ended and len(self._rows) < AHEAD:
            self._go_on()
        if not self._rows:
            if self._error is not None:
                raise self._error
            return None if self._has_ended else []
        taken, count = next_entries(self._rows[:limit])
        del self._rows[:count]
        return taken

    def wait_ms(self) -> float:
        until_ms = self._handover.sleeps_until_ms
        return 0.0 if until_ms is None else max(0.0, until_ms - self._context.now_ms())

    def position_at(self, moment: SnapshotMoment) -> FunctionPosition | None:
        if not self._source.rewinds:
            return None
        rows = tuple(self._rows)
        if self._has_ended:
            return FunctionPosition(rows=rows, has_ended=True)
        state = self._user_function.snapshot(moment) if self._is_open else self._before.state
        return FunctionPosition(state, rows)

    def checkpoint_completed(self, checkpoint: int) -> None:
        lives = self._is_open and not self._has_ended
        if lives and hasattr(self._source.function, "notify_checkpoint_complete"):
            self._user_function.checkpoint_completed(checkpoint)

    def close(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None and not stack.dead:
            self._source.function.cancel()
            stack.parent = getcurrent()
            with suppress(GreenletExit):
                stack.throw()

    def _go_on(self) -> None:
        until_ms = self._handover.sleeps_until_ms
        if until_ms is not None and self._context.now_ms() < until_ms:
            return
        self._handover.sleeps_until_ms = None
        if self._stack is None:
            self._stack = greenlet(self._run)
            self._stack.steps, self._stack.now_ms = self._handover, self._context.now_ms
        self._stack.parent = getcurrent()
        self._stack.switch()

    def _run(self) -> None:
        try:
            try:
                self._live()
            finally:
                self._user_function.close()
        except GreenletExit:
            pass
        except Exception as error:
            self._error = error
        self._has_ended = True

    def _live(self) -> None:
        user_function, before = self._user_function, self._before
        if before.state is not None:
            user_function.states.restore([before.state], 0, 1)
        user_function.open(self._context)
        self._is_open = True
        user_function.call(SteppedContext(self._handover))


class Steps:
    """Rows that the function has collected; lets the task go on when there are enough."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.depth = 0
        """How many blocks under the checkpoint lock are open."""
        self.sleeps_until_ms: float | None = None

    def put(self, record: Record, timestamp: int | None) -> None:
        self.rows.append((record, timestamp))
        self.let_go()

    def say(self, what: Watermark | StreamStatus) -> None:
        self.rows.append(what)
        self.let_go()

    def let_go(self) -> None:
        """The task may take what is there, unless a block is under way."""
        if not self.depth and len(self.rows) >= AHEAD:
            getcurrent().parent.switch()

    def __enter__(self) -> "Steps":
        self.depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if error[0] is None:
            self.let_go()


class SteppedContext(SourceContext):
    """The context of ``run``; the steps are also its lock."""

    def __init__(self, steps: Steps) -> None:
        self._lock = steps  # type: ignore[assignment]
        self._put, self._say = steps.put, steps.say

    def collect(self, element: Record) -> None:
        self._put(own(element), None)


def sleeps_in_source(seconds: float) -> bool:
    """``time.sleep`` of a source function: its task goes on meanwhile. False: it is another's."""
    current: Any = getcurrent()
    steps = getattr(current, "steps", None)
    if not isinstance(steps, Steps):
        return False
    steps.sleeps_until_ms = current.now_ms() + min(seconds, inf) * 1000
    current.parent.switch()
    return True
