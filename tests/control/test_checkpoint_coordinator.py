"""The coordinator of checkpoints: when one begins, when it is complete, what ends it."""

import pytest

from headgate.base.checkpoints import (
    CheckpointFigures,
    CheckpointKind,
    CheckpointOptions,
    OperatorState,
    Piece,
    Stop,
    SubtaskState,
)
from headgate.base.messages import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from headgate.base.recovery_settings import CheckpointSettings, Consistency
from headgate.control.checkpoint_coordinator import REMEMBERED, CheckpointCoordinator
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import (
    CheckpointEffect,
    DiscardStates,
    DropCheckpoint,
    FailRun,
    SavepointDone,
    Send,
    StoreCheckpoint,
)
from tests.control.checkpoint_kit import (
    ALL,
    EDGES,
    FIGURES,
    RUN,
    WALL_MS,
    abort,
    ack,
    complete,
    completed,
    coordinator,
    only,
    row,
    sent,
    state,
    triggered,
    wall,
)


def kinds(effects: list[CheckpointEffect]) -> list[str]:
    """A message to all task managers counts once."""
    done = [effect.message if isinstance(effect, Send) else effect for effect in effects]
    return [type(what).__name__ for at, what in enumerate(done) if what not in done[:at]]


# When one begins.


def test_sources_are_triggered_at_the_interval() -> None:
    checkpoints = coordinator()
    assert checkpoints.next_deadline_ms == 1_000
    assert checkpoints.tick(999) == []
    effects = checkpoints.tick(1_000)
    assert triggered(effects) == [("0.0", 1), ("0.1", 1)]
    assert {message.options for message in sent(CheckpointTriggered, effects)} == {
        CheckpointOptions(WALL_MS)
    }
    assert checkpoints.next_deadline_ms == 601_000, "its timeout"


def test_nothing_begins_before_the_start_or_without_an_interval() -> None:
    settings = CheckpointSettings(interval_ms=10)
    checkpoints = CheckpointCoordinator(RUN, row(2, 2), settings, CheckpointHistory(), wall)
    assert checkpoints.next_deadline_ms is None
    assert checkpoints.tick(5_000) == []
    never = coordinator(interval_ms=-1)
    assert never.next_deadline_ms is None
    assert never.tick(10**9) == []


def test_the_next_one_waits_until_the_last_is_stored_and_then_begins_at_once() -> None:
    checkpoints = coordinator()
    checkpoints.tick(1_000)
    assert checkpoints.tick(2_500) == []
    assert only(StoreCheckpoint, ack(checkpoints, 1, *ALL, now_ms=2_600))
    assert checkpoints.tick(2_700) == []
    effects = checkpoints.stored(1, 2_800)
    assert kinds(effects) == ["CheckpointCompleted", "CheckpointTriggered", "CheckpointTriggered"]
    assert triggered(effects) == [("0.0", 2), ("0.1", 2)]


def test_the_minimum_pause_counts_from_the_end_of_the_last_one() -> None:
    checkpoints = coordinator(min_pause_ms=700, max_concurrent=5)
    checkpoints.tick(1_000)
    assert checkpoints.tick(2_000) == [], "a pause leaves room for one only"
    ack(checkpoints, 1, *ALL, now_ms=2_100)
    checkpoints.stored(1, 2_100)
    assert checkpoints.next_deadline_ms == 2_800
    assert checkpoints.tick(2_799) == []
    assert triggered(checkpoints.tick(2_800)) == [("0.0", 2), ("0.1", 2)]


def test_so_many_are_on_their_way_as_are_allowed() -> None:
    checkpoints = coordinator(max_concurrent=2)
    assert [len(checkpoints.tick(now)) for now in (1_000, 2_000, 3_000)] == [2, 2, 0]
    ack(checkpoints, 1, *ALL)
    assert checkpoints.tick(3_100) == [], "one that is being stored counts"
    assert triggered(checkpoints.stored(1, 3_200)) == [("0.0", 3), ("0.1", 3)]


def test_barriers_that_may_overtake_leave_room_for_one() -> None:
    checkpoints = coordinator(max_concurrent=3, unaligned=True, aligned_timeout_ms=50)
    [first, *_] = sent(CheckpointTriggered, checkpoints.tick(1_000))
    assert first.options == CheckpointOptions(WALL_MS, overtake_after_ms=50)
    assert checkpoints.tick(2_000) == []


def test_at_least_once_never_overtakes() -> None:
    checkpoints = coordinator(unaligned=True, mode=Consistency.AT_LEAST_ONCE)
    [first, *_] = sent(CheckpointTriggered, checkpoints.tick(1_000))
    assert first.options == CheckpointOptions(WALL_MS, exactly_once=False)


def test_a_task_that_waits_for_a_checkpoint_does_not_wait_for_the_interval() -> None:
    checkpoints = coordinator(min_pause_ms=300)
    assert triggered(checkpoints.checkpoint_wanted(100)) == [("0.0", 1), ("0.1", 1)]
    ack(checkpoints, 1, *ALL)
    checkpoints.stored(1, 200)
    assert checkpoints.checkpoint_wanted(210) == []
    assert checkpoints.next_deadline_ms == 500, "but for the pause"
    assert coordinator(interval_ms=-1).checkpoint_wanted(0) == []


# When it is complete.


def test_a_complete_checkpoint_has_every_task_in_the_order_of_the_job() -> None:
    checkpoints = coordinator()
    checkpoints.tick(1_000)
    assert ack(checkpoints, 1, "1.1", "0.0", "1.0", "1.0") == []
    [store] = ack(checkpoints, 1, "0.1")
    assert isinstance(store, StoreCheckpoint)
    metadata = store.metadata
    assert [task.task for task in metadata.tasks] == list(ALL)
    assert (metadata.checkpoint, metadata.job, metadata.name) == (1, "job 1", "orders")
    assert (metadata.triggered_ms, metadata.completed_ms) == (WALL_MS, WALL_MS)
    assert metadata.edges == EDGES
    assert not metadata.unaligned
    assert checkpoints.is_storing
    assert checkpoints.stored(1, 1_100) == complete(1)
    assert not checkpoints.is_storing


def test_a_task_that_went_unaligned_marks_the_whole() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(row(1, 1), history)
    checkpoints.tick(1_000)
    checkpoints.acked(1, state("0.0", 1), FIGURES, 1_000)
    unaligned = CheckpointFigures(3.0, 1.0, 9.0, 10, 5, unaligned=True)
    [store] = only(StoreCheckpoint, checkpoints.acked(1, state("1.0", 1), unaligned, 1_000))
    assert store.metadata.unaligned
    checkpoints.stored(1, 1_250)
    last = history.log.statistics().last
    assert last is not None and last.unaligned
    assert (last.took_ms, last.in_flight_bytes) == (250, 5)
    assert [(part.align_ms, part.async_ms) for part in last.parts][-1] == (3, 9)
    assert last.state_bytes == 20


def test_numbers_grow_over_attempts() -> None:
    history = CheckpointHistory()
    completed(coordinator(history=history), 1_000)
    again = coordinator(history=history)
    assert triggered(again.tick(1_000)) == [("0.0", 2), ("0.1", 2)]


def test_older_ones_are_dropped_and_savepoints_are_not() -> None:
    history = CheckpointHistory(retained=2)
    checkpoints = coordinator(history=history)
    completed(checkpoints, 1_000)
    checkpoints.savepoint_wanted("sp", Stop.NO, 1_100)
    ack(checkpoints, 2, *ALL)
    checkpoints.stored(2, 1_200)
    assert only(DropCheckpoint, completed(checkpoints, 2_000)) == []
    [drop] = only(DropCheckpoint, completed(checkpoints, 3_000))
    assert drop.metadata.checkpoint == 1
    assert [metadata.checkpoint for metadata in history.complete] == [3, 4]


# What ends it.


def test_a_task_that_declines_ends_the_checkpoint_and_too_many_end_the_run() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, tolerable_failures=1)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0")
    effects = checkpoints.declined(1, "1.0", "disk full", 1_100)
    reason = "task 1.0 declined it: disk full"
    assert effects == [*abort(1, reason), DiscardStates(1, (state("0.0", 1),))]
    checkpoints.tick(2_000)
    effects = checkpoints.declined(2, "1.0", "disk full", 2_100)
    assert kinds(effects) == ["CheckpointAborted", "FailRun"]
    [failed] = only(FailRun, effects)
    assert "checkpoint 2 has failed: task 1.0 declined it: disk full (2 in a row" in failed.reason
    assert checkpoints.tick(9_000) == [], "nothing begins in a run that fails"
    assert checkpoints.savepoint_wanted("sp", Stop.NO, 9_000) == [
        SavepointDone("sp", None, "the job is failing")
    ]
    assert history.log.statistics().failed == 2


def test_a_complete_checkpoint_forgives_the_failures_before_it() -> None:
    checkpoints = coordinator(tolerable_failures=1)
    for now, number in ((1_000, 1), (3_000, 3), (5_000, 5)):
        checkpoints.tick(now)
        assert not only(FailRun, checkpoints.declined(number, "1.0", "no", now))
        assert sent(CheckpointCompleted, completed(checkpoints, now + 1_000))


def test_one_that_takes_too_long_is_given_up_and_says_for_whom_it_waited() -> None:
    checkpoints = coordinator(timeout_ms=500, tolerable_failures=9)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0", "1.0", "1.1")
    assert checkpoints.tick(1_499) == []
    [aborted] = sent(CheckpointAborted, checkpoints.tick(1_500))
    assert aborted.reason == "it was not complete after 500 ms; it still waits for tasks 0.1"


def test_one_that_is_being_stored_is_not_given_up() -> None:
    checkpoints = coordinator(timeout_ms=500)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, *ALL)
    assert checkpoints.next_deadline_ms is None
    assert checkpoints.tick(60_000) == []
    assert checkpoints.declined(1, "0.0", "too late", 60_000) == []
    assert sent(CheckpointCompleted, checkpoints.stored(1, 60_000))


def test_what_comes_late_for_one_that_was_given_up_is_named_for_cleaning() -> None:
    checkpoints = coordinator(tolerable_failures=9)
    checkpoints.tick(1_000)
    checkpoints.declined(1, "1.0", "no", 1_000)
    assert ack(checkpoints, 1, "0.0") == [DiscardStates(1, (state("0.0", 1),))]
    inline = OperatorState("uid 0", "operator 0", plain=Piece("", 0, 1, 0, b"x"))
    small = SubtaskState("0.1", 0, 1, 2, 128, (inline,))
    assert checkpoints.acked(1, small, FIGURES, 1_000) == [], "there is no file"
    assert ack(checkpoints, 1, "7.7") == [], "nobody knows that task"
    assert checkpoints.declined(1, "0.0", "no", 1_000) == []


def test_what_comes_twice_for_a_complete_one_harms_nobody() -> None:
    checkpoints = coordinator()
    completed(checkpoints, 1_000)
    checkpoints.savepoint_wanted("sp", Stop.NO, 1_100)
    ack(checkpoints, 2, *ALL)
    assert checkpoints.stored(2, 1_100) == [SavepointDone("sp", 2)]
    assert ack(checkpoints, 1, *ALL) == ack(checkpoints, 2, *ALL) == []


def test_only_so_many_given_up_ones_are_remembered() -> None:
    checkpoints = coordinator(interval_ms=10, tolerable_failures=10**6)
    for number in range(1, REMEMBERED + 2):
        checkpoints.tick(number * 10)
        checkpoints.declined(number, "1.0", "no", number * 10)
    assert ack(checkpoints, 1, "0.0") == []
    assert kinds(ack(checkpoints, 2, "0.0")) == ["DiscardStates"]


def test_a_newer_one_that_is_complete_ends_the_older_without_a_failure() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, max_concurrent=2)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0")
    checkpoints.tick(2_000)
    ack(checkpoints, 2, *ALL)
    effects = checkpoints.stored(2, 2_500)
    assert effects == [
        *complete(2),
        *abort(1, "checkpoint 2 was complete first"),
        DiscardStates(1, (state("0.0", 1),)),
    ]
    assert history.log.statistics().failed == 0


def test_an_older_one_that_is_stored_too_late_is_dropped() -> None:
    checkpoints = coordinator(max_concurrent=2)
    checkpoints.tick(1_000)
    checkpoints.tick(2_000)
    [old] = only(StoreCheckpoint, ack(checkpoints, 1, *ALL))
    ack(checkpoints, 2, *ALL)
    assert checkpoints.stored(2, 2_500) == complete(2)
    assert checkpoints.stored(1, 2_600) == [DropCheckpoint(old.metadata)]


def test_one_that_a_newer_one_has_reached_first_is_no_failure() -> None:
    checkpoints = coordinator(max_concurrent=2)
    checkpoints.tick(1_000)
    checkpoints.tick(2_000)
    effects = checkpoints.declined(1, "1.0", "2 came first", 2_100, subsumed=True)
    assert kinds(effects) == ["CheckpointAborted"]


def test_storage_that_fails_is_a_failure_and_whatever_it_has_left_is_dropped() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, tolerable_failures=1)
    completed(checkpoints, 1_000)
    checkpoints.tick(2_000)
    [store] = only(StoreCheckpoint, ack(checkpoints, 2, *ALL))
    effects = checkpoints.store_failed(2, "No space left on device", 2_100)
    assert effects == [
        DropCheckpoint(store.metadata),
        *abort(2, "it could not be stored: No space left on device"),
    ]
    assert [metadata.checkpoint for metadata in history.complete] == [1]


# Tasks that have finished.


def test_a_task_that_had_finished_counts_as_answered() -> None:
    checkpoints = coordinator()
    assert checkpoints.task_finished("0.0", 500) == checkpoints.task_finished("0.0", 500) == []
    assert triggered(checkpoints.tick(1_000)) == [("0.1", 1)]
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, "0.1", "1.0", "1.1"))
    assert [task.finished for task in store.metadata.tasks] == [True, False, False, False]
    assert store.metadata.tasks[0].operators == (OperatorState("uid 0", "operator 0"),)


def test_behind_finished_tasks_the_first_that_run_are_triggered() -> None:
    checkpoints = coordinator(row(2, 2, 1))
    for task in ("0.0", "0.1", "1.0"):
        checkpoints.task_finished(task, 0)
    assert triggered(checkpoints.tick(1_000)) == [("1.1", 1)]
    checkpoints.task_finished("1.1", 1_100)
    checkpoints.task_finished("2.0", 1_100)
    assert checkpoints.tick(9_000) == [], "nobody is left"
    assert checkpoints.next_deadline_ms is None


def test_a_task_that_finishes_before_its_barrier_counts_and_its_readers_are_triggered() -> None:
    checkpoints = coordinator()
    checkpoints.tick(1_000)
    assert checkpoints.task_finished("0.0", 1_100) == []
    assert triggered(checkpoints.task_finished("0.1", 1_100)) == [("1.0", 1), ("1.1", 1)]
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, "1.0", "1.1"))
    assert [task.finished for task in store.metadata.tasks] == [True, True, False, False]


def test_a_task_that_finishes_after_its_answer_leaves_its_answer() -> None:
    checkpoints = coordinator(row(1, 1))
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0")
    assert triggered(checkpoints.task_finished("0.0", 1_100)) == [("1.0", 1)]
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, "1.0"))
    assert [task.finished for task in store.metadata.tasks] == [False, False]


def test_who_finishes_with_a_barrier_unanswered_is_found_out() -> None:
    checkpoints = coordinator(row(1, 1))
    checkpoints.tick(1_000)
    ack(checkpoints, 1, "0.0")
    effects = checkpoints.task_finished("1.0", 1_100)
    assert kinds(effects) == ["CheckpointAborted", "DiscardStates", "FailRun"]
    [aborted] = sent(CheckpointAborted, effects)
    assert aborted.reason == "task 1.0 had finished before it and its producer 0.0 not"


# Savepoints.


def test_a_savepoint_goes_to_its_own_directory_and_tells_who_wanted_it() -> None:
    checkpoints = coordinator(interval_ms=-1, unaligned=True, mode=Consistency.AT_LEAST_ONCE)
    effects = checkpoints.savepoint_wanted("sp", Stop.NO, 5)
    assert triggered(effects) == [("0.0", 1), ("0.1", 1)]
    [first, *_] = sent(CheckpointTriggered, effects)
    options = CheckpointOptions(WALL_MS, CheckpointKind.SAVEPOINT, directory="sp")
    assert first.options == options, "aligned and exact"
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, *ALL))
    assert (store.directory, store.metadata.kind) == ("sp", CheckpointKind.SAVEPOINT)
    assert checkpoints.stored(1, 100) == [SavepointDone("sp", 1)], "its sinks commit nothing"


def test_a_savepoint_waits_for_what_is_on_its_way_and_nothing_overtakes_it() -> None:
    checkpoints = coordinator(max_concurrent=3)
    checkpoints.tick(1_000)
    assert checkpoints.savepoint_wanted("a", Stop.NO, 1_100) == []
    assert checkpoints.savepoint_wanted("b", Stop.NO, 1_100) == []
    assert checkpoints.tick(2_500) == []
    effects = ack(checkpoints, 1, *ALL, now_ms=2_600)
    assert [number for _, number in triggered(effects)] == [2, 2]
    checkpoints.stored(1, 2_700)
    effects = ack(checkpoints, 2, *ALL, now_ms=2_800)
    assert [number for _, number in triggered(effects)] == [3, 3]
    assert checkpoints.stored(2, 2_900) == [SavepointDone("a", 2)]
    effects = ack(checkpoints, 3, *ALL, now_ms=3_000)
    assert [number for _, number in triggered(effects)] == [4, 4], "the clock's turn again"


def test_a_savepoint_that_is_being_stored_is_not_ended_by_a_newer_checkpoint() -> None:
    checkpoints = coordinator()
    checkpoints.savepoint_wanted("sp", Stop.NO, 0)
    ack(checkpoints, 1, *ALL)
    completed(checkpoints, 1_000)
    assert checkpoints.stored(1, 1_100) == [SavepointDone("sp", 1)]


def test_a_savepoint_before_the_start_waits_for_it() -> None:
    settings = CheckpointSettings()
    checkpoints = CheckpointCoordinator(RUN, row(1), settings, CheckpointHistory(), wall)
    assert checkpoints.savepoint_wanted("sp", Stop.NO, 0) == []
    assert triggered(checkpoints.started(10)) == [("0.0", 1)]


def test_a_savepoint_that_fails_fails_no_run_and_names_its_files() -> None:
    checkpoints = coordinator()
    checkpoints.savepoint_wanted("sp", Stop.SUSPEND, 0)
    ack(checkpoints, 1, "0.0")
    effects = checkpoints.declined(1, "1.0", "no", 10)
    assert kinds(effects) == ["CheckpointAborted", "DiscardStates", "SavepointDone"]
    assert only(DiscardStates, effects)[0].directory == "sp"
    assert only(SavepointDone, effects) == [SavepointDone("sp", None, "task 1.0 declined it: no")]
    assert ack(checkpoints, 1, "0.1") == [DiscardStates(1, (state("0.1", 1),), "sp")]
    assert triggered(checkpoints.tick(1_000)), "the job goes on"


@pytest.mark.parametrize("stop", [Stop.SUSPEND, Stop.DRAIN])
def test_a_job_that_ends_with_a_savepoint_commits_it_and_begins_nothing_more(stop: Stop) -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history)
    checkpoints.savepoint_wanted("sp", stop, 0)
    late = checkpoints.savepoint_wanted("other", Stop.NO, 1)
    assert late == [SavepointDone("other", None, "the job is ending with another savepoint")]
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, *ALL))
    assert store.metadata.checkpoint == 1
    assert checkpoints.stored(1, 10) == [*complete(1), SavepointDone("sp", 1)]
    assert history.latest == store
    assert checkpoints.tick(50_000) == []


def test_a_drain_that_fails_fails_the_run_since_event_time_has_ended() -> None:
    checkpoints = coordinator(timeout_ms=100, tolerable_failures=100)
    checkpoints.savepoint_wanted("sp", Stop.DRAIN, 0)
    effects = checkpoints.tick(100)
    assert kinds(effects) == ["CheckpointAborted", "SavepointDone", "FailRun"]


def test_a_checkpoint_that_is_stored_behind_the_last_savepoint_is_dropped() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history)
    checkpoints.tick(1_000)
    [old] = only(StoreCheckpoint, ack(checkpoints, 1, *ALL))
    checkpoints.savepoint_wanted("sp", Stop.SUSPEND, 1_100)
    [last] = only(StoreCheckpoint, ack(checkpoints, 2, *ALL))
    assert kinds(checkpoints.stored(2, 1_200)) == ["CheckpointCompleted", "SavepointDone"]
    assert checkpoints.stored(1, 1_300) == [DropCheckpoint(old.metadata)]
    assert history.latest == last


def test_a_savepoint_of_a_job_that_is_over_is_refused() -> None:
    checkpoints = coordinator(row(1))
    checkpoints.task_finished("0.0", 0)
    assert checkpoints.savepoint_wanted("sp", Stop.NO, 0) == [
        SavepointDone("sp", None, "all tasks of the job have finished")
    ]


# The end of a run.


def test_a_run_that_ends_leaves_nothing_open_but_what_is_being_stored() -> None:
    history = CheckpointHistory()
    checkpoints = coordinator(history=history, max_concurrent=2)
    checkpoints.tick(1_000)
    ack(checkpoints, 1, *ALL)
    checkpoints.savepoint_wanted("sp", Stop.DRAIN, 1_500)
    checkpoints.savepoint_wanted("other", Stop.NO, 1_500)
    ack(checkpoints, 2, "0.0")
    effects = checkpoints.run_ending("boom", 1_500)
    assert effects == [
        DiscardStates(2, (state("0.0", 2),), "sp"),
        SavepointDone("sp", None, "the run has ended: boom"),
    ]
    assert checkpoints.run_ending("again", 1_500) == []
    assert checkpoints.is_storing
    assert checkpoints.next_deadline_ms is None
    assert checkpoints.stored(1, 1_600) == [], "there is nobody to tell"
    assert [metadata.checkpoint for metadata in history.complete] == [1]
    assert checkpoints.savepoint_wanted("x", Stop.NO, 2_000) == [
        SavepointDone("x", None, "the run has ended: boom")
    ]


def test_storage_that_fails_after_the_end_of_the_run_is_only_cleaned_up() -> None:
    checkpoints = coordinator()
    checkpoints.tick(1_000)
    [store] = only(StoreCheckpoint, ack(checkpoints, 1, *ALL))
    checkpoints.run_ending("boom", 1_500)
    assert checkpoints.store_failed(1, "full", 1_100) == [DropCheckpoint(store.metadata)]


def test_a_run_that_never_started_refuses_savepoints_when_it_ends() -> None:
    checkpoints = CheckpointCoordinator(
        RUN, row(1), CheckpointSettings(), CheckpointHistory(), wall
    )
    checkpoints.savepoint_wanted("sp", Stop.NO, 0)
    [done] = checkpoints.run_ending("no slots", 0)
    assert done == SavepointDone("sp", None, "the run has ended: no slots")
    assert kinds(checkpoints.savepoint_wanted("sp", Stop.NO, 0)) == ["SavepointDone"]


def test_long_lists_of_tasks_are_cut() -> None:
    checkpoints = coordinator(row(20), timeout_ms=10)
    checkpoints.tick(1_000)
    [aborted] = sent(CheckpointAborted, checkpoints.tick(1_010))
    assert aborted.reason.endswith("0.7 and 12 more")
