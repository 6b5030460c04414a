"""Sinks: the end of the stream, one record or one list at a time."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from headgate.base.checkpoints import Stop
from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.base.errors import StateBroken
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import SinkFunctionOperator, SinkOperator, TwoPhaseSinkOperator
from headgate.functions.context import ConnectorContext, SnapshotMoment
from tests.core.chain.kit import NOW_MS, context, open_operator, run
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context


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

    def create_writer(self, context: ConnectorContext) -> "Store":
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


class Shelf:
    """The world: lots of records that were put there, and those of them that count."""

    def __init__(self) -> None:
        self.lots: dict[int, list[Any]] = {}
        self.counting: dict[int, None] = {}
        self.log: list[str] = []

    def committed(self) -> list[Any]:
        return [record for lot in self.counting for record in self.lots[lot]]


class ShelfSink:
    """Commits lots of a shelf by their numbers."""

    def __init__(self, shelf: Shelf, fails_in: str = "") -> None:
        self.shelf = shelf
        self.fails_in = fails_in

    def create_writer(self, context: OperatorContext) -> "ShelfWriter":
        self.note("create writer")
        return ShelfWriter(self)

    def create_committer(self, context: OperatorContext) -> "ShelfCommitter":
        self.note("create committer")
        return ShelfCommitter(self)

    def note(self, what: str) -> None:
        self.shelf.log.append(what)
        if self.fails_in == what:
            raise OSError(what)


class ShelfWriter:
    def __init__(self, sink: ShelfSink) -> None:
        self._sink = sink
        self._records: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self._records += records

    def flush(self) -> None:
        self._sink.note("flush")

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Any]:
        self._sink.note("prepare")
        if not self._records:
            return ()
        number = len(self._sink.shelf.lots)
        self._sink.shelf.lots[number] = self._records
        self._records = []
        return [number]

    def unfinished(self) -> Sequence[Any]:
        return ()

    def close(self) -> None:
        self._sink.note("close writer")


class ShelfCommitter:
    def __init__(self, sink: ShelfSink) -> None:
        self._sink = sink

    def commit(self, committables: Sequence[Any]) -> None:
        self._sink.note("commit")
        for lot in committables:
            assert lot not in self._sink.shelf.counting, "a fresh lot counts already"
            self._sink.shelf.counting[lot] = None

    def commit_again(self, committables: Sequence[Any]) -> None:
        self._sink.note("commit again")
        for lot in committables:
            self._sink.shelf.counting[lot] = None

    def close(self) -> None:
        self._sink.note("close committer")


def moment(checkpoint: int, savepoint: bool = False, stop: Stop = Stop.NO) -> SnapshotMoment:
    return SnapshotMoment(checkpoint, 0, savepoint, stop)


def opened(shelf: Shelf, fails_in: str = "", **about: Any) -> TwoPhaseSinkOperator:
    return open_sink(ShelfSink(shelf, fails_in), sink_context(**about))


def test_what_was_prepared_is_committed_when_its_checkpoint_is_complete() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1, 2]), 0)
    assert operator.snapshot(moment(1)).sink is not None
    operator.process(Bundle([3]), 0)
    assert shelf.committed() == []
    operator.checkpoint_completed(1)
    assert shelf.committed() == [1, 2]
    operator.checkpoint_completed(1)
    operator.close()
    assert shelf.committed() == [1, 2]


def test_a_checkpoint_commits_nothing_of_the_next_one() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    for number in (1, 2):
        operator.process(Bundle([number]), 0)
        operator.snapshot(moment(number))
    operator.checkpoint_completed(1)
    assert shelf.committed() == [1]
    operator.checkpoint_completed(2)
    assert shelf.committed() == [1, 2]
    operator.close()


def test_a_checkpoint_without_new_records_holds_nothing() -> None:
    operator = opened(Shelf())
    assert operator.snapshot(moment(1)).sink is None
    operator.close()


def test_a_later_checkpoint_commits_what_an_aborted_one_was_to_commit() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1))
    operator.checkpoint_aborted(1)
    operator.process(Bundle([2]), 0)
    operator.snapshot(moment(2))
    operator.snapshot(moment(3))
    operator.checkpoint_completed(2)
    assert shelf.committed() == [1, 2]
    operator.close()


def test_a_savepoint_commits_nothing_by_itself_and_its_lot_goes_with_the_next_one() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1, savepoint=True))
    assert shelf.committed() == []
    operator.snapshot(moment(2))
    operator.checkpoint_completed(2)
    assert shelf.committed() == [1]
    operator.close()


def test_a_new_run_commits_what_it_finds_before_it_writes() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1]), 0)
    state = operator.snapshot(moment(1)).sink
    assert state is not None
    operator.close()
    shelf.log.clear()
    for _ in range(2):
        opened(shelf, restored=OperatorRestored(1, sinks=(state,))).close()
        assert shelf.committed() == [1]
    assert shelf.log[:3] == ["create committer", "commit again", "create writer"]


def test_at_the_end_it_waits_for_one_more_checkpoint_if_anything_is_left() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1))
    operator.process(Bundle([2]), 0)
    operator.finish()
    operator.checkpoint_completed(1)
    assert operator.awaits_checkpoint
    operator.snapshot(moment(2))
    operator.checkpoint_aborted(2)
    assert operator.awaits_checkpoint
    operator.snapshot(moment(3))
    operator.checkpoint_completed(3)
    assert not operator.awaits_checkpoint
    operator.close()
    assert shelf.committed() == [1, 2]


def test_at_the_end_it_waits_for_nothing_if_everything_is_committed() -> None:
    operator = opened(Shelf())
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1))
    operator.checkpoint_completed(1)
    operator.finish()
    assert not operator.awaits_checkpoint
    operator.close()


def test_without_checkpoints_everything_is_committed_at_the_end() -> None:
    shelf = Shelf()
    operator = opened(shelf, checkpoints=False)
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1, savepoint=True))
    operator.process(Bundle([2]), 0)
    assert shelf.committed() == []
    operator.finish()
    assert not operator.awaits_checkpoint
    operator.close()
    assert shelf.committed() == [1, 2]


def test_a_job_without_checkpoints_that_is_stopped_commits_with_its_savepoint() -> None:
    shelf = Shelf()
    operator = opened(shelf, checkpoints=False)
    operator.process(Bundle([1]), 0)
    operator.snapshot(moment(1, savepoint=True, stop=Stop.SUSPEND))
    operator.checkpoint_completed(1)
    operator.close()
    assert shelf.committed() == [1]


def test_after_a_failure_nothing_is_committed_and_both_are_closed() -> None:
    shelf = Shelf()
    operator = opened(shelf)
    operator.process(Bundle([1]), 0)
    operator.close()
    operator.close()
    assert shelf.log[-2:] == ["close writer", "close committer"]
    assert shelf.log.count("close committer") == 1
    assert shelf.committed() == []


@pytest.mark.parametrize("place", ["flush", "prepare"])
def test_a_writer_that_could_not_prepare_takes_no_more(place: str) -> None:
    operator = opened(Shelf(), fails_in=place)
    operator.process(Bundle([1]), 0)
    for act in (
        lambda: operator.snapshot(moment(1)),
        lambda: operator.process(Bundle([2]), 0),
        lambda: operator.snapshot(moment(2)),
        operator.finish,
    ):
        with pytest.raises(OSError, match=place):
            act()
    operator.close()


def test_a_commit_that_fails_is_tried_by_the_next_run() -> None:
    shelf = Shelf()
    operator = opened(shelf, fails_in="commit")
    operator.process(Bundle([1]), 0)
    state = operator.snapshot(moment(1)).sink
    with pytest.raises(OSError, match="commit"):
        operator.checkpoint_completed(1)
    operator.close()
    assert state is not None
    opened(shelf, restored=OperatorRestored(1, sinks=(state,))).close()
    assert shelf.committed() == [1]


def test_a_committer_is_closed_if_there_is_no_writer() -> None:
    shelf = Shelf()
    with pytest.raises(OSError, match="create writer"):
        opened(shelf, fails_in="create writer")
    assert shelf.log[-1] == "close committer"


class Unpicklable(ShelfWriter):
    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Any]:
        return [lambda: None]


def test_a_committable_that_cannot_be_kept_is_told() -> None:
    sink = ShelfSink(Shelf())
    sink.create_writer = lambda context: Unpicklable(sink)  # type: ignore[method-assign]
    operator = open_sink(sink, sink_context())
    with pytest.raises(StateBroken, match="operator 'out': what the sink has prepared cannot be"):
        operator.snapshot(moment(1))
    operator.close()


@pytest.mark.parametrize("state", [b"", b"no pickle", b"\x80\x05K\x07]\x86."])
def test_a_state_that_cannot_be_read_is_told(state: bytes) -> None:
    with pytest.raises(StateBroken, match="what a sink has prepared"):
        opened(Shelf(), restored=OperatorRestored(1, sinks=(state,)))


@settings(max_examples=2 * settings.default.max_examples)  # type: ignore[union-attr]
@given(STEPS)
def test_whatever_happens_each_record_counts_once(steps: list[tuple[Any, ...]]) -> None:
    shelf = Shelf()
    run_job(SinkJob(lambda: ShelfSink(shelf), shelf.committed), steps, TOTAL)
