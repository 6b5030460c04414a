"""The writing side of an input, as Spark calls it: commits once, and what goes wrong."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from headgate.base.errors import HeadgateError, StreamUnfit
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.spark.streaming.data_source import HeadgateDataSource
from headgate.spark.streaming.stream_writer import WrittenParts
from tests.connectors.streaming.kit import (
    attached_input,
    attached_output,
    discovered,
    owner,
    read_ids,
    rows,
    write_batch,
    write_parts,
)

SCHEMA = StructType([StructField("id", LongType()), StructField("price", DoubleType())])


def writer_of(folder, schema=SCHEMA, **options):
    return HeadgateDataSource({"path": str(folder), **options}).streamWriter(schema, False)


def written(folder, number, *batches):
    log = StreamLog(str(folder))
    parts = tuple(write_parts(folder, "q", number, *batches))
    return WrittenParts("q", str(folder), log.info().log, parts)


def test_a_micro_batch_that_is_repeated_counts_once(tmp_path):
    source, log = attached_input(tmp_path), StreamLog(str(tmp_path))
    writer = writer_of(tmp_path)

    writer.commit([written(tmp_path, 0, rows(1)), written(tmp_path, 0, rows(2))], 0)
    writer_of(tmp_path).commit([written(tmp_path, 0, rows(1, 2))], 0)

    assert read_ids(source, discovered(source)[1]) == [1, 2]
    assert len(log.parts()) == 2


@pytest.mark.parametrize("is_read", [False, True])
def test_a_query_that_starts_from_an_older_copy_of_its_checkpoint_is_refused(tmp_path, is_read):
    attached_input(tmp_path)
    log = StreamLog(str(tmp_path))
    for number in range(3):
        write_batch(tmp_path, "q", number, rows(number))
    if is_read:
        log.trim({"q": 2})
    before = log.parts()

    with pytest.raises(StreamUnfit, match="up to 2 of this query, which goes on with 1: its"):
        writer_of(tmp_path).commit([written(tmp_path, 1, rows(8, 9))], 1)

    assert log.parts() == before


def test_an_aborted_micro_batch_leaves_no_parts(tmp_path):
    attached_input(tmp_path)

    writer_of(tmp_path).abort([None, written(tmp_path, 0, rows(1))], 0)

    assert StreamLog(str(tmp_path)).parts() == {}


def test_an_abort_after_a_commit_that_has_come_through_keeps_its_rows(tmp_path):
    source = attached_input(tmp_path)
    messages = [written(tmp_path, 0, rows(1))]
    writer = writer_of(tmp_path)
    writer.commit(messages, 0)  # and its process dies before Spark learns of it

    writer.abort(messages, 0)
    writer_of(tmp_path).commit([written(tmp_path, 0, rows(1))], 0)

    assert read_ids(source, discovered(source)[1]) == [1]


def test_a_commit_whose_answer_got_lost_and_is_repeated_keeps_its_rows(tmp_path):
    source = attached_input(tmp_path)
    messages = [written(tmp_path, 0, rows(1))]
    writer_of(tmp_path).commit(messages, 0)

    writer_of(tmp_path).commit(messages, 0)

    assert read_ids(source, discovered(source)[1]) == [1]


def test_a_task_waits_while_too_much_is_unread(tmp_path, monkeypatch):
    source, log = attached_input(tmp_path, most_batches=1), StreamLog(str(tmp_path))
    write_batch(tmp_path, "q", 0, rows(1))
    writer, looks = writer_of(tmp_path), []

    def read_meanwhile(seconds):
        looks.append(seconds)
        read_ids(source, discovered(source)[1])

    monkeypatch.setattr("headgate.spark.streaming.stream_writer.time.sleep", read_meanwhile)
    writer._await_room(log, log.info(), "q", 1)

    assert len(looks) == 1


def test_a_job_that_has_ended_ends_the_wait_with_its_reason(tmp_path):
    attached_input(tmp_path)
    log = StreamLog(str(tmp_path))
    log.set_owner(owner(state="FAILED", problem="no luck"))
    writer = writer_of(tmp_path, jobTimeout="0.1")

    with pytest.raises(
        StreamUnfit, match=r"takes no more rows: job j1 \(shop\) is failed: no luck.*micro-batch 7"
    ):
        writer._await_room(log, log.info(), "q", 7)


def test_an_input_that_was_made_anew_takes_no_old_parts(tmp_path):
    attached_input(tmp_path)
    message = written(tmp_path, 0, rows(1))
    StreamLog(str(tmp_path)).folder.remove_all()
    attached_input(tmp_path)

    with pytest.raises(StreamUnfit, match="was made anew"):
        writer_of(tmp_path).commit([message], 0)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([("id", LongType())], "the query has no column 'price', which is double in the input"),
        (
            [("id", StringType()), ("price", DoubleType())],
            "column 'id' is int64 in the input, and string in the query",
        ),
        (
            [("id", LongType()), ("price", DoubleType()), ("tax", DoubleType())],
            "the input has no column 'tax'; it has id, price",
        ),
    ],
)
def test_a_schema_that_does_not_fit_names_the_column(tmp_path, schema, problem):
    attached_input(tmp_path)
    given = StructType([StructField(name, kind) for name, kind in schema])

    with pytest.raises(StreamUnfit, match=problem):
        writer_of(tmp_path, given)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "name a running job and its input"),
        ({"job": "shop"}, "name a running job and its input"),
        ({"path": "nowhere"}, "nowhere holds no stream of a Headgate job"),
        ({"jobTimeout": "soon", "path": "x"}, "is no number; give seconds"),
    ],
)
def test_options_that_lead_nowhere_are_refused(options, problem):
    with pytest.raises(HeadgateError, match=problem):
        HeadgateDataSource(options).streamWriter(SCHEMA, False)


def test_an_output_cannot_be_written(tmp_path):
    attached_output(tmp_path)

    with pytest.raises(StreamUnfit, match="is the output 'totals' of a job; read it"):
        writer_of(tmp_path)
