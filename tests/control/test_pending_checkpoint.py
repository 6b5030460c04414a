"""One checkpoint on its way: who begins it, who has answered, when it is whole."""

import pytest

from headgate.base.checkpoints import CheckpointFigures, CheckpointKind, CheckpointOptions
from headgate.control.pending_checkpoint import CheckpointedTasks, PendingCheckpoint
from tests.control.checkpoint_kit import FIGURES, WALL_MS, row, state

OPTIONS = CheckpointOptions(WALL_MS)


def heads(tasks: CheckpointedTasks) -> list[str]:
    return [member.task for member in tasks.heads()]


def test_a_checkpoint_begins_at_the_first_tasks_that_run() -> None:
    tasks = CheckpointedTasks(row(2, 1, 1).members)
    assert heads(tasks) == ["0.0", "0.1"]
    assert tasks.task_finished("0.0")
    assert not tasks.task_finished("0.0"), "that is no news"
    assert not tasks.task_finished("9.9"), "nor is this"
    assert heads(tasks) == ["0.1"]
    for task, expected in (("0.1", ["1.0"]), ("1.0", ["2.0"]), ("2.0", [])):
        tasks.task_finished(task)
        assert heads(tasks) == expected
    assert tasks.all_finished


def test_each_head_is_told_once_and_not_if_it_has_answered() -> None:
    tasks = CheckpointedTasks(row(1, 1).members)
    pending = PendingCheckpoint(1, OPTIONS, 0, tasks)
    assert [member.task for member in pending.untriggered_heads()] == ["0.0"]
    assert pending.untriggered_heads() == []
    pending.acked(state("0.0", 1), FIGURES, 0)
    pending.acked(state("1.0", 1), FIGURES, 0)
    tasks.task_finished("0.0")
    pending.finished("0.0")
    assert pending.untriggered_heads() == [], "it has taken it from the barrier"


def test_the_first_answer_of_a_task_counts() -> None:
    pending = PendingCheckpoint(4, OPTIONS, 0, CheckpointedTasks(row(1, 1).members))
    pending.acked(state("0.0", 4), FIGURES, 0)
    pending.acked(state("0.0", 5), CheckpointFigures(unaligned=True), 0)
    pending.finished("0.0")
    assert pending.missing == ["1.0"]
    assert not pending.is_fully_acknowledged
    with pytest.raises(AssertionError, match="waits for"):
        pending.complete(row(1, 1), WALL_MS)
    pending.acked(state("1.0", 4), FIGURES, 0)
    metadata = pending.complete(row(1, 1), WALL_MS + 9)
    assert metadata.tasks == (state("0.0", 4), state("1.0", 4))
    assert (metadata.checkpoint, metadata.completed_ms) == (4, WALL_MS + 9)
    assert metadata.kind is CheckpointKind.CHECKPOINT
    assert not metadata.unaligned
    assert pending.is_storing


def test_who_had_finished_before_has_answered() -> None:
    tasks = CheckpointedTasks(row(1, 1).members)
    tasks.task_finished("0.0")
    pending = PendingCheckpoint(1, OPTIONS, 0, tasks)
    assert pending.states == {"0.0": tasks.members["0.0"].blank}
    assert pending.missing == ["1.0"]


def test_nobody_finishes_before_its_producers() -> None:
    tasks = CheckpointedTasks(row(1, 1, 1).members)
    pending = PendingCheckpoint(1, OPTIONS, 0, tasks)
    pending.finished("0.0")
    pending.acked(state("1.0", 1), FIGURES, 0)
    pending.acked(state("2.0", 1), FIGURES, 0)
    assert pending.contradiction() == ""
    wrong = PendingCheckpoint(2, OPTIONS, 0, tasks)
    wrong.finished("0.0")
    wrong.acked(state("1.0", 2), FIGURES, 0)
    wrong.finished("2.0")
    assert wrong.contradiction() == "task 2.0 had finished before it and its producer 1.0 not"
