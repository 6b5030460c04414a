"""A named output: rows appear with their commit, once, however often it is repeated."""

import errno
import os
import pickle
import threading
from dataclasses import replace

import pytest

from headgate.base.errors import PartLost, PathUnusable, StreamUnfit
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.core.chain.snapshots import OperatorRestored
from headgate.functions.context import SnapshotMoment
from tests.connectors.kill_kit import CHECKPOINTS, RECORDS, STEPS, in_process
from tests.connectors.kit import PATIENCE_S, CancelledTask, task_context
from tests.connectors.streaming.kit import attached_output, owner, shown, started_output


def prepared(sink, *records, checkpoint=1, attempt=0):
    writer = sink.create_writer(task_context(attempt=attempt))
    writer.write(list(records))
    lots = writer.prepare_commit(SnapshotMoment(checkpoint, 0))
    writer.close()
    return lots


def commit(sink, lots, attempt=0, again=False):
    committer = sink.create_committer(task_context(attempt=attempt))
    (committer.commit_again if again else committer.commit)(lots)


def restored_context(checkpoint):
    return replace(task_context(attempt=1), restored=OperatorRestored(checkpoint))


def test_rows_appear_with_their_commit_and_once(tmp_path):
    sink = attached_output(tmp_path)
    lots = prepared(sink, (1, 0.5), {"id": 2, "price": 1.0})
    committer = sink.create_committer(task_context())
    assert shown(tmp_path) == []

    committer.commit(lots)
    committer.commit_again(lots)

    assert shown(tmp_path) == [1, 2]


def test_a_commit_is_not_repeated_after_spark_has_read_it(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    lots = prepared(sink, (1, 0.5))
    committer = sink.create_committer(task_context())
    committer.commit(lots)
    log.trim({lots[0].writer: 1})

    committer.commit_again(lots)

    assert log.entries() == {} and log.parts() == {}


def test_a_part_that_is_gone_before_its_commit_is_told(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    lots = prepared(sink, (1, 0.5))
    log.drop_parts(lots[0].files)

    with pytest.raises(PartLost, match="its records wait for their commit"):
        sink.create_committer(task_context()).commit(lots)

    assert log.entries() == {}


def test_commits_of_another_log_are_refused(tmp_path):
    lots = prepared(attached_output(tmp_path / "one"), (1, 0.5))

    with pytest.raises(StreamUnfit, match="the checkpoint belongs to another log"):
        attached_output(tmp_path / "other").create_committer(task_context()).commit(lots)


def test_what_was_not_prepared_is_removed(tmp_path):
    sink = attached_output(tmp_path)
    writer = sink.create_writer(task_context())
    writer.write([(1, 0.5)])
    writer._write_files()

    writer.close()

    assert StreamLog(str(tmp_path)).parts() == {}


def test_a_writer_waits_until_enough_is_read_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("headgate.connectors.streaming.sink.WARN_S", 0.0)
    sink, log = attached_output(tmp_path, most_checkpoints=1), StreamLog(str(tmp_path))
    committer = sink.create_committer(task_context())
    first = prepared(sink, (1, 0.5))
    second = prepared(sink, (2, 0.5), checkpoint=2)
    committer.commit([*first, *second])
    writer, written = sink.create_writer(task_context()), threading.Event()

    def write():
        writer.write([(3, 0.5)])
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert not written.wait(0.3)
        log.trim({first[0].writer: 1})
        assert written.wait(PATIENCE_S)
    finally:
        thread.join()
        writer.close()
    (line,) = caplog.messages
    assert "output 'totals' holds the job back" in line and "of 2 checkpoints are unread" in line


def test_a_writer_does_not_wait_for_the_commit_of_what_spark_reads_already(tmp_path):
    """Spark commits a micro-batch with the next one, for which the writer is to bring rows."""
    sink, log = attached_output(tmp_path, most_checkpoints=1), StreamLog(str(tmp_path))
    lots = [*prepared(sink, (1, 0.5)), *prepared(sink, (2, 0.5))]
    sink.create_committer(task_context()).commit(lots)
    log.take({lot.writer: 1 for lot in lots})

    assert shown(tmp_path)
    assert prepared(sink, (3, 0.5))


def test_a_job_whose_output_waits_for_its_reader_can_be_cancelled(tmp_path):
    sink = attached_output(tmp_path, most_checkpoints=1)
    commit(sink, [*prepared(sink, (1, 0.5)), *prepared(sink, (2, 0.5), checkpoint=2)])
    task = CancelledTask()
    writer = sink.create_writer(task.context)

    task.cancel_while(lambda: writer.write([(3, 0.5)]))

    writer.close()
    assert sorted(shown(tmp_path)) == [1, 2]


def test_the_limit_counts_checkpoints_however_many_tasks_there_are(tmp_path):
    sink = attached_output(tmp_path, most_checkpoints=1)
    for number in range(8):
        commit(sink, prepared(sink, (number, 0.5)))

    assert prepared(sink, (8, 0.5), checkpoint=2)


def test_parts_that_killed_tasks_have_left_go_when_a_later_run_has_committed(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    unread = prepared(sink, (1, 0.5))
    commit(sink, unread)
    dead = [*prepared(sink, (2, 0.5), checkpoint=2), *prepared(sink, (3, 0.5), checkpoint=3)]
    again = prepared(sink, (2, 0.5), checkpoint=4, attempt=1)
    living = prepared(sink, (4, 0.5), checkpoint=5, attempt=1)
    assert len(log.parts()) == 5

    commit(sink, unread, attempt=1, again=True)
    assert len(log.parts()) == 5  # the checkpoint with the second may still be restored
    commit(sink, again, attempt=1)

    assert log.parts().keys() == {
        part.name for lot in (*unread, *again, *living) for part in lot.files
    }
    assert sorted(shown(tmp_path)) == [1, 2] and len(dead) == 2


def test_what_was_read_of_earlier_runs_is_one_number(tmp_path):
    log = StreamLog(str(tmp_path))
    for start in range(5):
        sink = started_output(tmp_path, f"token {start}", start or None)
        for attempt in range(3):
            lots = prepared(sink, (1, 0.5), checkpoint=start + 1, attempt=attempt)
            lots += prepared(sink, (1, 0.5), checkpoint=start + 1, attempt=attempt)
            commit(sink, lots, attempt)
        log.trim({writer: numbers[-1] for writer, numbers in log.entries().items()})

    assert len(log.removed().numbers) == 2
    assert log.removed().floor == (5, 2) and log.removed().folded == 28
    assert log.entries() == {} and log.parts() == {}


def test_a_late_commit_of_a_run_that_is_gone_shows_nothing_twice(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    late = prepared(sink, (1, 0.5))
    zombie = sink.create_committer(task_context())
    commit(sink, late, attempt=1, again=True)
    commit(sink, prepared(sink, (2, 0.5), checkpoint=2, attempt=1), attempt=1)
    log.trim(dict.fromkeys(log.entries(), 1))
    assert late[0].writer not in log.removed().numbers

    zombie.commit(late)

    assert log.entries() == {}


def test_a_run_that_may_not_have_repeated_all_commits_covers_no_earlier_one(tmp_path):
    """Without checkpoints a task ends, and commits, while another one has not been opened."""
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    first, second = prepared(sink, (1, 0.5)), prepared(sink, (2, 0.5))
    commit(sink, first, attempt=1, again=True)
    commit(sink, prepared(sink, (3, 0.5), checkpoint=0, attempt=1), attempt=1)
    log.trim(dict.fromkeys(log.entries(), 1))

    commit(sink, second, attempt=1, again=True)

    assert shown(tmp_path) == [2]


def test_an_older_checkpoint_than_queries_were_shown_is_refused(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    for checkpoint in (6, 7):
        commit(sink, prepared(sink, (checkpoint, 0.5), checkpoint=checkpoint))
    log.trim(dict.fromkeys(log.entries(), 1))
    problem = "goes back to checkpoint 6, and queries were given the rows up to checkpoint 7"

    with pytest.raises(StreamUnfit, match=problem):
        started_output(tmp_path, "second", restored=6)
    with pytest.raises(StreamUnfit, match=problem):
        sink.create_committer(restored_context(6))

    assert log.owner().token == "first"
    started_output(tmp_path, "third", restored=7).create_committer(restored_context(7))


def test_prepared_rows_of_a_run_that_was_left_behind_are_refused(tmp_path):
    """A savepoint, then a failure: the run after it went on from an older checkpoint."""
    sink = attached_output(tmp_path)
    savepoint = prepared(sink, (1, 0.5), checkpoint=3)
    commit(sink, prepared(sink, (1, 0.5), checkpoint=3, attempt=1), attempt=1)
    last = started_output(tmp_path, "second", restored=3)

    with pytest.raises(StreamUnfit, match="of attempt 1 of its start 1: they would get rows twice"):
        last.create_committer(restored_context(3)).commit_again(savepoint)

    assert shown(tmp_path) == [1]


def test_a_job_that_begins_anew_in_an_old_log_counts_its_own_checkpoints(tmp_path):
    sink = attached_output(tmp_path)
    commit(sink, prepared(sink, (1, 0.5), checkpoint=50))
    second = started_output(tmp_path, "second")
    commit(second, prepared(second, (2, 0.5), checkpoint=1))

    third = started_output(tmp_path, "third", restored=2)
    third.create_committer(restored_context(2))

    assert sorted(shown(tmp_path)) == [1, 2]
    with pytest.raises(StreamUnfit, match="goes back to checkpoint 0"):
        started_output(tmp_path, "fourth", restored=0)


def test_the_starts_of_a_log_that_has_lost_its_owner_are_counted_on(tmp_path):
    started_output(tmp_path, "first")
    prepared(started_output(tmp_path, "second"), (1, 0.5))
    (tmp_path / "owner.json").unlink()

    assert attached_output(tmp_path, "third").stream.start == 3


def test_a_job_whose_output_another_one_has_taken_over_commits_no_more(tmp_path):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    lots = prepared(sink, (1, 0.5))
    committer = sink.create_committer(task_context())
    log.set_owner(owner("other", job="j2", name="rival"))

    with pytest.raises(
        StreamUnfit, match=r"taken over by job j2 \(rival\); let only one job write"
    ):
        committer.commit(lots)

    assert log.entries() == {}


def test_a_commit_on_a_full_disk_is_repeated(tmp_path, monkeypatch):
    sink, log = attached_output(tmp_path), StreamLog(str(tmp_path))
    lots = prepared(sink, (1, 0.5))
    committer = sink.create_committer(task_context())

    def full_disk(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(PathUnusable, match="No space left on device"):
        committer.commit(lots)
    assert shown(tmp_path) == []
    monkeypatch.undo()
    committer.commit_again(lots)

    assert shown(tmp_path) == [1]
    assert len(log.parts()) == 1


def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_a_row(tmp_path):
    """Killed with its driver; the next start finds the newest checkpoint, and tidies up."""
    patches = [(os, "fsync"), (os, "link"), (os, "unlink")]

    def row(number):
        return number, 0.5

    for last in range(1, STEPS):
        folder, store = tmp_path / f"log {last}", tmp_path / f"checkpoint {last}"
        is_through = in_process(attached_output(folder), store, patches, last, row)
        if not is_through:
            restored = pickle.loads(store.read_bytes())[0] if store.exists() else None
            again = started_output(folder, "again", restored)
            assert in_process(again, store, patches, -1, row)
        log = StreamLog(str(folder))
        assert sorted(shown(folder)) == list(range(RECORDS)), f"killed at step {last}"
        named = [
            part.name
            for writer, numbers in log.entries().items()
            for number in numbers
            for part in log.read_entry(writer, number).parts
        ]
        if is_through or restored != CHECKPOINTS:  # else the run that goes on has nothing to commit
            assert sorted(log.parts()) == sorted(named), f"killed at step {last}"
        if is_through:
            break
    assert last > 14
