"""Doubles of what operators call: scripted sources, asynchronous functions and calls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.elements import (
    Bundle,
    StreamStatus,
    Watermark,
)
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import AsyncWork, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.functions.context import RuntimeContext
from headgate.functions.source import Source, SplitReader
from tests.core.chain.kit import KeptOutput, context


class ScriptedSource(Source):
    """A source whose splits are lists of answers to polls."""

    bounded = True

    def __init__(self, broken: Any = None) -> None:
        self.opened: list[Any] = []
        self.closed: list[Any] = []
        self._broken = broken

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def open(self, split: Any, position: object, context: OperatorContext) -> "ScriptedReader":
        assert position is None
        if split == self._broken:
            raise OSError("no such split")
        self.opened.append(split)
        return ScriptedReader(self, split)


class ScriptedReader(SplitReader):
    """Answers with what its split says, then with the end."""

    def __init__(self, source: ScriptedSource, split: Any) -> None:
        self._source = source
        self._split = split
        self._left = list(split)
        self.limits: list[int] = []

    def poll(self, limit: int) -> Any:
        return self._left.pop(0) if self._left else None

    def wait_ms(self) -> float:
        return 7.0

    def position(self) -> object:
        return len(self._split) - len(self._left)

    def close(self) -> None:
        self._source.closed.append(self._split)
        if "bad end" in self._split:
            raise OSError("bad end")


BOTH = pytest.mark.parametrize("ordered", [True, False])


class NumberAndSquare:
    """Answers with the number and its square."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.heard.append(runtime_context.get_task_name())

    async def async_invoke(self, value: int) -> list[int]:
        return [value, value * value]

    def timeout(self, value: int) -> list[int]:
        return []

    def close(self) -> None:
        self.heard.append("closed")


class ScriptedCalls:
    """Calls that end when the test, or ``choose`` in a wait, says so."""

    def __init__(self, work: AsyncWork | BatchWork, completed: Callable[[], None]) -> None:
        self.work = work
        self.completed = completed
        self.under_way: list[PendingCall] = []
        self.ended: list[PendingCall] = []
        self.most = 0
        self.waits = 0
        self.closed = 0
        self.has_ended = False
        self.choose: Callable[[int], int] = lambda count: 0

    def submit(self, calls: list[PendingCall]) -> None:
        self.under_way += calls
        self.most = max(self.most, len(self.under_way))

    def end(self, index: int = 0, error: BaseException | None = None) -> None:
        call = self.under_way.pop(index)
        call.results, call.error = [f"r{call.record}"], error
        self.ended.append(call)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        assert not ready(), "nobody waits for what is there"
        self.waits += 1
        self.end(self.choose(len(self.under_way)))
        assert ready()

    def has_completed(self) -> bool:
        return bool(self.ended)

    def take(self) -> list[PendingCall]:
        ended, self.ended = self.ended, []
        return ended

    def input_ended(self) -> None:
        self.has_ended = True

    def figures(self) -> BatchFigures | None:
        return None

    def run(self, action: Callable[[], Any]) -> Any:
        return action()

    def close(self) -> None:
        self.closed += 1


class AsyncBench:
    """An open operator, its scripted calls, its output."""

    def __init__(self, capacity: int = 3, ordered: bool = True) -> None:
        self.operator = AsyncWaitOperator(NumberAndSquare(), 1000, capacity, ordered)
        self.output = OutputInOrder()
        self.operator.set_up(self.output)
        made: list[ScriptedCalls] = []

        def start(work: AsyncWork | BatchWork, completed: Callable[[], None]) -> ScriptedCalls:
            made.append(ScriptedCalls(work, completed))
            return made[0]

        self.operator.open(
            replace(self.context(), async_calls=start, wait_until=lambda r: made[0].wait_until(r))
        )
        self.calls = made[0]

    def context(self) -> OperatorContext:
        return context()


class OutputInOrder(KeptOutput):
    """Keeps records and elements in one row."""

    def __init__(self) -> None:
        super().__init__()
        self.row: list[Any] = []

    def collect(self, bundle: Bundle) -> None:
        super().collect(bundle)
        self.row += bundle.records

    def emit_watermark(self, watermark: Watermark) -> None:
        super().emit_watermark(watermark)
        self.row.append(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        super().emit_status(status)
        self.row.append(status)
