"""Tasks of a run come together or not at all, start last, and end when they are told to."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headgate.base.checkpoints import (
    ChannelState,
    DatabaseRestore,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.base.elements import Bundle, PickleSerializer
from headgate.base.errors import PartitionError, TaskCancelled
from headgate.base.figures import UNKNOWN
from headgate.base.messages import (
    CheckpointOrder,
    TaskFigures,
    TaskState,
    TimeAnnounced,
)
from headgate.core.buffers.buffer import bundle_bytes
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.source import SourceOperator
from headgate.functions.source import SplitLag
from tests.core.operators.kit import ScriptedReader, ScriptedSource
from tests.core.task.assembly_kit import Hall, Writings, double, order, reads, sink, source, vertex
from tests.core.task.kit import Lab, Shelf, abort, complete, trigger

LONG = "x" * 70_000


def test_all_tasks_of_an_order_are_assembled_before_one_starts() -> None:
    with Lab() as lab:
        hall = Hall(lab, source([1]), sink([]))
        ready = hall.tasks.assemble(
            [order("0.0", writes=1), order("1.0", reads("0.0"))], {"0.0": None}, {}
        )
        assert [task.name for task in ready] == ["0.0", "1.0"]
        assert not any(task.thread.is_alive for task in ready)
        hall.tasks.start(ready)
        assert all(task.thread.task is task.task for task in ready)
        hall.finish()
        hall.end()


def test_an_order_that_fails_takes_nothing() -> None:
    with Lab() as lab:
        hall = Hall(lab, source([1]), sink([]))
        with pytest.raises(PartitionError):
            hall.deploy(order("0.0", writes=1), order("1.0", reads("0.0", LONG)))
        assert not hall.tasks.tasks and not len(lab.environment.partitions)
        hall.deploy(order("0.0", writes=1))
        hall.end()


def test_after_a_cancellation_nothing_comes() -> None:
    with Lab() as lab:
        hall = Hall(lab, source([1]), sink([]))
        (task,) = hall.deploy(order("0.0", writes=1))
        task.task.step()
        hall.tasks.cancel()
        assert task.thread.cancelled and task.state is TaskState.CANCELLING
        with pytest.raises(TaskCancelled, match="before its tasks were set up"):
            hall.deploy(order("1.0", reads("0.0")))
        hall.end()


def test_what_a_task_that_runs_has_written_is_left_alone() -> None:
    with Lab() as lab:
        hall = Hall(lab, source([1]), double())
        hung, ended = hall.deploy(order("0.0", writes=1), order("1.0", reads("0.0"), writes=1))
        ended.task.cancel()
        ended.task.close(None)
        ended.thread.is_alive = False
        hall.tasks.release_partitions()
        assert ended.writers[0].partition.released
        assert not hung.writers[0].partition.released
        hall.end()
        assert hung.writers[0].partition.released


# Checkpoints.


def triggered(hall: Hall, task: str, checkpoint: int = 4) -> str:
    """Why it cannot be, or nothing."""
    found = [deployed for deployed in hall.tasks.tasks if deployed.name == task]
    return trigger(found[0].task, checkpoint)


def test_a_checkpoint_begins_only_in_a_task_that_has_not_failed() -> None:
    writings = Writings(CheckpointOrder("folder", "job"), Shelf())
    with Lab() as lab:
        hall = Hall(lab, source([1], [2]), checkpoints=writings)
        (task,) = hall.deploy(order("0.0", writes=1))
        assert triggered(hall, "0.0") == ""
        task.task.step()
        assert len(writings.tasks) == 1
        hall.tasks.cancel()
        hall.end()
        assert triggered(hall, "0.0") == "", "its end says why there is no checkpoint"


def test_tasks_are_told_of_checkpoints_and_of_time() -> None:
    shelf = Shelf()
    writings = Writings(CheckpointOrder("folder", "job"), shelf)
    with Lab() as lab:
        hall = Hall(lab, source([1], [2]), checkpoints=writings)
        (task,) = hall.deploy(order("0.0", writes=1))
        triggered(hall, "0.0")
        task.task.step()
        task.task.obey(TimeAnnounced("run", "group", 5))
        complete(task.task, 4)
        abort(task.task, 4, "the user wants it")
        task.task.step()
        assert shelf.last.aborted
        shelf.last.done()
        assert hall.tasks.commits_longer_than(0) == []
        hall.end()


def test_figures_name_their_task_and_what_a_source_has_made() -> None:
    got: list[Any] = []
    with Lab() as lab:
        hall = Hall(lab, source([1], [2, 3]), sink(got))
        hall.deploy(order("0.0", writes=1), order("1.0", reads("0.0")))
        hall.finish()
        made, read = hall.tasks.figures()
        assert (made.task, made.vertex, made.subtask, made.records_made) == ("0.0", 0, 0, 3)
        assert (read.task, read.records_in, read.records_made) == ("1.0", 3, 0)
        assert {made.state, read.state} == {TaskState.FINISHED}
        hall.end()


def figures(hall: Hall) -> TaskFigures:
    return next(hall.tasks.figures())


def test_the_size_of_state_is_that_of_the_last_checkpoint_if_the_backend_does_not_know() -> None:
    shelf = Shelf()
    writings = Writings(CheckpointOrder("folder", "job"), shelf)
    with Lab() as lab:
        hall = Hall(lab, source([1], [2], [3]), checkpoints=writings)
        (task,) = hall.deploy(order("0.0", writes=1))
        assert figures(hall).state_bytes == UNKNOWN
        for checkpoint, size in [(1, 120), (2, None)]:
            triggered(hall, "0.0", checkpoint)
            task.task.step()
            shelf.last.state_bytes = size
            shelf.last.done()
            task.task.step()
            assert figures(hall).state_bytes == 120
        hall.end()


def test_lag_and_splits_of_a_source_are_reported_and_warnings_with_their_task() -> None:
    class Reader(ScriptedReader):
        def lag(self) -> SplitLag:
            if not self._left:
                raise OSError("no answer")
            return SplitLag(len(self._left), 10 * len(self._left))

    class Source(ScriptedSource):
        records_per_second = 40.0

        def open(self, split: Any, position: object, context: OperatorContext) -> Reader:
            return Reader(self, split)

    with Lab() as lab:
        make = lambda: SourceOperator(Source(), (([1], [2], [3]),))  # noqa: E731
        hall = Hall(lab, vertex("numbers", make, is_source=True, outputs=1))  # type: ignore[arg-type]
        (task,) = hall.deploy(order("0.0", writes=1))
        first = figures(hall)
        assert (first.lag_records, first.lag_bytes, first.lag_ms) == (UNKNOWN,) * 3
        assert first.declared_rate == 40.0
        task.task.step()
        seen = figures(hall)
        assert (seen.splits, seen.lag_records, seen.lag_bytes) == (1, 3, 30)
        assert seen.lag_ms == UNKNOWN
        task.task.step()
        task.task.step()
        figures(hall)
        task.task.step()
        ((name, text),) = hall.tasks.take_warnings()
        assert name == task.task.name
        assert text == "lag() of source 'numbers' has failed: OSError('no answer')"
        hall.end()


# What tasks get back.


class Pieces:
    """See ``PieceReader``; a piece holds its own bytes."""

    def read(self, piece: Piece) -> bytes:
        return piece.inline

    def key_groups(self, keyed: Any) -> Any:
        for group, piece in keyed.items():
            yield group, piece.inline

    def database(self, restore: DatabaseRestore) -> Any:
        return range(restore.first, restore.end)


def piece(data: bytes) -> Piece:
    return Piece("", 0, len(data), 0, data)


def test_what_a_task_gets_back_is_read_before_it_is_assembled() -> None:
    written = bundle_bytes(Bundle([5, 6]), PickleSerializer())
    before = bundle_bytes(Bundle([1]), PickleSerializer())
    restore = TaskRestore(
        "1.0",
        3,
        (
            OperatorRestore(
                "uid sink",
                {7: piece(b"k")},
                (DatabaseRestore(1, 4, {}),),
                (None, piece(b"p")),
                (piece(b"s"),),
                (piece(b"c"),),
            ),
        ),
        (ChannelState(True, 0, 0, (piece(written),)), ChannelState(False, 0, 1, (piece(b"o"),))),
        (ReassignedStream(0, 0, 0, False, (piece(before),)),),
    )
    got: list[Any] = []
    with Lab() as lab:
        hall = Hall(lab, source([9]), sink(got))
        orders = [
            order("0.0", writes=1),
            msgspec.structs.replace(order("1.0", reads("0.0")), restore=restore),
        ]
        restored = hall.tasks.read(orders, Pieces())
        assert list(restored) == ["1.0"]
        found = restored["1.0"]
        operator = found.operators["uid sink"]
        assert dict(operator.keyed()) == {7: b"k"}
        assert (operator.checkpoint, operator.plain, operator.source) == (3, (None, b"p"), (b"s",))
        assert (operator.sinks, operator.databases) == ((b"c",), (range(1, 4),))
        assert found.outputs == [(0, 1, [b"o"])] and not found.finished
        hall.deploy(*orders, restored={"1.0": replace(found, operators={}, outputs=())})
        hall.finish()
        assert got == [1, 5, 6, 9], "reassigned records first, then those of the channel"
        hall.end()
