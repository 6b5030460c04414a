"""What a job remembers over its runs: pauses, final failures, damaged checkpoints, counts."""

import pytest

from headgate.base.checkpoints import CheckpointKind, Metadata
from headgate.base.messages import Failure
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import StoreCheckpoint
from headgate.control.recovery import FixedDelay, Recovery, RepeatedFailures
from tests.control.checkpoint_kit import ALL, RUN, ack, only, row, triggered, wall
from tests.control.kit import BOOM

DAMAGE = Failure("CheckpointCorrupt", "chk-2/0: was changed", is_damage=True)


def metadata(checkpoint: int) -> Metadata:
    return Metadata(1, checkpoint, CheckpointKind.CHECKPOINT, "job 1", "orders", 0, 0, ())


def recovery(
    attempts: int = 3,
    *found: int,
    origin: StoreCheckpoint | None = None,
    ignores_damaged: bool = False,
) -> Recovery:
    history = CheckpointHistory(3, [metadata(number) for number in found], origin)
    settings = CheckpointSettings(interval_ms=1_000, unaligned=False)
    strategy = FixedDelay(attempts, 50)
    return Recovery(settings, strategy, history, wall_ms=wall, ignores_damaged=ignores_damaged)


def newest(recovery: Recovery) -> int | None:
    latest = recovery.history.latest
    return None if latest is None else latest.metadata.checkpoint


def test_the_strategy_gives_the_pause_until_it_has_enough() -> None:
    job = recovery(2)
    assert [job.failed(BOOM, None, 0) for _ in range(3)] == [50, 50, None]
    assert job.restarts == 2
    assert "restart-strategy.fixed-delay.attempts is 2" in job.problem


def test_every_restart_tells_the_record_and_the_users_frames() -> None:
    job = recovery()
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 3, in map\nValueError: no\n'
    failure = Failure("ValueError", "no", "map", trace, record="'bad'")
    for restart in (1, 2):
        assert job.failed(failure, None, 0) == 50
        first, record, *frames = job.story(failure, None, 50).splitlines()
        assert first.endswith(f"(restart {restart})") and record == "the record: 'bad'"
        assert frames == trace.splitlines()
    long = job.story(Failure("ValueError", "no", "map", "x\n" * 50_000 + "end"), None, 50)
    assert len(long) < 5_000 and long.endswith("end")


def test_a_failure_that_repeats_ends_the_job_whatever_the_strategy_says() -> None:
    job = Recovery(None, FixedDelay(99, 50), repeats=RepeatedFailures(3, 1e9))
    failure = Failure("ValueError", "no", "map", "Traceback …\nboom", record="'bad'")
    assert [job.failed(failure, None, 0) for _ in range(3)] == [50, 50, None]
    assert "3 times in the same way at the same record" in job.problem


def test_a_job_without_restarts_says_nothing_about_them() -> None:
    job = Recovery()
    assert job.failed(BOOM, None, 0) is None
    assert job.problem == ""


def test_what_would_be_there_again_is_not_tried_again() -> None:
    job = recovery()
    assert job.failed(Failure("RestoreRefused", "no", is_final=True), None, 0) is None
    assert job.failed(BOOM, None, 0) == 50, "it has not counted"


def test_a_damaged_checkpoint_is_passed_over_for_the_next_older_one() -> None:
    job = recovery(9, 1, 2)
    assert job.failed(DAMAGE, 2, 0) == 50
    assert newest(job) == 1
    story = job.story(DAMAGE, 2, 50)
    assert "checkpoint 2 is skipped" in story
    assert "goes on from checkpoint 1 in 0.1 s (restart 1)" in story
    assert job.failed(DAMAGE, 1, 0) is None
    assert job.problem.startswith("there is no complete checkpoint older than 1; to begin anew")
    assert "--ignore-damaged-checkpoints" in job.problem


def test_damage_in_a_run_that_began_from_nothing_is_a_failure_like_others() -> None:
    job = recovery(9, 1)
    assert job.failed(DAMAGE, None, 0) == 50
    assert newest(job) == 1


def test_damage_that_is_told_after_a_newer_checkpoint_changes_nothing() -> None:
    job = recovery(9, 1, 2)
    assert job.failed(DAMAGE, 1, 0) == 50
    assert newest(job) == 2


def test_what_a_job_was_started_from_does_not_come_in_place_of_its_own_checkpoints() -> None:
    job = recovery(9, origin=StoreCheckpoint(metadata(7), "/savepoint"))
    job.history.completed(metadata(8))
    assert job.failed(DAMAGE, 8, 0) is None


def test_a_job_that_may_begin_anew_does_so_when_nothing_is_whole() -> None:
    origin = StoreCheckpoint(metadata(7), "/savepoint")
    job = recovery(9, origin=origin, ignores_damaged=True)
    job.history.completed(metadata(8))
    assert job.failed(DAMAGE, 8, 0) == 50
    assert job.history.latest == origin
    assert job.failed(DAMAGE, 7, 0) == 50
    assert job.history.latest is None


def test_numbers_go_on_above_those_that_came_to_nothing() -> None:
    history = CheckpointHistory(1, [metadata(3)], next_id=9)
    assert history.new_id() == 9
    assert CheckpointHistory(1, [metadata(3)], next_id=2).new_id() == 4


def test_counts_are_those_of_all_attempts() -> None:
    job = recovery()
    for checkpoint in (1, 2):
        attempt = job.checkpoints(RUN, row(2, 2))
        attempt.started(0)
        assert triggered(attempt.tick(1_000))[0][1] == checkpoint
        (store,) = only(StoreCheckpoint, ack(attempt, checkpoint, *ALL, now_ms=1_000))
        attempt.stored(store.metadata.checkpoint, 1_001)
        attempt.run_ending("boom", 1_002)
    counts = job.statistics()
    assert (counts.triggered, counts.completed, counts.failed, counts.pending) == (2, 2, 0, 0)
    assert counts.last is not None and counts.last.checkpoint == 2


@pytest.mark.parametrize("message", ["boom", "boom\nand a page of text"])
def test_the_story_has_one_line(message: str) -> None:
    story = recovery().story(Failure("E", message), None, 1_500)
    assert story == ("the job has failed: boom; it goes on from the beginning in 1.5 s (restart 0)")
