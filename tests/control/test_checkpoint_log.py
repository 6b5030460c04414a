"""What people see of a job's checkpoints: counts, parts of tasks, the newest, in bounded memory."""

import pytest

from headgate.base.checkpoints import CheckpointFigures, CheckpointOptions, Stop
from headgate.base.job_records import CheckpointPart
from headgate.control import checkpoint_history
from headgate.control.checkpoint_history import KEPT, CheckpointHistory, CheckpointLog
from headgate.control.pending_checkpoint import CheckpointedTasks, PendingCheckpoint
from tests.control.checkpoint_kit import ALL, FIGURES, WALL_MS, ack, completed, coordinator, row
from tests.control.checkpoint_kit import state as written


def pending(number: int, tasks: int = 2, answered: int = 2) -> PendingCheckpoint:
    found = PendingCheckpoint(
        number, CheckpointOptions(WALL_MS), 0, CheckpointedTasks(row(tasks).members)
    )
    for subtask in range(answered):
        found.acked(written(f"0.{subtask}", number), FIGURES, 5)
    return found


def test_a_pending_checkpoint_shows_who_has_answered_and_when() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(row(1, 1), history)
    checkpoints.tick(1_000)
    figures = CheckpointFigures(3.0, 1.0, 9.0, 10, 5, unaligned=True)
    checkpoints.acked(1, written("0.0", 1), figures, 1_040)
    [record] = history.log.records(1_100)
    assert (record.checkpoint, record.kind, record.status) == (1, "checkpoint", "in_progress")
    assert (record.triggered_at_ms, record.took_ms, record.tasks) == (WALL_MS, 100, 2)
    assert record.parts == (CheckpointPart("0.0", 0, 0, 40, 3.0, 1.0, 9.0, 10, 5, True),)
    assert (record.state_bytes, record.in_flight_bytes, record.unaligned) == (10, 5, True)


def test_an_ended_checkpoint_keeps_its_times_and_the_reason_why_it_failed() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, tolerable_failures=5)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0", now_ms=1_010)
    checkpoints.declined(1, "1.0", "disk full", 1_030)
    completed(checkpoints, 2_000)
    newest, failed = history.log.records(9_000)
    assert (newest.checkpoint, newest.status, newest.problem) == (2, "completed", "")
    assert [part.task for part in newest.parts] == list(ALL)
    assert (failed.status, failed.problem) == ("failed", "task 1.0 declined it: disk full")
    assert (failed.took_ms, failed.tasks) == (30, 4)
    assert [(part.task, part.took_ms) for part in failed.parts] == [("0.0", 10)]


def test_an_old_checkpoint_that_ends_last_displaces_no_newer_one() -> None:
    log = CheckpointLog()
    old = pending(1)
    log.begun(old)
    for number in range(2, KEPT + 2):
        newer = pending(number)
        log.begun(newer)
        log.aborted(newer, "declined", 10, counts=True)
    log.aborted(old, "the storage has not answered", 20, counts=True)
    log.check()
    assert [record.checkpoint for record in log.records(20)] == list(range(KEPT + 1, 1, -1))


def test_a_savepoint_is_listed_with_its_folder_and_not_counted() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history)
    checkpoints.savepoint_wanted("/savepoints/1", Stop.NO, 100)
    ack(checkpoints, 1, *ALL, now_ms=100)
    checkpoints.stored(1, 150)
    [record] = history.log.records(150)
    assert (record.kind, record.status, record.path) == ("savepoint", "completed", "/savepoints/1")
    counts = history.log.statistics()
    assert (counts.triggered, counts.completed, counts.failed, counts.pending) == (0, 0, 0, 0)


def test_a_checkpoint_that_ends_with_its_attempt_is_listed_and_no_failure() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history)
    checkpoints.tick(1_000)
    checkpoints.run_ending("boom", 1_200)
    [record] = history.log.records(5_000)
    assert (record.status, record.problem) == ("failed", "the run has ended: boom")
    assert record.took_ms == 200
    counts = history.log.statistics()
    assert (counts.triggered, counts.failed, counts.pending) == (1, 0, 0)


def test_one_that_is_stored_after_its_attempt_counts_among_all_attempts() -> None:
    history = CheckpointHistory()
    first = coordinator(history=history)
    first.tick(1_000)
    ack(first, 1, *ALL, now_ms=1_000)
    first.run_ending("boom", 1_100)
    second = coordinator(history=history)
    assert history.log.statistics().pending == 1
    first.stored(1, 1_200)
    completed(second, 2_000)
    counts = history.log.statistics()
    assert (counts.triggered, counts.completed, counts.pending) == (2, 2, 0)
    assert [record.checkpoint for record in history.log.records(2_000)] == [2, 1]


def test_tasks_that_had_finished_before_are_not_asked() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(row(2, 1), history)
    checkpoints.task_finished("0.0", 500)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.1", "1.0", now_ms=1_000)
    checkpoints.stored(1, 1_000)
    [record] = history.log.records(1_000)
    assert record.tasks == len(record.parts) == 2


def test_only_the_newest_are_kept() -> None:
    log = CheckpointLog()
    for number in range(1, KEPT + 6):
        checkpoint = pending(number)
        log.begun(checkpoint)
        log.aborted(checkpoint, "no", 10, counts=True)
        log.check()
    log.begun(pending(KEPT + 6))
    numbers = [record.checkpoint for record in log.records(10)]
    assert numbers == list(range(KEPT + 6, 6, -1))
    assert log.statistics().failed == KEPT + 5


def test_of_very_many_tasks_the_newest_checkpoints_keep_their_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_history, "PARTS_KEPT", 10)
    log = CheckpointLog()
    for number, tasks in ((1, 4), (2, 4), (3, 4), (4, 12)):
        checkpoint = pending(number, tasks, tasks)
        log.begun(checkpoint)
        log.aborted(checkpoint, "no", 10, counts=True)
        log.check()
        if number == 3:
            assert [len(record.parts) for record in log.records(10)] == [4, 4, 0]
    assert [len(record.parts) for record in log.records(10)] == [12, 0, 0, 0]
    assert [record.tasks for record in log.records(10)] == [12, 4, 4, 4]


def test_one_that_is_stored_after_a_newer_one_is_listed_as_overtaken() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, max_concurrent=2)
    for number, now_ms in ((1, 1_000), (2, 2_000)):
        checkpoints.tick(now_ms)
        ack(checkpoints, number, *ALL, now_ms=now_ms)
    checkpoints.stored(2, 2_100)
    checkpoints.stored(1, 2_200)
    newer, older = history.log.records(2_200)
    assert (newer.status, older.status) == ("completed", "failed")
    assert older.problem == "a newer one was complete first"
    counts = history.log.statistics()
    assert (counts.completed, counts.failed, counts.pending) == (1, 0, 0)
