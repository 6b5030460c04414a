"""The reading side of an output, as Spark calls it: offsets, repeated reads, and bad cases."""

import json
import os
from functools import partial

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from headgate.base.errors import StreamUnfit
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.functions.context import SnapshotMoment
from headgate.spark.streaming.data_source import HeadgateDataSource
from headgate.spark.streaming.stream_reader import OutputStreamReader
from tests.connectors.kill_kit import STEPS, dies_at
from tests.connectors.kit import task_context
from tests.connectors.streaming.kit import attached_output, owner

SCHEMA = StructType([StructField("id", LongType()), StructField("price", DoubleType())])


class Committed:
    """A task of the sink that commits at once."""

    def __init__(self, folder, **settings):
        self.sink = attached_output(folder, **settings)
        self.writer = self.sink.create_writer(task_context())
        self.committer = self.sink.create_committer(task_context())
        self.checkpoint = 0

    def restart(self, attempt):
        self.writer = self.sink.create_writer(task_context(attempt=attempt))
        self.committer = self.sink.create_committer(task_context(attempt=attempt))

    def show(self, *ids):
        self.checkpoint += 1
        self.writer.write([(number, 0.5) for number in ids])
        self.committer.commit(self.writer.prepare_commit(SnapshotMoment(self.checkpoint, 0)))


def reader_of(folder):
    source = HeadgateDataSource({"path": str(folder)})
    return source.streamReader(SCHEMA)


def as_stored(offset):
    """Through Spark's checkpoint."""
    return json.loads(json.dumps(offset))


def read(reader, start, end):
    return [
        row["id"]
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_what_is_between_two_offsets_is_always_the_same(tmp_path):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    task.show(1, 2)
    middle = reader.latestOffset(start, None)
    task.show(3)
    end = reader.latestOffset(as_stored(middle), None)

    assert read(reader, start, middle) == [1, 2]
    assert read(reader, as_stored(middle), as_stored(end)) == [3]
    assert read(reader, start, end) == [1, 2, 3]
    assert reader.latestOffset(end, None) == end
    assert reader.partitions(end, end) == []


def test_a_restarted_query_goes_on_and_repeats_its_first_batch(tmp_path):
    task = Committed(tmp_path)
    first = reader_of(tmp_path)
    start = first.initialOffset()
    task.show(1)
    end = as_stored(first.latestOffset(start, None))

    again = reader_of(tmp_path)
    anew = again.initialOffset()  # Spark asks if no batch was committed
    assert read(again, anew, end) == [1]
    task.show(2)
    after = again.latestOffset(end, None)
    assert read(again, end, after) == [2]
    again.commit(end)

    third = reader_of(tmp_path)
    assert third.latestOffset(as_stored(after), None) == after
    assert read(third, end, after) == [2]


def test_what_spark_has_read_is_removed_and_an_old_offset_is_refused(tmp_path):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    task.show(1)
    end = reader.latestOffset(start, None)

    reader.commit(end)

    assert StreamLog(str(tmp_path)).parts() == {}
    with pytest.raises(StreamUnfit, match="the query starts from an old offset"):
        reader.partitions(start, end)


def test_a_new_query_takes_the_output_over(tmp_path):
    task = Committed(tmp_path)
    older = reader_of(tmp_path)
    start = older.latestOffset(older.initialOffset(), None)
    newer = reader_of(tmp_path)
    task.show(1)

    first = newer.initialOffset()
    assert read(newer, first, newer.latestOffset(first, None)) == [1]
    for ask in (lambda: older.latestOffset(start, None), lambda: older.commit(start)):
        with pytest.raises(StreamUnfit, match="another query has begun to read output 'totals'"):
            ask()


def test_a_query_that_spark_asks_for_a_first_offset_in_vain_keeps_its_place(tmp_path):
    task = Committed(tmp_path)
    first = reader_of(tmp_path)
    task.show(1)
    end = as_stored(first.latestOffset(first.initialOffset(), None))

    reader_of(tmp_path).initialOffset()  # and then the process dies
    again = reader_of(tmp_path)
    again.initialOffset()

    assert again.latestOffset(end, None) == end


def test_the_log_of_another_job_is_refused(tmp_path):
    Committed(tmp_path / "one")
    Committed(tmp_path / "other")
    offset = reader_of(tmp_path / "one").initialOffset()

    with pytest.raises(StreamUnfit, match="the query has read another log"):
        reader_of(tmp_path / "other").latestOffset(offset, None)


def test_a_job_that_fails_under_a_reader_is_told_when_all_is_read(tmp_path):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    task.show(1)
    StreamLog(str(tmp_path)).set_owner(owner(state="FAILED", problem="no luck"))

    end = reader.latestOffset(start, None)
    assert read(reader, start, end) == [1]
    with pytest.raises(
        StreamUnfit, match=r"brings no more rows.*job j1 \(shop\) is failed: no luck"
    ):
        reader.latestOffset(end, None)


def test_the_last_rows_of_a_job_are_read_before_its_end_is_told(tmp_path, monkeypatch):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    look = StreamLog.owner

    def at_the_last_moment(log):
        """The job commits, and ends, right after the reader has found nothing."""
        monkeypatch.setattr(StreamLog, "owner", look)
        task.show(1)
        log.set_owner(owner(state="CANCELED"))
        return log.owner()

    monkeypatch.setattr(StreamLog, "owner", at_the_last_moment)
    assert reader.latestOffset(start, None) == start

    end = reader.latestOffset(start, None)
    assert read(reader, start, end) == [1]


def test_a_job_that_has_finished_leaves_the_query_alone(tmp_path):
    Committed(tmp_path)
    reader = reader_of(tmp_path)
    StreamLog(str(tmp_path)).set_owner(owner(state="FINISHED"))

    start = reader.initialOffset()

    assert reader.latestOffset(start, None) == start


def test_older_spark_does_not_tell_where_it_is(tmp_path):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    task.show(1)
    end = reader.latestOffset()
    reader.commit(end)

    assert reader.latestOffset() == end and end != start


def begun_as_older_spark_does(folder):
    """A reader and the offsets of its first batch."""
    reader = reader_of(folder)
    end = as_stored(reader.latestOffset())
    return reader, reader.initialOffset(), end


def test_two_queries_of_older_spark_do_not_read_the_same_output(tmp_path):
    task = Committed(tmp_path)
    task.show(1)
    older, start, middle = begun_as_older_spark_does(tmp_path)
    assert read(older, start, middle) == [1]
    older.commit(middle)
    task.show(2)
    newer, start, end = begun_as_older_spark_does(tmp_path)
    assert read(newer, start, end) == [2]

    task.show(3)
    with pytest.raises(StreamUnfit, match="another query has begun to read output 'totals'"):
        older.partitions(middle, older.latestOffset())
    assert read(newer, end, newer.latestOffset()) == [3]


def test_a_query_of_older_spark_goes_on_that_was_killed_before_its_first_batch(tmp_path):
    task = Committed(tmp_path)
    task.show(1)
    _, _, end = begun_as_older_spark_does(tmp_path)  # Spark has stored it

    again = reader_of(tmp_path)
    again.partitions(end, end)  # as Spark does at the start
    assert read(again, again.initialOffset(), end) == [1]
    task.show(2)
    assert read(again, end, again.latestOffset()) == [2]


def test_the_job_goes_on_while_spark_has_not_committed_the_last_batch(tmp_path):
    tasks = Committed(tmp_path, most_checkpoints=1), Committed(tmp_path, most_checkpoints=1)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    for number, task in enumerate(tasks):
        task.show(number)
    middle = reader.latestOffset(start, None)
    assert sorted(read(reader, start, middle)) == [0, 1]

    tasks[0].show(2)  # would wait for ever, for Spark commits when it has this one

    assert read(reader, middle, reader.latestOffset(middle, None)) == [2]


def test_offsets_do_not_grow_with_the_restarts_of_the_job(tmp_path):
    task, reader = Committed(tmp_path), reader_of(tmp_path)
    place = reader.initialOffset()
    found = []
    for attempt in range(4):
        task.restart(attempt)
        task.show(attempt)
        end = as_stored(reader.latestOffset(place, None))
        found += read(reader, place, end)
        reader.commit(end)
        place = end

    again = reader_of(tmp_path)
    assert again.partitions(place, place) == []
    task.show(4)
    end = again.latestOffset(place, None)
    assert found + read(again, place, end) == [0, 1, 2, 3, 4]
    assert len(end["read"]) == 1


def test_an_old_offset_is_refused_also_when_the_writers_of_its_time_are_gone(tmp_path):
    task, reader = Committed(tmp_path), reader_of(tmp_path)
    places = [reader.initialOffset()]
    for attempt in range(4):
        task.restart(attempt)
        task.show(attempt)
        task.show(10 + attempt)
        places.append(as_stored(reader.latestOffset(places[-1], None)))
        read(reader, *places[-2:])
        reader.commit(places[-1])
    task.show(20)

    for old in places[:-1]:
        again = reader_of(tmp_path)
        end = again.latestOffset(as_stored(old), None)
        with pytest.raises(StreamUnfit, match="the query starts from an old offset"):
            again.partitions(old, end)
    assert read(reader, places[-1], reader.latestOffset(places[-1], None)) == [20]


def test_a_query_that_is_killed_while_it_removes_what_it_has_read_goes_on(tmp_path):
    patches = [(os, "fsync"), (os, "replace"), (os, "unlink")]
    for last in range(1, STEPS):
        folder = tmp_path / str(last)
        task, reader = Committed(folder), reader_of(folder)
        task.show(1)
        task.show(2)
        end = as_stored(reader.latestOffset(reader.initialOffset(), None))
        reader.partitions(end, end)
        task.show(3)
        commit = partial(reader.commit, end)
        was_killed = dies_at(last, patches, lambda killer, commit=commit: commit())

        again = reader_of(folder)
        newest = again.latestOffset(end, None)
        assert read(again, end, newest) == [3], f"killed at step {last}"
        again.commit(end)
        assert len(StreamLog(str(folder)).parts()) == 1
        if not was_killed:
            break
    assert last > 6


def test_many_parts_are_read_by_few_tasks(tmp_path):
    task = Committed(tmp_path)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    for number in range(5):
        task.show(number)

    assert len(reader.partitions(start, reader.latestOffset(start, None))) == 1


def test_a_schema_that_does_not_fit_is_refused(tmp_path):
    Committed(tmp_path)
    other = StructType([StructField("id", LongType()), StructField("price", StringType())])

    with pytest.raises(
        StreamUnfit, match="column 'price' is double in the output, and string in the query"
    ):
        OutputStreamReader({"path": str(tmp_path)}, other).initialOffset()


def test_the_schema_of_an_output_is_known_to_spark(tmp_path):
    Committed(tmp_path)

    assert HeadgateDataSource({"path": str(tmp_path)}).schema() == SCHEMA
