"""Sinks: the end of the stream, one record or one list at a time."""

from typing import Any

import pytest

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.snapshots import SnapshotMoment
from headgate.core.operators.sinks import SinkFunctionOperator, SinkOperator
from tests.core.chain.kit import NOW_MS, context, open_operator, run


class Invoked:
    """A sink function that keeps what it learns."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def invoke(self, value: Any, context: Any) -> None:
        self.got.append((value, context.timestamp(), context.current_processing_time()))


class Store:
    """A sink and its writer in one, with a log."""

    def __init__(self, fails_in: str = "") -> None:
        self.log: list[Any] = []
        self._fails_in = fails_in

    def create_writer(self, context: OperatorContext) -> "Store":
        self._note(f"create for {context.operator}")
        return self

    def write(self, records: list[Any]) -> None:
        self.log.append(list(records))

    def flush(self) -> None:
        self._note("flush")

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.log.append(what)
        if what.startswith(self._fails_in) and self._fails_in:
            raise OSError(what)


def test_a_sink_function_learns_value_and_times() -> None:
    function = Invoked()
    output = run(SinkFunctionOperator(function), [Bundle([1, 2], [10, None]), Bundle([3])])
    assert function.got == [
        (1, 10, NOW_MS),
        (2, MIN_WATERMARK_MS, NOW_MS),
        (3, MIN_WATERMARK_MS, NOW_MS),
    ]
    assert not output.bundles


def test_a_plain_function_gets_the_value_alone() -> None:
    got: list[int] = []
    run(SinkFunctionOperator(got.append), [Bundle([1, 2], [10, 20]), Bundle([3])])
    assert got == [1, 2, 3]


def test_a_sinks_writer_gets_whole_bundles_and_is_flushed_at_the_end() -> None:
    store = Store()
    run(SinkOperator(store), [Bundle([1, 2]), Bundle([3])])
    assert store.log == ["create for op", [1, 2], [3], "flush", "close"]


def test_after_a_failure_the_writer_is_closed_without_a_flush() -> None:
    store = Store()
    operator = SinkOperator(store)
    open_operator(operator)
    operator.close()
    operator.close()
    assert store.log == ["create for op", "close"]


def test_a_writer_that_was_not_made_is_not_closed() -> None:
    store = Store(fails_in="create")
    operator = SinkOperator(store)
    with pytest.raises(OSError, match="create"):
        operator.open(context())
    operator.close()
    assert store.log == ["create for op"]


def test_a_writer_that_fails_in_flush_is_closed_nevertheless() -> None:
    store = Store(fails_in="flush")
    operator = SinkOperator(store)
    open_operator(operator)
    with pytest.raises(OSError, match="flush"):
        operator.finish()
    operator.close()
    assert store.log[-1] == "close"


def test_what_a_writer_keeps_back_is_let_go_before_a_barrier() -> None:
    store = Store()
    operator = SinkOperator(store)
    open_operator(operator)
    operator.process(Bundle([1]), 0)
    operator.before_barrier(SnapshotMoment(1, 0))
    assert store.log == ["create for op", [1], "flush"]
    operator.close()


def test_a_writer_that_wants_to_know_of_the_end_is_told() -> None:
    store = Store()
    store.finish = lambda: store.log.append("finish")  # type: ignore[attr-defined]
    run(SinkOperator(store), [Bundle([1])])
    assert store.log == ["create for op", [1], "flush", "finish", "close"]
