"""A named input: each micro-batch once, in order, across restarts of either side."""

import os
import pickle

import pyarrow as pa
import pytest

from headgate.api.types.types import Types
from headgate.base.errors import PathUnusable, PlanInvalid, StreamUnfit
from headgate.connectors.streaming.source import StreamingInput, unread
from headgate.connectors.streaming.stream_log import LogEntry, StreamLog
from tests.connectors.kill_kit import STEPS, dies_at
from tests.connectors.kit import read_some, task_context
from tests.connectors.streaming.kit import (
    attached_input,
    discovered,
    owner,
    read_ids,
    rows,
    write_batch,
    write_parts,
)


def test_micro_batches_of_several_queries_are_read_in_their_orders(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "b", 0, rows(1), rows(2))
    write_batch(tmp_path, "a", 7, rows(3))
    enumerator, first = discovered(source)
    write_batch(tmp_path, "b", 1, rows(4))

    second = enumerator.discover()

    assert sorted(read_ids(source, first)) == [1, 2, 3]
    assert read_ids(source, list(second)) == [4]
    assert enumerator.discover() == []


def test_a_new_enumerator_finds_only_what_is_new(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1))
    enumerator, _ = discovered(source)
    position = pickle.loads(pickle.dumps(enumerator.position()))
    write_batch(tmp_path, "q", 0, rows(9))  # repeated by Spark
    write_batch(tmp_path, "q", 1, rows(2))

    _, found = discovered(source, position)

    assert read_ids(source, found) == [2]


def test_a_part_goes_on_from_its_position(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1, 2, 3))
    _, (split,) = discovered(source)
    reader = source.open(split, None, task_context())
    assert [row.id for row in read_some(reader, 2)] == [1, 2]
    position = reader.position()
    reader.close()

    assert read_ids(source, [split], position) == [3]


def test_a_part_that_was_read_to_its_end_before_the_checkpoint_may_be_gone(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    write_batch(tmp_path, "q", 0, rows(1, 2))
    _, splits = discovered(source)
    source.splits_finished(splits)

    assert read_ids(source, splits, position=2) == []
    assert log.marked_read() == set()


def test_what_is_read_counts_as_unread_no_more(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    write_batch(tmp_path, "q", 0, rows(1), rows(2))
    write_batch(tmp_path, "q", 1, rows(3))
    write_parts(tmp_path, "q", 2, rows(4))
    assert unread(log, "q", 2)[1] == 2

    _, splits = discovered(source)
    read_ids(source, splits[:1])
    assert unread(log, "q", 2)[1] == 2
    read_ids(source, splits[1:])

    assert unread(log, "q", 2) == (0, 0)


def test_what_is_not_committed_does_not_count_as_unread(tmp_path):
    """Its query may be gone for ever, or wait itself."""
    attached_input(tmp_path)
    write_parts(tmp_path, "gone", 3, rows(1), rows(2))

    assert unread(StreamLog(str(tmp_path)), "q", 0) == (0, 0)


def test_covered_entries_are_removed_and_an_older_checkpoint_is_refused(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    enumerator, _ = discovered(source)
    older = enumerator.position()
    write_batch(tmp_path, "q", 0, rows(1))
    write_batch(tmp_path, "q", 1)
    splits = enumerator.discover()
    newer = enumerator.position()
    read_ids(source, list(splits))
    source.splits_finished(splits)
    enumerator._tidied = 0.0

    enumerator.discover()

    assert log.removed().numbers == {"q": 0}  # no checkpoint covers the empty one for sure
    assert log.entries() == {"q": [1]} and log.marked_read() == set()
    assert discovered(source, newer)[1] == []
    _, (refused,) = discovered(source, older)
    with pytest.raises(StreamUnfit, match="up to micro-batch -1, and those up to 0 were removed"):
        source.open(refused, None, task_context()).poll(1)


def test_a_job_that_begins_anew_leaves_out_what_the_one_before_has_read(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    write_batch(tmp_path, "q", 0, rows(1), rows(2))
    write_batch(tmp_path, "q", 1, rows(3))
    _, splits = discovered(source)
    source.splits_finished(splits[:1])  # and the driver is killed before it trims the entry

    _, left = discovered(source)

    assert len(log.entries()["q"]) == 2
    assert read_ids(source, left) == [2, 3]


def test_a_removed_part_that_a_checkpoint_names_is_told(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1))
    _, (split,) = discovered(source)
    source.splits_finished([split])

    with pytest.raises(StreamUnfit, match="a part of its log is gone"):
        source.open(split, None, task_context()).poll(1)


def test_parts_of_attempts_that_were_not_committed_are_removed(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    write_parts(tmp_path, "q", 0, rows(9))
    write_batch(tmp_path, "q", 0, rows(1))
    write_parts(tmp_path, "q", 1, rows(2))

    enumerator, _ = discovered(source)
    enumerator._tidied = 0.0
    enumerator.discover()

    assert len(log.parts()) == 2  # the one of batch 0 that counts, and that of batch 1


def test_an_error_while_old_entries_are_removed_loses_no_new_ones(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1))
    enumerator, splits = discovered(source)
    source.splits_finished(splits)
    write_batch(tmp_path, "q", 1, rows(2))
    enumerator._tidied = 0.0
    (tmp_path / "trimmed.json").mkdir()  # cannot be replaced by a file

    with pytest.raises(PathUnusable, match=r"trimmed\.json"):
        enumerator.discover()
    (tmp_path / "trimmed.json").rmdir()

    assert read_ids(source, list(enumerator.discover())) == [2]


def test_an_error_while_old_entries_are_looked_for_removes_no_part_of_them(tmp_path):
    source = attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1))
    enumerator, splits = discovered(source)
    restored = source.create_enumerator(1, enumerator.position())
    (entry,) = (tmp_path / "entries").iterdir()
    entry.rename(tmp_path / "aside")
    entry.mkdir()  # cannot be read

    with pytest.raises(PathUnusable, match="entries/q"):
        restored.discover()
    entry.rmdir()
    (tmp_path / "aside").rename(entry)
    restored.discover()

    assert read_ids(source, splits) == [1]


def test_a_driver_that_is_killed_while_it_removes_what_was_read_goes_on(tmp_path):
    patches = [(os, "fsync"), (os, "replace"), (os, "unlink")]
    for last in range(1, STEPS):
        folder = tmp_path / str(last)
        source = attached_input(folder)
        write_batch(folder, "q", 0, rows(1), rows(2))
        write_batch(folder, "q", 1, rows(3))
        enumerator, splits = discovered(source)
        read_ids(source, splits)
        source.splits_finished(splits)
        enumerator._tidied = 0.0
        discover = enumerator.discover
        was_killed = dies_at(last, patches, lambda killer, discover=discover: discover())
        write_batch(folder, "q", 2, rows(4))

        restored, found = discovered(source, enumerator.position())
        restored._tidied = 0.0
        restored.discover()
        assert read_ids(source, found) == [4], f"killed at step {last}"
        assert StreamLog(str(folder)).entries() == {"q": [2]}
        if not was_killed:
            break
    assert last > 5


def test_a_folder_that_is_away_for_a_moment_does_not_look_as_if_all_were_read(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    write_batch(tmp_path, "q", 0, rows(1))
    enumerator, splits = discovered(source)
    enumerator._tidied = 0.0
    (tmp_path / "parts").rename(tmp_path / "aside")

    with pytest.raises(PathUnusable, match="parts: cannot be read"):
        enumerator.discover()
    (tmp_path / "aside").rename(tmp_path / "parts")
    enumerator.discover()

    assert log.entries() == {"q": [0]}
    assert read_ids(source, splits) == [1]


def test_the_log_of_another_input_is_refused(tmp_path):
    enumerator, _ = discovered(attached_input(tmp_path / "one"))
    other = attached_input(tmp_path / "other")

    _, (refused,) = discovered(other, enumerator.position())

    with pytest.raises(StreamUnfit, match="the checkpoint belongs to another log"):
        other.open(refused, None, task_context()).poll(1)


def test_a_second_job_takes_an_input_over_only_if_the_first_has_ended(tmp_path):
    source = attached_input(tmp_path)
    enumerator, _ = discovered(source)
    with pytest.raises(StreamUnfit, match=r"belongs to job j1 \(shop\), which runs"):
        attached_input(tmp_path, "second")
    StreamLog(str(tmp_path)).set_owner(owner(state="FINISHED"))
    attached_input(tmp_path, "second")

    (refused,) = enumerator.discover()

    with pytest.raises(StreamUnfit, match="was taken over by job"):
        source.open(refused, None, task_context()).poll(1)


def test_another_schema_waits_until_the_old_rows_are_read(tmp_path):
    attached_input(tmp_path)
    write_batch(tmp_path, "q", 0, rows(1))
    log = StreamLog(str(tmp_path))
    log.set_owner(owner(state="FINISHED"))
    wider = pa.schema([("id", pa.int64()), ("price", pa.string())])

    with pytest.raises(StreamUnfit, match="'price' is double in the log, and string in the job"):
        attached_input(tmp_path, schema=wider)
    log.trim({"q": 0})
    attached_input(tmp_path, schema=wider)

    info = log.info()
    assert info is not None and info.arrow_schema.field("price").type == pa.string()


def test_a_failed_query_of_the_job_fails_it(tmp_path):
    source = attached_input(tmp_path)
    enumerator, _ = discovered(source)
    StreamLog(str(tmp_path)).set_owner(owner(problem="the query failed: no disk"))

    (refused,) = enumerator.discover()

    with pytest.raises(StreamUnfit, match="the query failed: no disk"):
        source.open(refused, None, task_context()).poll(1)


def test_declared_types_become_columns(tmp_path):
    source = StreamingInput("orders", Types.ROW_NAMED(["id"], [Types.LONG()]))

    assert source.stream.schema == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"name": ""}, "becomes that of a folder; give letters"),
        ({"name": "a/b"}, "the name is 'a/b', and becomes that of a folder"),
        ({"name": ".."}, "the name is '..', and becomes that of a folder"),
        ({"name": "a?b"}, "becomes that of a folder"),
        ({"name": "a" * 61}, "at most 60"),
        ({"name": "a", "most_bytes": 0}, "most_bytes is 0; give a whole number above 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, problem):
    with pytest.raises(PlanInvalid, match=problem):
        StreamingInput(**{"schema": pa.schema([]), **arguments})


def test_an_empty_micro_batch_is_an_entry(tmp_path):
    source = attached_input(tmp_path)
    assert StreamLog(str(tmp_path)).append(LogEntry("q", 0, ()))

    enumerator, found = discovered(source)

    assert found == []
    assert dict(enumerator.position().numbers) == {"q": 0}


def test_empty_micro_batches_do_not_pile_up(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    older = discovered(source)[0].position()
    for number in range(5):
        write_batch(tmp_path, "q", number)
    enumerator, _ = discovered(source)
    enumerator._tidied = 0.0
    enumerator.discover()
    write_batch(tmp_path, "q", 5, rows(1))

    assert log.entries() == {"q": [4, 5]} and log.removed().numbers == {}
    assert read_ids(source, list(enumerator.discover())) == [1]
    assert read_ids(source, discovered(source, older)[1]) == [1]


def test_a_micro_batch_that_a_listing_has_missed_comes_before_the_next(tmp_path):
    """A folder may be listed with the second of two files that were made meanwhile alone."""
    source = attached_input(tmp_path)
    enumerator, _ = discovered(source)

    class Hasty(StreamLog):
        looks = 0

        def entries(self):
            self.looks += 1
            found = super().entries()
            return {"q": found["q"][1:]} if self.looks == 1 else found

    write_batch(tmp_path, "q", 0, rows(1))
    write_batch(tmp_path, "q", 1, rows(2))
    enumerator._log = Hasty(str(tmp_path))

    assert read_ids(source, list(enumerator.discover())) == [1, 2]
